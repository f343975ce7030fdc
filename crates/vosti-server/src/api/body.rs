//! From bytes to a request type: every way in which a body can be wrong becomes a 4xx that names the place.

use super::ApiError;
use super::error::renamed;
use super::foreign::{self, Place, Stripped};
use crate::app::App;
use crate::config::UnknownFields;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// A request body's type.
pub trait Body: DeserializeOwned {
    /// Where the fields of other engines may stand.
    const PLACES: &'static [Place];
    /// Whether a client that is no browser may leave out the header that says JSON.
    const UNNAMED: bool = false;
}

/// Members of requests that hold JSON of the client's own, which stays as it is; paths as in [`Place::path`].
const FREE: [&[&str]; 14] = [
    &["chat_template_kwargs"],
    &["format"],
    &["guided_json"],
    &["json_schema"],
    &["logit_bias"],
    &["messages", "*", "content", "*", "input"],
    &["messages", "*", "tool_calls", "*", "function", "arguments"],
    &["output_config", "format", "schema"],
    &["response_format", "json_schema", "schema"],
    &["structured_outputs", "json"],
    &["text", "format", "schema"],
    &["tools", "*", "function", "parameters"],
    &["tools", "*", "input_schema"],
    &["tools", "*", "parameters"],
];

/// Every whole number up to this one is exact as a 64-bit float.
const EXACT_MAX: f64 = (1u64 << 53) as f64;

/// Most fields of one body that an error names, or that are ignored under `--unknown-fields warn`.
const REFUSED_MAX: usize = 64;

/// Reads a body, and names the fields that were ignored. Never fails but with an [`ApiError`], whatever the bytes are: it names
/// every field that cannot be served.
pub fn parse<T: Body>(bytes: &[u8], unknown: UnknownFields) -> Result<(T, Vec<String>), ApiError> {
    // A list would be read as the request's fields in their order.
    let other = bytes.trim_ascii_start().first() != Some(&b'{');
    if other && serde_json::from_slice::<Value>(bytes).is_ok() {
        return Err(ApiError::invalid("the body is not a JSON object"));
    }
    let first = match read(bytes) {
        Ok(request) => return Ok((request, Vec::new())),
        Err(error) => error,
    };
    let Ok(mut value @ Value::Object(_)) = serde_json::from_slice::<Value>(bytes) else { return Err(first) };
    let sent = value.clone();
    simplify(&mut value, &FREE);
    let Stripped { told, mut refused } = foreign::strip(&mut value, T::PLACES);
    if value == sent && unknown_field(&first).is_none() {
        return Err(first);
    }
    let request = loop {
        match read(&serde_json::to_vec(&value).unwrap_or_default()) {
            Ok(request) => break Ok(request),
            Err(error) => match unknown_field(&error) {
                Some(path) if refused.len() < REFUSED_MAX && remove(&mut value, path) => {
                    refused.push((path.to_string(), error.object.message));
                }
                _ => break Err(error),
            },
        }
    };
    match (unknown, request) {
        (UnknownFields::Refuse, _) if !refused.is_empty() => Err(all_refused(refused)),
        (_, Err(error)) => Err(error),
        (_, Ok(request)) => Ok((request, told.into_iter().chain(refused.into_iter().map(|(path, _)| path)).collect())),
    }
}

/// One error for all fields that cannot be served.
fn all_refused(refused: Vec<(String, String)>) -> ApiError {
    let why: Vec<&str> = refused.iter().map(|(_, why)| why.as_str()).collect();
    let message = format!("{} (a server with --unknown-fields warn ignores such fields)", why.join("; "));
    ApiError::unsupported(&refused[0].0, message)
}

/// Removes members that are null, which ask for nothing, and writes 2.0 as 2, which are one number in JSON schemas. Members at
/// `free` paths stay unchanged.
fn simplify(value: &mut Value, free: &[&[&str]]) {
    let below = |step: &str| -> Vec<&[&str]> {
        free.iter().filter(|path| path.first() == Some(&step)).map(|path| &path[1..]).collect()
    };
    match value {
        _ if free.contains(&[].as_slice()) => {}
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.iter_mut().for_each(|(name, member)| simplify(member, &below(name)));
        }
        Value::Array(list) => {
            let free = below("*");
            list.iter_mut().for_each(|entry| simplify(entry, &free));
        }
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) if float.fract() == 0.0 && float.abs() <= EXACT_MAX => *number = (float as i64).into(),
            _ => {}
        },
        _ => {}
    }
}

/// Removes the member at a path like `messages[0].weight`; false if there is none.
fn remove(value: &mut Value, path: &str) -> bool {
    let (holder, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = value;
    for step in holder.split(['.', '[']).filter(|step| !step.is_empty()) {
        let next = match step.strip_suffix(']') {
            Some(index) => index.parse().ok().and_then(|index: usize| at.get_mut(index)),
            None => at.get_mut(step),
        };
        let Some(next) = next else { return false };
        at = next;
    }
    at.as_object_mut().and_then(|members| members.shift_remove(name)).is_some()
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let request = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        describe(error.inner(), path)
    })?;
    json.end().map_err(|error| describe(&error, ".".into()))?;
    Ok(request)
}

/// The name in serde's "unknown field" message.
fn unknown_field(error: &ApiError) -> Option<&str> {
    (error.object.code == Some("unsupported_parameter")).then_some(error.object.param.as_deref()?)
}

fn describe(error: &serde_json::Error, path: String) -> ApiError {
    let message = error.to_string();
    if !error.is_data() {
        return ApiError::invalid(format!("the body is not JSON: {message}"));
    }
    let message = plain(&message);
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let name = rest.split('`').next().unwrap_or_default().to_string();
        // The path ends with the object that holds the field, or with the field itself.
        let inside = path.strip_suffix(&name).map_or(path.as_str(), |parent| parent.trim_end_matches('.'));
        let full = if inside.is_empty() || inside == "." { name } else { format!("{inside}.{name}") };
        return ApiError::unsupported(&full, format!("{full} is not a field of this request"));
    }
    let inside = path.trim_matches('.');
    if let Some(rest) = message.strip_prefix("missing field `") {
        let name = rest.split('`').next().unwrap_or_default();
        let full = if inside.is_empty() { name.to_string() } else { format!("{inside}.{name}") };
        return ApiError::field(&full, format!("{full} is missing"));
    }
    if inside.is_empty() {
        return ApiError::invalid(message);
    }
    ApiError::field(&path, format!("{path}: {message}"))
}

/// serde's message in JSON's terms instead of Rust's, without line and column: the path names the place. Text that the client
/// sent stays unchanged.
fn plain(message: &str) -> String {
    let placed = message.rsplit_once(" at line ").filter(|(_, place)| place.split(" column ").all(is_number));
    let message = placed.map_or(message, |(message, _)| message);
    let Some((wrong, expected)) = message.rsplit_once(", expected ") else { return message.to_string() };
    let wrong = match wrong {
        "invalid type: sequence" => "invalid type: list",
        "invalid type: map" => "invalid type: object",
        _ => wrong,
    };
    let expected = match expected {
        "usize" | "u64" | "u32" => "a whole number of at least 0",
        "i64" => "a whole number",
        "f32" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        _ if expected.starts_with("struct ") || expected.starts_with("internally tagged enum ") => "an object",
        _ => expected,
    };
    format!("{wrong}, expected {expected}")
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

/// What a response's headers say of its request: fields that were ignored, and what else differs from what was asked for.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<[Vec<String>; 2]>>);

/// The headers of [`Told`].
pub const TOLD: [&str; 2] = ["x-vosti-ignored", "x-vosti-warning"];

impl Told {
    fn ignored(&self, fields: Vec<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[0].extend(fields);
    }

    /// Adds warnings.
    pub fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[1].extend(warnings);
    }

    /// Writes the fields in warnings by the names of another API, see [`ApiError::renamed`]. Words that are no fields stay.
    pub fn rename(&self, names: &[(&str, &str)]) {
        let word = |word: &str| {
            let name = word.trim_end_matches([',', ':']);
            renamed(name, names) + &word[name.len()..]
        };
        for warning in &mut self.0.lock().unwrap_or_else(PoisonError::into_inner)[1] {
            *warning = warning.split(' ').map(word).collect::<Vec<_>>().join(" ");
        }
    }

    /// Takes the lists of [`TOLD`] out: a second call returns nothing.
    pub fn take(&self) -> [Vec<String>; 2] {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A parsed body, for handlers, and what to tell of it.
pub struct Payload<T>(pub T, pub Told);

impl<T: Body> FromRequest<Arc<App>> for Payload<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        // A browser lets a page of another site send plain text to this port, but not JSON: so JSON is required. Where it is not,
        // nothing of a page is taken: browsers say `Origin` whenever a page posts.
        let header = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = header.and_then(|value| value.split(';').next()).map(str::trim);
        let named = media.is_some_and(|media| media.eq_ignore_ascii_case("application/json"));
        if !named && (!T::UNNAMED || request.headers().contains_key(ORIGIN)) {
            return Err(ApiError::media_type());
        }
        let told = request.extensions().get::<Told>().cloned().unwrap_or_default();
        let bytes = receive(request, app).await?;
        let (request, ignored) = parse(&bytes, app.config.unknown_fields)?;
        told.ignored(ignored);
        Ok(Payload(request, told))
    }
}

/// The whole body, bounded in bytes and in time.
async fn receive(request: Request, app: &App) -> Result<Bytes, ApiError> {
    let limits = &app.config.limits;
    let whole = Limited::new(request.into_body(), limits.body_bytes_max).collect();
    match tokio::time::timeout(limits.idle_time_max, whole).await {
        Err(_) => Err(ApiError::timeout("the body did not arrive within the server's --idle-timeout")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::too_large(limits.body_bytes_max)),
        Ok(Err(_)) => Err(ApiError::invalid("the connection ended before the whole body arrived")),
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_message_is_in_jsons_words_and_what_the_client_wrote_is_not_changed() {
        for (rust, told) in [
            ("invalid type: map, expected a sequence at line 1 column 9", "invalid type: object, expected a list"),
            ("invalid type: sequence, expected u32", "invalid type: list, expected a whole number of at least 0"),
            ("unknown variant `map`, expected `user`", "unknown variant `map`, expected `user`"),
            (
                "invalid type: string \"a sequence\", expected f32",
                "invalid type: string \"a sequence\", expected a number",
            ),
            ("unknown variant `x, expected i64`, expected `a`", "unknown variant `x, expected i64`, expected `a`"),
            ("unknown field `here at line 3`", "unknown field `here at line 3`"),
        ] {
            assert_eq!(plain(rust), told);
        }
    }
}
