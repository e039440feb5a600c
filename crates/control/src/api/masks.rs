//! Sources that operators take out of runs, and in again.

use super::{Manner, Shared, answer, refused};
use crate::api_types::{Mask, Masking, Problem, Restarted, Restarting, masks};
use crate::bodies::Said;
use axum::extract::{Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ropewalk_node::session::{MaskRequest, RequestRefusal, RestartOutcome};
use ropewalk_terms::SourceId;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(all, mask, restart))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/masks", get(all).post(mask)).route("/masks/restart", post(restart))
}

/// Sources that are masked, or were in this run, and from which event to which.
#[utoipa::path(get, path = "/api/v1/masks", responses((status = 200, body = [Mask])))]
async fn all(Of(shared): Of<Shared>) -> Json<Vec<Mask>> {
    Json(masks(&shared.control.view()))
}

/// Masks sources, or takes them in again: in the run that goes on, from an event on that their readout unit chooses and reports, and in
/// those that follow. All of it is done, or nothing.
#[utoipa::path(
    post,
    path = "/api/v1/masks",
    params(("by" = Option<String>, Query, description = "in whose name")),
    request_body = Masking,
    responses(
        (status = 200, body = [Mask], description = "the run has been told; what has come of it is seen a moment later"),
        (status = 400, body = Problem, description = "not that form"),
        (status = 404, body = Problem, description = "there is no such source"),
        (status = 409, body = Problem, description = "it cannot be had, or another operator holds the controls"),
        (status = 410, body = Problem, description = "run control has ended"),
    )
)]
async fn mask(Of(shared): Of<Shared>, Query(manner): Query<Manner>, Said(masking): Said<Masking>) -> Response {
    let by = manner.by();
    let sources = masking.sources.into_iter().map(SourceId).collect();
    let request = MaskRequest { sources, is_masked: masking.is_masked };
    let told = answer(|reply| shared.control.mask(request, &by, reply)).await;
    match told.unwrap_or(Err(RequestRefusal::Over)) {
        Ok(()) => Json(masks(&shared.control.view())).into_response(),
        Err(refusal) => refused(refusal),
    }
}

/// Takes sources out of the run that goes on and, as soon as their readout units have said from which event on they are out, in again: they
/// take part from the first fragment on that goes on with the run's numbers. Answered then, or when the readout units take too long.
#[utoipa::path(
    post,
    path = "/api/v1/masks/restart",
    params(("by" = Option<String>, Query, description = "in whose name")),
    request_body = Restarting,
    responses(
        (status = 200, body = Restarted),
        (status = 400, body = Problem, description = "not that form"),
        (status = 404, body = Problem, description = "there is no such source"),
        (status = 409, body = Problem, description = "no run goes on, it cannot be had, or another operator holds the controls"),
        (status = 410, body = Problem, description = "run control has ended"),
        (status = 500, body = Restarted, description = "it is not known of every source from which event on it was out"),
    )
)]
async fn restart(Of(shared): Of<Shared>, Query(manner): Query<Manner>, Said(restarting): Said<Restarting>) -> Response {
    let by = manner.by();
    let sources = restarting.sources.into_iter().map(SourceId).collect();
    let told = answer(|reply| shared.control.restart(sources, &by, reply)).await;
    match told.unwrap_or(Err(RequestRefusal::Over)) {
        Ok(told) => {
            let is_done = told.outcome == RestartOutcome::Done;
            let status = if is_done { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
            (status, Json(Restarted::of(&told))).into_response()
        }
        Err(refusal) => refused(refusal),
    }
}
