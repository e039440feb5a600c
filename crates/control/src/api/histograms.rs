//! What is counted of every fragment of some sources, as the configuration asks for.

use super::Shared;
use crate::api_types::{Histogram, histograms};
use axum::extract::{Query, State as Of};
use axum::routing::get;
use axum::{Json, Router};
use ropewalk_terms::SourceId;
use serde::Deserialize;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(all))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/histograms", get(all))
}

#[derive(Deserialize)]
struct Wanted {
    name: Option<String>,
    source: Option<u32>,
}

/// The histograms of sources that the configuration asks for, as they are filled in the present run, renewed once a second.
#[utoipa::path(
    get,
    path = "/api/v1/histograms",
    params(
        ("name" = Option<String>, Query, description = "the one of this name"),
        ("source" = Option<u32>, Query, description = "those that this source has, and of them its own alone"),
    ),
    responses((status = 200, body = [Histogram]))
)]
async fn all(Of(shared): Of<Shared>, Query(wanted): Query<Wanted>) -> Json<Vec<Histogram>> {
    Json(histograms(&shared.control.view(), wanted.name.as_deref(), wanted.source.map(SourceId)))
}
