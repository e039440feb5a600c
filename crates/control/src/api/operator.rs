//! Who holds the controls: one operator at a time, or nobody.

use super::{Shared, answer, problem, shown};
use crate::api_types::{Holder, Operator, Problem};
use axum::extract::{Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ropewalk_node::session::ControlsRequest;
use serde::Deserialize;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(operator, take, give))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/operator", get(operator))
        .route("/operator/take", post(take))
        .route("/operator/give", post(give))
}

/// Who holds the controls.
#[utoipa::path(get, path = "/api/v1/operator", responses((status = 200, body = Operator)))]
async fn operator(Of(shared): Of<Shared>) -> Json<Operator> {
    Json(Operator { operator: shared.control.view().operator.as_ref().map(Holder::of) })
}

#[derive(Deserialize)]
struct Taking {
    by: String,
    #[serde(default)]
    force: bool,
}

/// Takes the controls: from now on commands of others are not heard. Whoever holds them already gives a sign of life.
#[utoipa::path(
    post,
    path = "/api/v1/operator/take",
    params(
        ("by" = String, Query, description = "who takes them"),
        ("force" = Option<bool>, Query, description = "true: also from whoever holds them"),
    ),
    responses(
        (status = 200, body = Operator),
        (status = 400, body = Problem, description = "nobody is named"),
        (status = 409, body = Problem, description = "another operator holds the controls"),
        (status = 410, body = Problem, description = "run control has ended"),
    )
)]
async fn take(Of(shared): Of<Shared>, Query(Taking { by, force }): Query<Taking>) -> Response {
    ask(&shared, &by, ControlsRequest::Take { is_forced: force }).await
}

#[derive(Deserialize)]
struct Giving {
    by: String,
    to: Option<String>,
}

/// Gives the controls to somebody, or up: then everybody's commands are heard.
#[utoipa::path(
    post,
    path = "/api/v1/operator/give",
    params(
        ("by" = String, Query, description = "who holds them"),
        ("to" = Option<String>, Query, description = "who is to hold them; nobody where it is left out"),
    ),
    responses(
        (status = 200, body = Operator),
        (status = 400, body = Problem, description = "somebody without a name"),
        (status = 409, body = Problem, description = "whoever asks does not hold the controls"),
        (status = 410, body = Problem, description = "run control has ended"),
    )
)]
async fn give(Of(shared): Of<Shared>, Query(Giving { by, to }): Query<Giving>) -> Response {
    let to = to.map(|to| shown(&to));
    if to.as_ref().is_some_and(String::is_empty) {
        return problem(StatusCode::BAD_REQUEST, "`to` is empty: name somebody, or leave it out");
    }
    ask(&shared, &by, ControlsRequest::Give { to }).await
}

async fn ask(shared: &Shared, by: &str, request: ControlsRequest) -> Response {
    let by = shown(by);
    if by.is_empty() {
        return problem(StatusCode::BAD_REQUEST, "`by` is empty: say who you are");
    }
    let told = answer(|reply| shared.control.controls(request, &by, reply)).await;
    match told.map(|told| (told.refusal, told.holder)) {
        Some((None, holder)) => Json(Operator { operator: holder.as_ref().map(Holder::of) }).into_response(),
        Some((Some(why), _)) => problem(StatusCode::CONFLICT, why),
        None => problem(StatusCode::GONE, "run control has ended"),
    }
}
