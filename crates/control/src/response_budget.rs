//! Limits the memory of responses that clients have not read yet.

use crate::api_types::Problem;
use axum::Json;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Responses up to this size, in bytes, are always sent. Responses to commands are smaller.
const SMALL: usize = 64 << 10;
/// Memory of all larger responses together, in bytes.
const TOGETHER: u32 = 128 << 20;

/// The memory that larger responses share.
#[derive(Clone, Debug)]
pub(crate) struct ResponseBudget {
    most: u32,
    free: Arc<Semaphore>,
}

impl ResponseBudget {
    pub(crate) fn new() -> Self {
        Self::of(TOGETHER)
    }

    fn of(most: u32) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most as usize)) }
    }
}

/// A response that holds its part of the memory until its last byte is sent.
struct Held {
    bytes: Bytes,
    _part: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Sends a response if there is memory for it. Streams have no length, and share what they send.
pub(crate) async fn hold(State(memory): State<ResponseBudget>, response: Response) -> Response {
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    if bytes <= SMALL as u64 {
        return response;
    }
    // A response that is larger than the budget takes all of it.
    let part = u32::try_from(bytes).unwrap_or(u32::MAX).min(memory.most);
    let Ok(part) = memory.free.try_acquire_many_owned(part) else {
        let error = "too many large responses have not been read yet: try again later".to_owned();
        return (StatusCode::SERVICE_UNAVAILABLE, Json(Problem { error })).into_response();
    };
    let (head, body) = response.into_parts();
    // It is there as a whole: its length is known.
    match to_bytes(body, usize::MAX).await {
        Ok(bytes) => Response::from_parts(head, Body::from(Bytes::from_owner(Held { bytes, _part: part }))),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, Json(Problem { error: error.to_string() })).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_is_bounded_and_small_answers_are_always_given() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let memory = ResponseBudget::of(300_000);
            let give = async |bytes: usize| hold(State(memory.clone()), vec![7_u8; bytes].into_response()).await;
            let first = give(200_000).await;
            assert_eq!(first.status(), 200);
            assert_eq!(give(200_000).await.status(), 503);
            assert_eq!(give(SMALL).await.status(), 200);
            // It is counted until its bytes are gone, not until somebody has them.
            let bytes = to_bytes(first.into_body(), usize::MAX).await.expect("it is there");
            assert_eq!((bytes.len(), give(200_000).await.status().as_u16()), (200_000, 503));
            drop(bytes);
            assert_eq!(give(200_000).await.status(), 200);
            // The longest is given to whoever asks alone.
            let longest = give(1_000_000).await;
            assert_eq!((longest.status().as_u16(), give(100_000).await.status().as_u16()), (200, 503));
        });
    }
}
