//! Bodies of requests: all of one is there before anybody looks at it, so that no handler waits for who sends it.

use crate::api_types::Problem;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of a request's body.
pub(crate) const BODY_BYTES: usize = 64 << 10;

/// What a request's body says, as JSON. One that is not of this form is told so (400).
pub(crate) struct Said<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Said<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::from_request(request, state).await {
            Ok(Json(said)) => Ok(Self(said)),
            Err(error) => Err((StatusCode::BAD_REQUEST, Json(Problem { error: error.body_text() })).into_response()),
        }
    }
}

/// Has longer bodies refused, and those that have not come after so long a time.
pub(crate) fn bounded(app: Router, patience: Duration) -> Router {
    app.layer(from_fn_with_state(patience, whole)).layer(DefaultBodyLimit::max(BODY_BYTES))
}

/// Waits until all of a body is there.
async fn whole(State(patience): State<Duration>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let reading = Bytes::from_request(Request::from_parts(parts.clone(), body), &());
    let (status, error) = match timeout(patience, reading).await {
        Ok(Ok(bytes)) => return next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            (error.status(), format!("a request's body has {BODY_BYTES} bytes at most"))
        }
        Ok(Err(error)) => (error.status(), error.body_text()),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, format!("the request's body did not come within {patience:?}")),
    };
    // What is left of the body would be taken for the next request.
    (status, [(header::CONNECTION, "close")], Json(Problem { error })).into_response()
}
