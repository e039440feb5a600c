//! What limits the run, and what is wrong with it.

use super::{Manner, Shared, problem, shown};
use crate::api_types::{Alarm, Limited, Problem};
use crate::notify::Told;
use axum::extract::{Path, Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ropewalk_monitor::alarms::AlarmError;
use serde::Deserialize;
use std::time::Duration;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(limit, alarms, told, acknowledge, shelve))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/limit", get(limit))
        .route("/alarms", get(alarms))
        .route("/alarms/told", get(told))
        .route("/alarms/{name}/acknowledge", post(acknowledge))
        .route("/alarms/{name}/shelve", post(shelve))
}

/// What limits the run; null where that is not known yet.
#[utoipa::path(get, path = "/api/v1/limit", responses((status = 200, body = Option<Limited>)))]
async fn limit(Of(shared): Of<Shared>) -> Json<Option<Limited>> {
    Json(shared.health.limit())
}

/// All alarms, raised or not.
#[utoipa::path(get, path = "/api/v1/alarms", responses((status = 200, body = [Alarm])))]
async fn alarms(Of(shared): Of<Shared>) -> Json<Vec<Alarm>> {
    Json(shared.health.alarms())
}

/// What became of messages to the command and the webhook of `[alarms]`; null where nobody is to hear of them.
#[utoipa::path(get, path = "/api/v1/alarms/told", responses((status = 200, body = Option<Told>)))]
async fn told(Of(shared): Of<Shared>) -> Json<Option<Told>> {
    Json(shared.health.told())
}

/// Somebody knows of an alarm that is raised.
#[utoipa::path(
    post,
    path = "/api/v1/alarms/{name}/acknowledge",
    params(("name" = String, Path), ("by" = Option<String>, Query, description = "who knows")),
    responses(
        (status = 200, body = [Alarm]),
        (status = 404, body = Problem, description = "there is no such alarm"),
        (status = 409, body = Problem, description = "it is not raised"),
    )
)]
async fn acknowledge(Of(shared): Of<Shared>, Path(name): Path<String>, Query(manner): Query<Manner>) -> Response {
    let by = manner.by();
    after_alarm(&shared, shared.health.acknowledge(&name, &by), &by, || format!("alarm {name}: {by} knows"))
}

#[derive(Deserialize)]
struct Shelf {
    seconds: u64,
    by: Option<String>,
}

/// Seconds for which an alarm is shelved at most: a day.
const LONGEST_SHELF: u64 = 24 * 3600;

/// An alarm is not shown for so many seconds, a day at most.
#[utoipa::path(
    post,
    path = "/api/v1/alarms/{name}/shelve",
    params(
        ("name" = String, Path),
        ("seconds" = u64, Query, description = "a day at most; 0 shows it again"),
        ("by" = Option<String>, Query, description = "who wants it")
    ),
    responses(
        (status = 200, body = [Alarm]),
        (status = 400, body = Problem, description = "no number of seconds"),
        (status = 404, body = Problem, description = "there is no such alarm"),
    )
)]
async fn shelve(Of(shared): Of<Shared>, Path(name): Path<String>, Query(shelf): Query<Shelf>) -> Response {
    let time = Duration::from_secs(shelf.seconds.min(LONGEST_SHELF));
    let by = shown(shelf.by.as_deref().unwrap_or("somebody"));
    let said = || format!("alarm {name}: {by} shelves it for {} s", time.as_secs());
    after_alarm(&shared, shared.health.shelve(&name, time, &by), &by, said)
}

/// Who silences an alarm stands in the journal.
fn after_alarm(shared: &Shared, done: Result<(), AlarmError>, by: &str, said: impl FnOnce() -> String) -> Response {
    match done {
        Ok(()) => {
            shared.control.remark(by, said());
            Json(shared.health.alarms()).into_response()
        }
        Err(error @ AlarmError::Unknown { .. }) => problem(StatusCode::NOT_FOUND, error.to_string()),
        Err(error) => problem(StatusCode::CONFLICT, error.to_string()),
    }
}
