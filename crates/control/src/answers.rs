//! How much memory answers may hold until somebody has taken them: who asks for the largest there are and reads none of them takes what
//! is meant for that, and no more.

use crate::forms::Problem;
use axum::Json;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of an answer that is given in any case. Answers to commands are shorter.
const SMALL: usize = 64 << 10;
/// Bytes of all longer ones together.
const TOGETHER: u32 = 128 << 20;

/// What longer answers may hold together.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    most: u32,
    free: Arc<Semaphore>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self::of(TOGETHER)
    }

    fn of(most: u32) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most as usize)) }
    }
}

/// An answer, with its part of the memory until the last byte of it is gone.
struct Held {
    bytes: Bytes,
    _part: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Lets an answer go where there is memory for it. Streams have no length, and share what they send.
pub(crate) async fn hold(State(memory): State<Memory>, response: Response) -> Response {
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    if bytes <= SMALL as u64 {
        return response;
    }
    // One that is longer than all of it has it alone.
    let part = u32::try_from(bytes).unwrap_or(u32::MAX).min(memory.most);
    let Ok(part) = memory.free.try_acquire_many_owned(part) else {
        let error = "too many long answers wait for those who asked to read them; ask again in a moment".to_owned();
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
            let memory = Memory::of(300_000);
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
