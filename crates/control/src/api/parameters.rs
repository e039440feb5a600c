//! Parameters that may be changed while a run goes on.

use super::{Manner, Shared, answer, refused};
use crate::api_types::{Parameter, Problem, parameters};
use crate::bodies::Said;
use axum::extract::{Query, State as Of};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ropewalk_node::session::{ParameterRequest, RequestRefusal};
use std::collections::BTreeMap;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(all, change))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/parameters", get(all).patch(change))
}

/// What can be changed while a run goes on, and how it is now.
#[utoipa::path(get, path = "/api/v1/parameters", responses((status = 200, body = [Parameter])))]
async fn all(Of(shared): Of<Shared>) -> Json<Vec<Parameter>> {
    Json(parameters(&shared.control.view()))
}

/// Changes parameters: of the run that goes on, and of those that follow. All of them are changed, or none.
#[utoipa::path(
    patch,
    path = "/api/v1/parameters",
    params(("by" = Option<String>, Query, description = "in whose name")),
    request_body(content = BTreeMap<String, String>, description = "names and values, as in a configuration"),
    responses(
        (status = 200, body = [Parameter]),
        (status = 400, body = Problem, description = "not that form"),
        (status = 404, body = Problem, description = "no parameter of this name can be changed"),
        (status = 409, body = Problem, description = "it does not fit, or another operator holds the controls"),
        (status = 410, body = Problem, description = "run control has ended"),
    )
)]
async fn change(
    Of(shared): Of<Shared>,
    Query(manner): Query<Manner>,
    Said(changes): Said<BTreeMap<String, String>>,
) -> Response {
    let by = manner.by();
    let request = ParameterRequest { changes: changes.into_iter().collect() };
    let told = answer(|reply| shared.control.change(request, &by, reply)).await;
    match told.unwrap_or(Err(RequestRefusal::Over)) {
        Ok(()) => Json(parameters(&shared.control.view())).into_response(),
        Err(refusal) => refused(refusal),
    }
}
