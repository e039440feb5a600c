//! The run of the past that the present one is compared with.

use super::{Manner, Shared, problem};
use crate::api_types::{Problem, Reference};
use crate::bodies::Said;
use crate::run_trends::NoRunTrend;
use axum::extract::{Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use utoipa::{OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(reference, choose))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/reference", get(reference).post(choose))
}

/// Which run is compared with.
#[derive(Deserialize, ToSchema)]
struct Choice {
    /// Its number; null: none.
    run: Option<u32>,
}

/// The run that the present one is compared with, by its age.
#[utoipa::path(get, path = "/api/v1/reference", responses((status = 200, body = Reference)))]
async fn reference(Of(shared): Of<Shared>) -> Json<Reference> {
    Json(Reference::of(shared.health.reference().as_deref()))
}

/// Compares with this run from now on, or with none: on the dashboard's plots, and where alarms look at `reference:`.
#[utoipa::path(
    post,
    path = "/api/v1/reference",
    params(("by" = Option<String>, Query, description = "in whose name")),
    request_body = Choice,
    responses(
        (status = 200, body = Reference),
        (status = 400, body = Problem, description = "not that form"),
        (status = 404, body = Problem, description = "that run has no trend; which have one"),
        (status = 500, body = Problem, description = "its trend cannot be read"),
    )
)]
async fn choose(Of(shared): Of<Shared>, Query(manner): Query<Manner>, Said(Choice { run }): Said<Choice>) -> Response {
    let by = manner.by();
    let health = std::sync::Arc::clone(&shared.health);
    // A disk may take its time.
    let chosen = tokio::task::spawn_blocking(move || health.compare_with(run)).await;
    match chosen {
        Ok(Ok(trend)) => {
            let text = trend
                .as_ref()
                .map_or_else(|| "compares with no run".to_owned(), |trend| format!("compares with run {}", trend.run));
            shared.control.remark(&by, format!("{by} {text}"));
            Json(Reference::of(trend.as_deref())).into_response()
        }
        Ok(Err(error @ NoRunTrend::Missing { .. })) => problem(StatusCode::NOT_FOUND, error.to_string()),
        Ok(Err(error)) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
