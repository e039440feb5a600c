//! What may be done to the sequence of runs, and what was done.

use super::{Manner, Shared, problem, shown};
use crate::api_types::{JournalEntry, Problem, Reply, State, command_names};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ropewalk_node::fields::{Field, Fields};
use ropewalk_node::session::Command;
use serde::Deserialize;
use tokio::sync::oneshot;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(state, command, journal, written_configuration))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/state", get(state))
        .route("/commands/{command}", post(command))
        .route("/journal", get(journal))
        .route("/configuration", get(written_configuration))
}

/// Where the sequence of runs is.
#[utoipa::path(get, path = "/api/v1/state", responses((status = 200, body = State)))]
async fn state(Of(shared): Of<Shared>) -> Json<State> {
    Json(State::of(&shared.control.view()))
}

/// Gives a command and waits until it has ended: what was asked for is so, was so, cannot be had now, or went wrong.
#[utoipa::path(
    post,
    path = "/api/v1/commands/{command}",
    params(
        ("command" = String, Path, description = "configure, start, pause, resume, stop, reset, shutdown; conf, enable, halt"),
        ("by" = Option<String>, Query, description = "in whose name, for the journal"),
        ("field" = Option<Vec<String>>, Query, description = "of a start: what is said of the run, NAME=VALUE, as often as wanted"),
        ("wait" = Option<bool>, Query, description = "false: the command is taken, and its end not waited for"),
    ),
    responses(
        (status = 200, body = Reply),
        (status = 202, description = "taken"),
        (status = 400, body = Problem, description = "a field that is none, or a `wait` that is neither true nor false"),
        (status = 404, body = Problem),
        (status = 409, body = Reply, description = "not now, refused, overtaken, or another operator holds the controls"),
        (status = 410, body = Problem, description = "run control has ended"),
        (status = 500, body = Reply),
    )
)]
async fn command(
    Of(shared): Of<Shared>,
    Path(name): Path<String>,
    manner: Result<Query<Manner>, QueryRejection>,
    Query(all): Query<Vec<(String, String)>>,
) -> Response {
    let manner = match manner {
        Ok(Query(manner)) => manner,
        Err(error) => return problem(StatusCode::BAD_REQUEST, error.body_text()),
    };
    let Some(command) = Command::from_name(&name) else {
        let error = format!("no command is named `{}`: there are {}", shown(&name), command_names());
        return problem(StatusCode::NOT_FOUND, error);
    };
    let fields = all.iter().filter(|(name, _)| name == "field").map(|(_, field)| field.parse::<Field>());
    let fields = match fields.collect::<Result<Vec<_>, _>>().and_then(Fields::new) {
        Ok(fields) => fields,
        Err(error) => return problem(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let by = manner.by();
    let (sender, receiver) = oneshot::channel();
    shared.control.operator_command(command, fields, &by, move |told| {
        // Whoever asked may be gone.
        let _ = sender.send(told);
    });
    if manner.wait == Some(false) {
        return StatusCode::ACCEPTED.into_response();
    }
    match receiver.await {
        Ok(told) => {
            let status = StatusCode::from_u16(Reply::status(told.answer)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, Json(Reply::of(told))).into_response()
        }
        Err(_) => problem(StatusCode::GONE, "run control has ended"),
    }
}

#[derive(Deserialize)]
struct Since {
    after: Option<u64>,
}

/// What happened, the oldest first: the last thousand entries are kept.
#[utoipa::path(
    get,
    path = "/api/v1/journal",
    params(("after" = Option<u64>, Query, description = "entries behind the one with this number")),
    responses((status = 200, body = [JournalEntry]))
)]
async fn journal(Of(shared): Of<Shared>, Query(since): Query<Since>) -> Json<Vec<JournalEntry>> {
    let entries = shared.control.journal_after(since.after.unwrap_or(0));
    Json(entries.into_iter().map(JournalEntry::of).collect())
}

/// The configuration by which runs are set up, as it is kept with each of them: with what the command line said otherwise, and without
/// comments and addresses of webhooks.
#[utoipa::path(
    get,
    path = "/api/v1/configuration",
    responses((status = 200, description = "TOML", content_type = "text/plain"))
)]
async fn written_configuration(Of(shared): Of<Shared>) -> String {
    shared.control.view().configuration.as_ref().to_owned()
}
