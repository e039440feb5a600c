//! Runs that there are in the output directory.

use super::{Shared, problem};
use crate::api_types::Problem;
use axum::extract::{Path, Query, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ropewalk_node::run::{ACCOUNT, Note, Registry};
use ropewalk_terms::RunNumber;
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(runs, run))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/runs", get(runs)).route("/runs/{run}", get(run))
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
    /// What people said of it, the oldest first, as far as it stands in the last mebibyte of the logbook.
    #[schema(value_type = Vec<super::notes::Note>)]
    notes: Vec<Note>,
}

#[derive(Deserialize)]
struct Page {
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
async fn runs(Of(shared): Of<Shared>, Query(page): Query<Page>) -> Response {
    let list = move || {
        let runs = Registry::open(&shared.output)?.runs()?;
        let mut said = shared.logbook.newest_said()?;
        let meant = runs.into_iter().rev().filter(|run| page.before.is_none_or(|before| run.run.0 < before));
        let known = meant.take(page.limit.unwrap_or(50).min(MOST_RUNS)).map(|run| KnownRun {
            run: run.run.0,
            has_account: run.path.join(ACCOUNT).is_file(),
            notes: said.remove(&run.run.0).unwrap_or_default(),
            directory: run.path.display().to_string(),
        });
        Ok::<_, std::io::Error>(known.collect::<Vec<_>>())
    };
    match tokio::task::spawn_blocking(list).await {
        Ok(Ok(known)) => Json(known).into_response(),
        Ok(Err(error)) => problem(StatusCode::INTERNAL_SERVER_ERROR, format!("the output directory: {error}")),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
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
async fn run(Of(shared): Of<Shared>, Path(number): Path<u32>) -> Response {
    let name = ropewalk_node::run::directory_name(RunNumber(number));
    let path = shared.output.join(name).join(ACCOUNT);
    let read = move || {
        if std::fs::metadata(&path)?.len() > ACCOUNT_BYTES {
            return Err(std::io::Error::other("it is no account: it is too long"));
        }
        std::fs::read(path)
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(bytes)) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Ok(Err(error)) => problem(StatusCode::NOT_FOUND, format!("run {number} has no account: {error}")),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
