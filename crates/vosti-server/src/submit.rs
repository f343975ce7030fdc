//! Sends a request to the engine and receives its updates.
//!
//! Updates go over a channel that never blocks, so a client that reads slowly never makes the engine wait. The request's prompt
//! and tokens bound how much the channel holds. When a client leaves, [`Running`] is dropped, which aborts the request: its pages
//! are free again within a step, whatever the request's state.

use crate::api::ApiError;
use crate::job::{InEngine, Job, Update};
use crate::service::Service;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use vosti_engine::EngineError;

/// A job in the engine. Dropping it aborts the requests that have not ended.
pub struct Running {
    pub updates: UnboundedReceiver<Update>,
    _requests: Vec<InEngine>,
}

/// Hands a job to the engine. `places` is released when the engine has dropped the last answer.
pub async fn submit(service: &Service, job: &Job, places: OwnedSemaphorePermit) -> Result<Running, ApiError> {
    let (sender, updates) = unbounded_channel();
    let places = Arc::new(places);
    let mut replies = Vec::with_capacity(job.prompts.len());
    for prompt in 0..job.prompts.len() {
        let (updates, places) = (sender.clone(), places.clone());
        let sink = job.sink(prompt, move |update| {
            let _held = &places;
            updates.send(update).is_ok()
        });
        let (reply, answer) = oneshot::channel();
        InEngine::submit(&service.engine, job.request(prompt), sink, |told| drop(reply.send(told)))?;
        replies.push(answer);
    }
    let mut requests = Vec::with_capacity(replies.len());
    for reply in replies {
        requests.push(reply.await.map_err(|_| EngineError::Gone)??);
    }
    Ok(Running { updates, _requests: requests })
}
