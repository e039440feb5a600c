//! How it went.

use super::Shared;
use crate::api_types::History;
use axum::extract::{Query, State as Of};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(history))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/history", get(history))
}

#[derive(Deserialize)]
struct Part {
    since: Option<i64>,
    step: Option<u32>,
}

/// How it went: rates, occupancies and live time, ready for a plot.
#[utoipa::path(
    get,
    path = "/api/v1/history",
    params(
        ("since" = Option<i64>, Query, description = "from this second of 1970-01-01T00:00:00Z on; without it, all that is kept"),
        ("step" = Option<u32>, Query, description = "seconds from one time to the next: below 60 for the last hour, otherwise whole minutes for the last seven days; 1 without it"),
    ),
    responses((status = 200, body = History))
)]
async fn history(Of(shared): Of<Shared>, Query(part): Query<Part>) -> Json<History> {
    Json(History::of(shared.health.history(part.since.unwrap_or(i64::MIN), part.step.unwrap_or(1))))
}
