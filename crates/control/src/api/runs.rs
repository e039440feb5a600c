//! Runs that there are in the output directory, files that they have left on the disks, and the run that the present one is compared
//! with.

use std::io;
use std::path::Path as Directory;

use axum::Json;
use axum::extract::{Path, Query, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ropewalk_run::session::{OperationState, SessionView};
use ropewalk_run::{ACCOUNT, FileName, MOST_FILES, Note, Registry, RunRecord, StoredFiles};
use ropewalk_terms::RunNumber;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Commander, Manner, Shared, blocking, on_disk, problem};
use crate::api_types::{Problem, Reference};
use crate::request_limits::Said;
use crate::run_trends::NoRunTrend;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(runs))
        .routes(routes!(run))
        .routes(routes!(present))
        .routes(routes!(of_run))
        .routes(routes!(reference, choose))
}

/// Runs in one answer.
const MOST_RUNS: usize = 500;

/// Bytes of an account that is read.
const ACCOUNT_BYTES: u64 = 64 << 20;

/// A run in the output directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct KnownRun {
    /// Its number.
    run: u32,
    /// Its directory.
    directory: String,
    /// Whether it has its account: it has ended in order.
    has_account: bool,
    /// Start time, in nanoseconds since 1970 UTC; `null` without an account.
    started_ns: Option<i64>,
    /// Events written; `null` without an account.
    written: Option<u64>,
    /// Events that were emitted without some of their fragments; `null` without an account.
    incomplete: Option<u64>,
    /// Fragments that arrived and were lost; `null` without an account.
    lost: Option<u64>,
    /// The operators' notes on it, the oldest first, from the last mebibyte of the logbook.
    #[schema(value_type = Vec<super::notes::Note>)]
    notes: Vec<Note>,
}

#[derive(Deserialize)]
struct RunPage {
    before: Option<u32>,
    limit: Option<usize>,
}

/// The runs that there are, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/runs",
    params(
        ("before" = Option<u32>, Query, description = "runs before this one"),
        ("limit" = Option<usize>, Query, description = "at most so many, 500 at most"),
    ),
    responses((status = 200, body = [KnownRun]), (status = 500, body = Problem))
)]
async fn runs(Of(shared): Of<Shared>, Query(page): Query<RunPage>) -> Result<impl IntoResponse, Response> {
    on_disk("the output directory", move || {
        let runs = Registry::open(&shared.output)?.runs()?;
        let mut said = shared.logbook.newest_said()?;
        let meant = runs.into_iter().rev().filter(|run| page.before.is_none_or(|before| run.run.0 < before));
        let known = meant.take(page.limit.unwrap_or(50).min(MOST_RUNS)).map(|run| {
            // An account that cannot be read does not hide the other runs.
            let record = RunRecord::read(&run).ok().filter(|record| record.has_account);
            let record = record.as_ref();
            KnownRun {
                run: run.run.0,
                has_account: run.path.join(ACCOUNT).is_file(),
                started_ns: record.and_then(|record| record.started_ns),
                written: record.and_then(|record| record.written),
                incomplete: record.and_then(|record| record.incomplete),
                lost: record.map(|record| record.lost.values().sum()),
                notes: said.remove(&run.run.0).unwrap_or_default(),
                directory: run.path.display().to_string(),
            }
        });
        Ok(known.collect::<Vec<_>>())
    })
    .await
}

/// The account of a run: its `run.json`.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}",
    params(("run" = u32, Path, description = "its number")),
    responses(
        (status = 200, description = "docs/schema/run.json", content_type = "application/json"),
        (status = 404, body = Problem)
    )
)]
async fn run(Of(shared): Of<Shared>, Path(number): Path<u32>) -> Result<impl IntoResponse, Response> {
    let name = ropewalk_run::directory_name(RunNumber(number));
    let path = shared.output.join(name).join(ACCOUNT);
    let read = move || {
        if std::fs::metadata(&path)?.len() > ACCOUNT_BYTES {
            return Err(std::io::Error::other("it is no account: it is too long"));
        }
        std::fs::read(path)
    };
    match blocking(read).await? {
        Ok(bytes) => Ok(([(header::CONTENT_TYPE, "application/json")], bytes)),
        Err(error) => Err(problem(StatusCode::NOT_FOUND, format!("run {number} has no account: {error}"))),
    }
}

/// The default number of files in a response.
const FILES: usize = 50;

/// The state of a file: `open` (being written, or left behind by a process that was killed), `closed`, `transferred`
/// (the destination confirmed its checksum), `set_aside` (it made file-based filter units crash).
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "what the document says of `ropewalk_run::FileState`")]
enum RunFileState {
    Open,
    Closed,
    Transferred,
    SetAside,
}

/// A file of a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "what the document says of `ropewalk_run::StoredFile`")]
struct RunFile {
    /// Its path, relative to the output directory; absolute if it is on another disk.
    path: String,
    /// The node that wrote it: `bu0` is builder unit 0; null if that is unknown.
    writer: Option<String>,
    /// The stream; null if the run is not divided into streams.
    stream: Option<String>,
    /// The lumisection, from 1; null if files contain events of several.
    lumisection: Option<u32>,
    /// The length of the file.
    bytes: u64,
    /// Number of events; null while the file is open, or if its trailer does not contain the number.
    events: Option<u64>,
    /// Whether it is still being written, closed, transferred or set aside.
    state: RunFileState,
}

/// Files of a run, newest first.
#[derive(ToSchema)]
#[expect(dead_code, reason = "what the document says of `ropewalk_run::StoredFiles`")]
struct RunFiles {
    /// The number of the run; null before the first run.
    run: Option<u32>,
    /// Whether the run has its account, which it gets when it ends in order.
    has_account: bool,
    /// Number of all files of the run, not only of those listed.
    found: u64,
    /// The files, newest first.
    files: Vec<RunFile>,
    /// Files deleted to stay within `keep`, from the account; null without an account.
    #[schema(value_type = Option<Object>)]
    deleted: (),
    /// Results of file transfers, from the account; null without an account, or if files are not transferred.
    #[schema(value_type = Option<Object>)]
    transfer: (),
}

#[derive(Deserialize)]
struct FilePage {
    before: Option<String>,
    limit: Option<usize>,
}

/// Returns the files of the current run, newest first. Between runs it returns those of the last run.
#[utoipa::path(
    get,
    path = "/api/v1/files",
    params(
        ("before" = Option<String>, Query, description = "only files older than the one with this path, which need not exist any more"),
        ("limit" = Option<usize>, Query, description = "maximum number of files: by default 50, at most 500"),
    ),
    responses((status = 200, body = RunFiles), (status = 400, body = Problem), (status = 500, body = Problem))
)]
async fn present(Of(shared): Of<Shared>, Query(page): Query<FilePage>) -> Result<impl IntoResponse, Response> {
    let view = shared.control.view();
    list(page, move |before, limit| match present_run(&shared.output, &view)? {
        Some(run) => StoredFiles::of_run(&shared.output, run, before, limit),
        None => Ok(StoredFiles::none()),
    })
    .await
}

/// Returns the files of a run, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/files",
    params(
        ("run" = u32, Path, description = "its number"),
        ("before" = Option<String>, Query, description = "only files older than the one with this path, which need not exist any more"),
        ("limit" = Option<usize>, Query, description = "maximum number of files: by default 50, at most 500"),
    ),
    responses(
        (status = 200, body = RunFiles),
        (status = 400, body = Problem),
        (status = 404, body = Problem, description = "there is no such run"),
        (status = 500, body = Problem)
    )
)]
async fn of_run(
    Of(shared): Of<Shared>,
    Path(run): Path<u32>,
    Query(page): Query<FilePage>,
) -> Result<impl IntoResponse, Response> {
    list(page, move |before, limit| StoredFiles::of_run(&shared.output, RunNumber(run), before, limit)).await
}

/// Returns the current run, or between runs the last one. A run that is set up but not started has no files and does
/// not count.
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

/// Lists files on a blocking thread, so that no other request waits for the disk.
async fn list(
    page: FilePage,
    list: impl FnOnce(Option<&FileName>, usize) -> io::Result<StoredFiles> + Send + 'static,
) -> Result<Json<StoredFiles>, Response> {
    let before = page.before.map(|before| before.parse::<FileName>()).transpose();
    let before = before.map_err(|error| problem(StatusCode::BAD_REQUEST, format!("before: {error}")))?;
    let limit = page.limit.unwrap_or(FILES).min(MOST_FILES);
    on_disk("the output directory", move || list(before.as_ref(), limit)).await
}

/// The reference run for comparisons.
#[derive(Deserialize, ToSchema)]
struct Choice {
    /// Its number; null for no comparison.
    run: Option<u32>,
}

/// Returns the trend of the reference run, with which the current run is compared by its age.
#[utoipa::path(get, path = "/api/v1/reference", responses((status = 200, body = Reference)))]
async fn reference(Of(shared): Of<Shared>) -> Json<Reference> {
    Json(Reference::of(shared.health.reference().as_deref()))
}

/// Selects the reference run, or none, for the dashboard's plots and for alarms on `reference:` quantities.
#[utoipa::path(
    post,
    path = "/api/v1/reference",
    params(("by" = Option<String>, Query, description = "name of the operator")),
    request_body = Choice,
    responses(
        (status = 200, body = Reference),
        (status = 400, body = Problem, description = "the body has another form"),
        (status = 404, body = Problem, description = "this run has no trend; the error lists the runs that have one"),
        (status = 500, body = Problem, description = "its trend cannot be read"),
    )
)]
async fn choose(
    Commander(shared): Commander,
    Query(manner): Query<Manner>,
    Said(Choice { run }): Said<Choice>,
) -> Result<Json<Reference>, Response> {
    let by = manner.by();
    let health = std::sync::Arc::clone(&shared.health);
    match blocking(move || health.compare_with(run)).await? {
        Ok(trend) => {
            let text = trend
                .as_ref()
                .map_or_else(|| "compares with no run".to_owned(), |trend| format!("compares with run {}", trend.run));
            shared.control.remark(&by, format!("{by} {text}"));
            Ok(Json(Reference::of(trend.as_deref())))
        }
        Err(error @ NoRunTrend::Missing { .. }) => Err(problem(StatusCode::NOT_FOUND, error.to_string())),
        Err(error) => Err(problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}
