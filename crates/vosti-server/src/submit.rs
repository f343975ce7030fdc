//! Sends a request to the engine and receives its updates.
//!
//! Updates go over a channel that never blocks. Its bound is the most that the request can produce, its prompt and its
//! tokens; a client that reads slowly lets the channel fill and never makes the engine wait. A client that leaves drops
//! [`Running`], which aborts: the pages are free again within a step, whatever the request's state.

use crate::api::ApiError;
use crate::job::{InEngine, Job, Update};
use crate::service::Service;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use vosti_engine::EngineError;

/// A job in the engine. Dropping it aborts what has not finished.
pub struct Running {
    pub updates: UnboundedReceiver<Update>,
    _requests: Vec<InEngine>,
}

/// Hands a job to the engine. `places` is given back when the engine has let go of the last answer.
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
