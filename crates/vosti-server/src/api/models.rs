//! `/v1/models`: the one served model, under each of its names.

use super::{ApiError, ErrorBody};
use crate::app::App;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use vosti_engine::Defaults;

/// Every name.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    pub object: &'static str,
    pub data: Vec<ModelCard>,
}

/// The model under one name.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelCard {
    pub id: String,
    /// `model`.
    pub object: &'static str,
    pub created: u64,
    /// `vosti`.
    pub owned_by: &'static str,
    /// Most tokens of prompt and answer together.
    pub max_model_len: usize,
    /// The deployment's fingerprint, which fixes the bits of every answer.
    pub system_fingerprint: String,
    /// What a request gets that gives no sampling parameters.
    pub default_sampling_params: DefaultSampling,
}

macro_rules! defaults {
    ({} $($(#[$doc:meta])* $name:ident: $type:ident as $given:ident = $neutral:literal, $range:tt, $key:literal;)*) => {
        /// Sampling parameters of a request that gives none: the model's own, its makers' recommendation, or llama.cpp's for another
        /// GGUF file; neutral ones (OpenAI's) with `--generation-config openai`.
        #[derive(Clone, Debug, Serialize, ToSchema)]
        pub struct DefaultSampling {
            $(pub $name: $type,)*
            /// Where they come from, such as `generation_config.json` or `its makers'`; null for OpenAI's.
            pub source: Option<&'static str>,
        }

        impl From<&Defaults> for DefaultSampling {
            fn from(defaults: &Defaults) -> Self {
                Self { $($name: defaults.numbers.$name,)* source: defaults.source }
            }
        }
    };
}
vosti_engine::sampling_numbers!([defaults] {});

fn card(app: &App, name: &str) -> Result<ModelCard, ApiError> {
    let service = app.service()?;
    Ok(ModelCard {
        id: name.to_string(),
        object: "model",
        created: app.started,
        owned_by: "vosti",
        max_model_len: service.identity.context,
        system_fingerprint: service.identity.fingerprint.clone(),
        default_sampling_params: DefaultSampling::from(&service.defaults),
    })
}

/// The names under which the model is served.
#[utoipa::path(get, path = "/v1/models", tag = "models", security(("key" = [])),
    responses((status = 200, body = ModelList), (status = 503, body = ErrorBody)))]
pub async fn list(State(app): State<Arc<App>>) -> Result<Json<ModelList>, ApiError> {
    let data = app.config.model_names.iter().map(|name| card(&app, name)).collect::<Result<_, _>>()?;
    Ok(Json(ModelList { object: "list", data }))
}

/// The model under one name.
#[utoipa::path(get, path = "/v1/models/{name}", tag = "models", security(("key" = [])),
    params(("name" = String, Path, description = "The model's name")),
    responses((status = 200, body = ModelCard), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn one(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<ModelCard>, ApiError> {
    super::prepare::check_model(&app, Some(&name))?;
    card(&app, &name).map(Json)
}
