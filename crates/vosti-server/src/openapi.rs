//! The OpenAPI document, made from the types that the handlers take and give.

use crate::api::{anthropic, chat, completions, models, ollama, responses, state, tokenize};
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi as _};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Vosti",
        description = "Language models whose answers do not depend on what else the server is doing. The API is OpenAI's, \
            with vLLM's additions where they mean the same. A field that is not described here is refused, unless its \
            value asks for nothing. A request without sampling parameters gets those that the model's makers recommend \
            (`default_sampling_params` of `/v1/models`); a server with `--generation-config openai` gives the model's own \
            distribution, for training and evaluation."
    ),
    paths(
        chat::complete, completions::complete, responses::respond, anthropic::create, anthropic::count, models::list,
        models::one, ollama::chat, ollama::generate, ollama::tags, ollama::show, ollama::version, tokenize::tokenize, tokenize::detokenize, tokenize::info,
        state::health, state::ready, state::status, state::metrics, state::openapi
    ),
    tags(
        (name = "completions", description = "Answers"),
        (name = "models", description = "What is served"),
        (name = "tokens", description = "Text and tokens"),
        (name = "ollama", description = "The same answers for ollama's clients"),
        (name = "state", description = "The server itself; open without a key")
    ),
    modifiers(&Key)
)]
struct Document;

/// The API key.
struct Key;

impl Modify for Key {
    fn modify(&self, document: &mut OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(scheme));
    }
}

/// The document.
pub fn document() -> OpenApi {
    Document::openapi()
}
