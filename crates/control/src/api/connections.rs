//! What became of connections.

use super::Shared;
use crate::accept_loop::Connections;
use axum::extract::State as Of;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(connections))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/connections", get(connections))
}

/// How many connections there are, and what became of those that were made.
#[utoipa::path(get, path = "/api/v1/connections", responses((status = 200, body = Connections)))]
async fn connections(Of(shared): Of<Shared>) -> Json<Connections> {
    Json(shared.accept_loop.connections())
}
