//! The OpenAPI document and the page made from it say what the server does.

use crate::common::{get, toy};
use serde_json::{Value, json};

#[test]
fn the_api_page_is_what_the_types_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let page = vosti_server::api_page::page();
    assert!(written == page, "docs/api.md is old: {}", vosti_server::api_page::COMMAND);
}

/// The document keeps an optional field's description beside its type's reference, one level deeper than a plain field's.
#[test]
fn the_api_page_has_the_description_of_every_optional_field() {
    let document = serde_json::to_value(vosti_server::openapi::document()).unwrap();
    let page = vosti_server::api_page::page();
    let mut found = Vec::new();
    for schema in document["components"]["schemas"].as_object().unwrap().values() {
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            for branch in schema["oneOf"].as_array().into_iter().flatten() {
                let Some(said) = branch["description"].as_str() else { continue };
                let said = said.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
                let mut rows = page.lines().filter(|line| line.starts_with(&format!("| `{field}`")));
                assert!(rows.any(|row| row.contains(&said)), "`{field}` has no row with: {said}");
                found.push(field.as_str());
            }
        }
    }
    for field in ["tool_choice", "structured_outputs", "vosti_resume", "usage", "thinking", "output_config"] {
        assert!(found.contains(&field), "`{field}` has no description: {found:?}");
    }
}

#[tokio::test]
async fn every_path_of_the_document_is_served() {
    let server = toy();
    let document = server.send(get("/openapi.json")).await.json();
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 20);
    for (path, methods) in paths {
        let uri = path.replace("{name}", "toy");
        for method in methods.as_object().unwrap().keys() {
            let answer = match method.as_str() {
                "get" => server.send(get(&uri)).await,
                "post" => server.post(&uri, json!({})).await,
                other => panic!("{path} has the method {other}"),
            };
            assert!(![404, 405].contains(&answer.status.as_u16()), "{method} {path}: {}", answer.status);
        }
    }
}

#[test]
fn the_document_refuses_what_the_server_refuses() {
    let document = serde_json::to_value(vosti_server::openapi::document()).unwrap();
    let schemas = &document["components"]["schemas"];
    for name in [
        "ChatRequest",
        "CompletionRequest",
        "Message",
        "TokenizeRequest",
        "DetokenizeRequest",
        "ResponsesRequest",
        "MessagesRequest",
        "CountRequest",
    ] {
        assert_eq!(schemas[name]["additionalProperties"], Value::Bool(false), "{name}");
    }
    let temperature = &schemas["ChatRequest"]["properties"]["temperature"];
    assert_eq!((temperature["minimum"].as_f64(), temperature["maximum"].as_f64()), (Some(0.0), Some(100.0)));
}
