//! Files that runs have left on the disks.

use super::{Shared, problem};
use crate::api_types::Problem;
use axum::extract::{Path, Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ropewalk_node::run::{FileName, MOST_FILES, Registry, StoredFiles};
use ropewalk_node::session::{OperationState, SessionView};
use ropewalk_terms::RunNumber;
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::path::Path as Directory;
use utoipa::{OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(present, of_run), components(schemas(RunFiles, RunFile, RunFileState)))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/files", get(present)).route("/runs/{run}/files", get(of_run))
}

/// Files that are told of where nobody says how many.
const FILES: usize = 50;

/// How far a file is: `open` (being written, or left behind by a process that was killed), `closed`, `transferred` (its checksum was
/// confirmed where it was taken to), `set_aside` (filter units that work on files ended over it).
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "what the document says of `ropewalk_node::run::FileState`")]
enum RunFileState {
    Open,
    Closed,
    Transferred,
    SetAside,
}

/// A file of a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "what the document says of `ropewalk_node::run::StoredFile`")]
struct RunFile {
    /// Where it is, from the output directory on; the whole path where it is on another disk.
    path: String,
    /// Who wrote it: `bu0` is builder unit 0; null where nobody knows.
    writer: Option<String>,
    /// Of which stream; null where the run is not divided into streams.
    stream: Option<String>,
    /// Of which lumisection, from 1; null where one file has events of several.
    lumisection: Option<u32>,
    /// How long it is.
    bytes: u64,
    /// Events in it; null while it is open, and where its end says nothing of them.
    events: Option<u64>,
    /// How far it is.
    state: RunFileState,
}

/// Files of a run, the newest first.
#[derive(ToSchema)]
#[expect(dead_code, reason = "what the document says of `ropewalk_node::run::StoredFiles`")]
struct RunFiles {
    /// Of which run; null where there is none.
    run: Option<u32>,
    /// It has its account: it has ended in order.
    has_account: bool,
    /// How many files of it there are, whether they are among these or not.
    found: u64,
    /// Files, the newest first.
    files: Vec<RunFile>,
    /// Files that were deleted to stay within `keep`, as the account says; null without one.
    #[schema(value_type = Option<Object>)]
    deleted: (),
    /// What became of files that are taken away, as the account says; null without one, and where none are.
    #[schema(value_type = Option<Object>)]
    transfer: (),
}

#[derive(Deserialize)]
struct Page {
    before: Option<String>,
    limit: Option<usize>,
}

/// The files of the run that goes on, or of the last one, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/files",
    params(
        ("before" = Option<String>, Query, description = "files that are older than the one with this path, which need not be there any more"),
        ("limit" = Option<usize>, Query, description = "at most so many; 50 by itself, 500 at most"),
    ),
    responses((status = 200, body = RunFiles), (status = 400, body = Problem), (status = 500, body = Problem))
)]
async fn present(Of(shared): Of<Shared>, Query(page): Query<Page>) -> Response {
    let view = shared.control.view();
    list(page, move |before, limit| match present_run(&shared.output, &view)? {
        Some(run) => StoredFiles::of_run(&shared.output, run, before, limit),
        None => Ok(StoredFiles::none()),
    })
    .await
}

/// The files of a run, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/files",
    params(
        ("run" = u32, Path, description = "its number"),
        ("before" = Option<String>, Query, description = "files that are older than the one with this path, which need not be there any more"),
        ("limit" = Option<usize>, Query, description = "at most so many; 50 by itself, 500 at most"),
    ),
    responses(
        (status = 200, body = RunFiles),
        (status = 400, body = Problem),
        (status = 404, body = Problem, description = "there is no such run"),
        (status = 500, body = Problem)
    )
)]
async fn of_run(Of(shared): Of<Shared>, Path(run): Path<u32>, Query(page): Query<Page>) -> Response {
    list(page, move |before, limit| StoredFiles::of_run(&shared.output, RunNumber(run), before, limit)).await
}

/// The run that goes on; of those that do not the last one. One that is only set up has no files.
fn present_run(output: &Directory, view: &SessionView) -> io::Result<Option<RunNumber>> {
    let has_begun = !matches!(view.state, OperationState::Initial | OperationState::Configured);
    if let Some(run) = view.run.filter(|_| has_begun) {
        return Ok(Some(run));
    }
    if let Some(account) = &view.last {
        return Ok(Some(RunNumber(account.run)));
    }
    let runs = Registry::open(output)?.runs()?;
    Ok(runs.iter().rev().map(|known| known.run).find(|&run| Some(run) != view.run))
}

/// Lists files where waiting for a disk holds nobody up.
async fn list(
    page: Page,
    list: impl FnOnce(Option<&FileName>, usize) -> io::Result<StoredFiles> + Send + 'static,
) -> Response {
    let before = match page.before.map(|before| before.parse::<FileName>()).transpose() {
        Ok(before) => before,
        Err(error) => return problem(StatusCode::BAD_REQUEST, format!("before: {error}")),
    };
    let limit = page.limit.unwrap_or(FILES).min(MOST_FILES);
    match tokio::task::spawn_blocking(move || list(before.as_ref(), limit)).await {
        Ok(Ok(files)) => Json(files).into_response(),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => problem(StatusCode::NOT_FOUND, error.to_string()),
        Ok(Err(error)) => problem(StatusCode::INTERNAL_SERVER_ERROR, format!("the output directory: {error}")),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
