//! What may be done to the sequence of runs and by whom (one operator at a time holds the controls, or nobody), sources that operators
//! mask, and parameters that may be changed while a run goes on.

use std::collections::BTreeMap;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ropewalk_node::fields::{Field, Fields};
use ropewalk_node::session::{Command, ControlsRequest, MaskRequest, ParameterRequest, RequestRefusal, RestartOutcome};
use ropewalk_terms::SourceId;
use serde::Deserialize;
use tokio::sync::oneshot;
use utoipa::OpenApi;

use super::{Manner, Shared, answer, problem, refused, shown};
use crate::api_types::{
    Holder, JournalEntry, Mask, Masking, Operator, Parameter, Problem, Reply, Restarted, Restarting, State,
    command_names, masks, parameters,
};
use crate::request_limits::Said;

#[derive(OpenApi)]
#[openapi(paths(
    state,
    command,
    journal,
    written_configuration,
    operator,
    take,
    give,
    all_masks,
    mask,
    restart,
    all_parameters,
    change
))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/state", get(state))
        .route("/commands/{command}", post(command))
        .route("/journal", get(journal))
        .route("/configuration", get(written_configuration))
        .route("/operator", get(operator))
        .route("/operator/take", post(take))
        .route("/operator/give", post(give))
        .route("/masks", get(all_masks).post(mask))
        .route("/masks/restart", post(restart))
        .route("/parameters", get(all_parameters).patch(change))
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

/// Sources that are masked, or were in this run, and from which event to which.
#[utoipa::path(get, path = "/api/v1/masks", responses((status = 200, body = [Mask])))]
async fn all_masks(Of(shared): Of<Shared>) -> Json<Vec<Mask>> {
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

/// What can be changed while a run goes on, and how it is now.
#[utoipa::path(get, path = "/api/v1/parameters", responses((status = 200, body = [Parameter])))]
async fn all_parameters(Of(shared): Of<Shared>) -> Json<Vec<Parameter>> {
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
