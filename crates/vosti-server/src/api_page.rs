//! The API as a page of Markdown, written from the OpenAPI document, which is made from the handlers' types.

use crate::api::foreign::{self, Place, Taken};
use serde_json::{Map, Value};
use std::fmt::Write;

/// The command that makes the page.
pub const COMMAND: &str = "cargo run -p vosti-server --example api_page > docs/api.md";

/// The page.
pub fn page() -> String {
    let document = serde_json::to_value(crate::openapi::document()).unwrap_or_default();
    let mut out = format!("<!-- Made by `{COMMAND}`; edit the types instead. -->\n\n# API\n\n");
    let description = document["info"]["description"].as_str().unwrap_or_default();
    let squeezed: Vec<&str> = description.split_whitespace().collect();
    let _ = writeln!(out, "{} How to run the server is in [server.md](server.md).\n", squeezed.join(" "));
    for (path, methods) in members(&document["paths"]) {
        for (method, operation) in members(methods) {
            endpoint(&mut out, method, path, operation);
        }
    }
    foreign(&mut out);
    out.push_str("## Types\n");
    for (name, schema) in members(&document["components"]["schemas"]) {
        kind(&mut out, name, schema);
    }
    out
}

/// The fields of other engines.
fn foreign(out: &mut String) {
    out.push_str(
        "## Fields of other engines\n\nClients send fields that no type of this page has. The server accepts null and the \
         values of this table: they ask for the answer that a request without the field gets. It refuses any other value, and any \
         other field, by name, unless it runs with `--unknown-fields warn`. A whole number may be written as 2.0. \"clients\" are LiteLLM, LangChain and others that \
         translate between APIs.\n\n| field | sent by | accepted | |\n| --- | --- | --- | --- |\n",
    );
    for row in foreign::FIELDS {
        let path: String =
            row.place.path().iter().map(|step| if *step == "*" { "[]".into() } else { format!(".{step}") }).collect();
        let path = format!("{path}.{}", row.name);
        let only = match row.place {
            Place::Chat => ", chat",
            Place::Text => ", text",
            Place::Responses | Place::ResponsesReasoning | Place::ResponsesTool => ", responses",
            Place::Tokenize => ", tokenize",
            Place::Detokenize => ", detokenize",
            _ => "",
        };
        let engines: Vec<&str> = row.engines.iter().map(|engine| engine.name()).collect();
        let taken = match row.taken {
            Taken::Null => "null".to_string(),
            Taken::Any => "any".to_string(),
            Taken::Told => "any, and `x-vosti-ignored` names it".to_string(),
            Taken::As(name) => format!("the same as `{name}`"),
            Taken::Of(names) => {
                format!("a list of {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
            }
            Taken::These(values) => values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", "),
        };
        let path = path.trim_start_matches('.');
        let _ = writeln!(out, "| `{path}` | {}{only} | {taken} | {} |", engines.join(", "), row.means);
    }
    out.push('\n');
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn endpoint(out: &mut String, method: &str, path: &str, operation: &Value) {
    let said = ["summary", "description"].map(|part| operation[part].as_str().unwrap_or_default());
    let _ = writeln!(out, "## `{} {path}`\n\n{}\n", method.to_uppercase(), line(&said.join(" ")));
    if let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema") {
        let _ = writeln!(out, "Takes {}.", name(schema));
    }
    for (status, response) in members(&operation["responses"]) {
        let kinds: Vec<String> = members(&response["content"])
            .map(|(media, content)| format!("{} (`{media}`)", name(&content["schema"])))
            .collect();
        let _ = writeln!(out, "- {status}: {}", kinds.join(", "));
    }
    if operation.get("security").is_some() {
        out.push_str("- Needs the API key, if the server has one.\n");
    }
    out.push('\n');
}

fn kind(out: &mut String, name: &str, schema: &Value) {
    let _ = writeln!(out, "\n### {name}\n\n{}\n", line(schema["description"].as_str().unwrap_or_default()));
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if schema["properties"].is_object() {
        out.push_str("| field | type | |\n| --- | --- | --- |\n");
    } else {
        let _ = writeln!(out, "{}", of(schema));
    }
    for (field, schema) in members(&schema["properties"]) {
        let mark = if required.contains(&field.as_str()) { " (required)" } else { "" };
        let said = line(description(schema));
        let _ = writeln!(out, "| `{field}`{mark} | {} | {}{} |", of(schema), said.replace('|', "\\|"), range(schema));
    }
}

/// A field's description. An optional field of a type that has a name carries it beside the reference, in one branch of `oneOf`.
fn description(schema: &Value) -> &str {
    let branches = ["oneOf", "anyOf", "allOf"].iter().filter_map(|list| schema[*list].as_array()).flatten();
    let of_reference = branches.filter(|branch| branch["$ref"].is_string());
    let said = std::iter::once(schema).chain(of_reference).find_map(|one| one["description"].as_str());
    said.unwrap_or_default()
}

/// A text on one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The referenced type, as a link.
fn name(schema: &Value) -> String {
    match schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        Some(name) => format!("[{name}](#{})", name.to_lowercase()),
        None => of(schema),
    }
}

/// A schema in a few words.
fn of(schema: &Value) -> String {
    if schema["$ref"].is_string() {
        return name(schema);
    }
    for list in ["oneOf", "anyOf", "allOf"] {
        if let Some(kinds) = schema[list].as_array() {
            let named: Vec<String> = kinds.iter().filter(|kind| kind["type"] != "null").map(of).collect();
            return named.join(" or ");
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ");
    }
    let kind = match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect::<Vec<_>>().join(" or ")
        }
        _ => "anything".into(),
    };
    match kind.as_str() {
        "array" => format!("list of {}", of(&schema["items"])),
        "object" if schema["properties"].is_object() => {
            let fields = members(&schema["properties"]).map(|(field, schema)| format!("`{field}`: {}", of(schema)));
            format!("object with {}", fields.collect::<Vec<_>>().join(", "))
        }
        _ => kind,
    }
}

fn range(schema: &Value) -> String {
    let bound = |name: &str, sign: &str| schema.get(name).map(|value| format!("{sign} {value}"));
    let bounds = [bound("minimum", "at least"), bound("exclusiveMinimum", "above"), bound("maximum", "at most")];
    let said: Vec<String> = bounds.into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
}
