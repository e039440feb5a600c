//! What went wrong.

use super::{Shared, problem};
use crate::api_types::{Incidents, Problem};
use axum::extract::{Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(incidents))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/incidents", get(incidents))
}

/// Incidents in one answer.
const MOST: usize = 500;
/// Bytes of words that are searched for: everybody waits meanwhile, alarms too.
const MOST_WORDS: usize = 256;

#[derive(Deserialize)]
struct Wanted {
    search: Option<String>,
    limit: Option<usize>,
}

/// What went wrong since the program began, once for each cause and subject, the latest first.
#[utoipa::path(
    get,
    path = "/api/v1/incidents",
    params(
        ("search" = Option<String>, Query, description = "words that all have to stand in it, in whatever field and case, 256 bytes at most"),
        ("limit" = Option<usize>, Query, description = "at most so many, 500 at most"),
    ),
    responses((status = 200, body = Incidents), (status = 400, body = Problem, description = "too many words, or no number"))
)]
async fn incidents(Of(shared): Of<Shared>, Query(wanted): Query<Wanted>) -> Response {
    let (words, most) = (wanted.search.unwrap_or_default(), wanted.limit.unwrap_or(MOST).min(MOST));
    if words.len() > MOST_WORDS {
        return problem(StatusCode::BAD_REQUEST, format!("{MOST_WORDS} bytes at most can be searched for"));
    }
    Json(shared.health.incidents(&words, most)).into_response()
}
