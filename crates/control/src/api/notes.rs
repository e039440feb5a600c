//! The logbook: what people say of a run, and what the program noted itself.

use super::{Manner, Shared, problem, shown};
use crate::api_types::Problem;
use crate::notify::Told;
use axum::extract::rejection::{PathRejection, QueryRejection, StringRejection};
use axum::extract::{Path, Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ropewalk_run::Registry;
use serde::Serialize;
use std::io::{self, ErrorKind};
use utoipa::{OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(notes, note, told), components(schemas(Note)))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/runs/{run}/notes", get(notes).post(note)).route("/logbook/told", get(told))
}

/// An entry of the logbook.
#[derive(ToSchema)]
#[expect(dead_code, reason = "what the document says of `ropewalk_run::Note`")]
pub(super) struct Note {
    /// Its time, in nanoseconds since 1970 UTC.
    at_ns: i64,
    /// The run; null outside of runs.
    run: Option<u32>,
    /// `note`, written by an operator; `state`, `command`, `fault`, `incident`, written by the program.
    kind: String,
    /// The author.
    by: String,
    /// The text.
    text: String,
}

/// Checks that a run exists.
fn expect_run(shared: &Shared, run: u32) -> io::Result<()> {
    let runs = Registry::open(&shared.output)?.runs()?;
    if runs.iter().any(|known| known.run.0 == run) {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::NotFound, format!("there is no run {run}")))
}

/// Works on the logbook on a blocking thread, so that no other request waits for the disk, and returns the response.
async fn answer<T: Serialize + Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Json(done).into_response(),
        Ok(Err(error)) => match error.kind() {
            ErrorKind::InvalidInput => problem(StatusCode::BAD_REQUEST, error.to_string()),
            ErrorKind::NotFound => problem(StatusCode::NOT_FOUND, error.to_string()),
            _ => problem(StatusCode::INTERNAL_SERVER_ERROR, format!("the logbook: {error}")),
        },
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Returns the logbook entries of a run, oldest first.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/notes",
    params(("run" = u32, Path, description = "its number")),
    responses(
        (status = 200, body = [Note]),
        (status = 404, body = Problem, description = "there is no such run"),
        (status = 500, body = Problem)
    )
)]
async fn notes(Of(shared): Of<Shared>, Path(run): Path<u32>) -> Response {
    answer(move || {
        let notes = shared.logbook.notes_of(run)?;
        // The logbook still has entries of runs whose directory was removed.
        if notes.is_empty() {
            expect_run(&shared, run)?;
        }
        Ok(notes)
    })
    .await
}

/// Adds a note to a run. The entry is on disk before the response is sent.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{run}/notes",
    params(
        ("run" = u32, Path, description = "its number"),
        ("by" = Option<String>, Query, description = "name of the operator"),
    ),
    request_body(content = String, description = "the text, 1 B to 16 KiB, without control characters but line breaks and tabs", content_type = "text/plain"),
    responses(
        (status = 200, body = Note),
        (status = 400, body = Problem, description = "the text is empty, too long or contains control characters, or the run is not a number"),
        (status = 404, body = Problem, description = "there is no such run"),
        (status = 500, body = Problem)
    )
)]
async fn note(
    Of(shared): Of<Shared>,
    run: Result<Path<u32>, PathRejection>,
    manner: Result<Query<Manner>, QueryRejection>,
    text: Result<String, StringRejection>,
) -> Response {
    let Ok(Path(run)) = run else { return problem(StatusCode::BAD_REQUEST, "a run has a number") };
    let Ok(text) = text else { return problem(StatusCode::BAD_REQUEST, "a note is text in UTF-8, 64 KiB at most") };
    let by = manner.map_or(None, |Query(manner)| manner.by);
    let by = shown(by.as_deref().unwrap_or("somebody"));
    answer(move || {
        expect_run(&shared, run)?;
        shared.logbook.note(shared.control.view().at, run, &by, &text)
    })
    .await
}

/// Counts the entries sent to the command and the webhook of `[logbook]`; null if neither is configured.
#[utoipa::path(get, path = "/api/v1/logbook/told", responses((status = 200, body = Option<Told>)))]
async fn told(Of(shared): Of<Shared>) -> Json<Option<Told>> {
    Json(shared.logbook.told())
}
