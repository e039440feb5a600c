//! How long things take, and how large they are.

use super::Shared;
use crate::api_types::{Measured, measures};
use axum::extract::State as Of;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(all))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/measures", get(all))
}

/// How sizes and times of the present run are distributed: of all nodes, then of each.
#[utoipa::path(get, path = "/api/v1/measures", responses((status = 200, body = [Measured])))]
async fn all(Of(shared): Of<Shared>) -> Json<Vec<Measured>> {
    Json(measures(&shared.control.view().sample))
}
