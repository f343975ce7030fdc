//! The server's limits: places for answers, and the count of requests that are still answered.

use crate::api::ApiError;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Places for answers in the engine. A place is free again when the engine has dropped the answer, whatever its client does.
pub struct Places {
    free: Arc<Semaphore>,
    all: usize,
}

impl Places {
    /// So many places, all free.
    pub fn new(all: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(all)), all }
    }

    /// How many places are in use.
    pub fn taken(&self) -> usize {
        self.all - self.free.available_permits()
    }

    /// `count` places at once or none: a request with many answers is taken whole.
    pub fn take(&self, count: usize, running_max: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        if count > self.all {
            let message =
                format!("the request asks for {count} answers and the server's limit is {}: ask for fewer", self.all);
            return Err(ApiError::field("n", message));
        }
        let permits = u32::try_from(count).unwrap_or(u32::MAX);
        self.free.clone().try_acquire_many_owned(permits).map_err(|_| {
            // A guess, because the time of an answer is not known: one second for each full batch.
            let seconds = (self.taken() / running_max.max(1)).clamp(1, 30) as u64;
            let taken = self.taken();
            let message = format!("the queue is full ({taken} of {} answers): try again in {seconds} s", self.all);
            ApiError::too_many(message, seconds)
        })
    }
}

/// Counts the requests that are being answered. A drain ends when there are none.
#[derive(Clone)]
pub struct Busy(watch::Sender<usize>);

impl Default for Busy {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Busy {
    /// Counts one more request, until the guard is dropped.
    pub fn enter(&self) -> BusyGuard {
        self.0.send_modify(|count| *count += 1);
        BusyGuard(self.clone())
    }

    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Returns when no request is being answered.
    pub async fn idle(&self) {
        // The sender is in `self`: waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// Counts as busy until it is dropped.
pub struct BusyGuard(Busy);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_whole_and_refused_with_a_time() {
        let places = Places::new(4);
        let three = places.take(3, 1).unwrap();
        let refused = places.take(2, 1).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (429, Some(3)));
        assert_eq!(places.taken(), 3);
        drop(three);
        assert!(places.take(4, 1).is_ok());
        assert_eq!(places.take(5, 1).unwrap_err().status.as_u16(), 400);
    }
}
