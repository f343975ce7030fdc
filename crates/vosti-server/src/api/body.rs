//! From bytes to a request type: every way in which a body can be wrong becomes a 4xx that names the place.

use super::ApiError;
use crate::app::App;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// A request body's type.
pub trait Body: DeserializeOwned {
    /// Fields that OpenAI's or vLLM's API has and this server has not: name, why, and values that ask for nothing (a
    /// null never does).
    const UNSUPPORTED: &'static [Unsupported];
}

/// See [`Body::UNSUPPORTED`].
pub struct Unsupported {
    pub name: &'static str,
    pub why: &'static str,
    /// JSON texts.
    pub harmless: &'static [&'static str],
}

/// Reads a body. Never fails but with an [`ApiError`], whatever the bytes are.
pub fn parse<T: Body>(bytes: &[u8]) -> Result<T, ApiError> {
    let first = match read(bytes) {
        Ok(request) => return Ok(request),
        Err(error) => error,
    };
    if unknown_field(&first).is_none() {
        return Err(first);
    }
    // Clients that send every field they know send null for those they do not use.
    let Ok(Value::Object(mut members)) = serde_json::from_slice::<Value>(bytes) else {
        return Err(first);
    };
    for unsupported in T::UNSUPPORTED {
        let Some(value) = members.get(unsupported.name) else { continue };
        if !value.is_null() && !unsupported.harmless.contains(&value.to_string().as_str()) {
            let message = format!("{} is not supported: {}", unsupported.name, unsupported.why);
            return Err(ApiError::unsupported(unsupported.name, message));
        }
        members.shift_remove(unsupported.name);
    }
    read(&serde_json::to_vec(&members).unwrap_or_default())
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
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let name = rest.split('`').next().unwrap_or_default().to_string();
        // The path ends with the object that holds the field, or with the field itself.
        let inside = path.strip_suffix(&name).map_or(path.as_str(), |parent| parent.trim_end_matches('.'));
        let full = if inside.is_empty() || inside == "." { name } else { format!("{inside}.{name}") };
        return ApiError::unsupported(&full, format!("{full} is not a field of this request"));
    }
    if path == "." || path.is_empty() {
        return ApiError::invalid(message);
    }
    ApiError::field(&path, format!("{path}: {message}"))
}

/// A parsed body, for handlers.
pub struct Payload<T>(pub T);

impl<T: Body> FromRequest<Arc<App>> for Payload<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        // A page on another site can send text to this port without being asked for leave; JSON it cannot.
        let header = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = header.and_then(|value| value.split(';').next()).map(str::trim);
        if !media.is_some_and(|media| media.eq_ignore_ascii_case("application/json")) {
            return Err(ApiError::media_type());
        }
        let bytes = receive(request, app).await?;
        parse(&bytes).map(Payload)
    }
}

/// The whole body, bounded in bytes and in time.
async fn receive(request: Request, app: &App) -> Result<Bytes, ApiError> {
    let limits = &app.config.limits;
    let whole = Limited::new(request.into_body(), limits.body_bytes_max).collect();
    match tokio::time::timeout(limits.idle_time_max, whole).await {
        Err(_) => Err(ApiError::timeout("the body did not come")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::too_large(limits.body_bytes_max)),
        Ok(Err(_)) => Err(ApiError::invalid("the body broke off")),
    }
}
