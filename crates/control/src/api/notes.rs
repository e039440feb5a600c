//! The logbook: what people say of a run, and what the program noted itself.

use super::{Commander, Manner, Shared, on_disk};
use crate::api_types::Problem;
use crate::notify::Told;
use axum::Json;
use axum::extract::{Path, Query, State as Of};
use axum::response::{IntoResponse, Response};
use ropewalk_run::Registry;
use std::io::{self, ErrorKind};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(notes, note)).routes(routes!(told))
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
async fn notes(Of(shared): Of<Shared>, Path(run): Path<u32>) -> Result<impl IntoResponse, Response> {
    on_disk("the logbook", move || {
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
    Commander(shared): Commander,
    Path(run): Path<u32>,
    Query(manner): Query<Manner>,
    text: String,
) -> Result<impl IntoResponse, Response> {
    on_disk("the logbook", move || {
        expect_run(&shared, run)?;
        let note = shared.logbook.note(shared.control.view().at, run, &manner.by(), &text)?;
        shared.control.note(run, &note.by, &note.text);
        Ok(note)
    })
    .await
}

/// Counts the entries sent to the command and the webhook of `[logbook]`; null if neither is configured.
#[utoipa::path(get, path = "/api/v1/logbook/told", responses((status = 200, body = Option<Told>)))]
async fn told(Of(shared): Of<Shared>) -> Json<Option<Told>> {
    Json(shared.logbook.told())
}
