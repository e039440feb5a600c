//! Run control commands, the operator who has control (at most one), masked sources, and parameters that can be changed
//! during a run.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ropewalk_config::fields::{Field, Fields};
use ropewalk_run::session::{Command, ControlsRequest, MaskRequest, ParameterRequest, RequestRefusal, RestartOutcome};
use ropewalk_terms::SourceId;
use serde::Deserialize;
use tokio::sync::oneshot;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Commander, Manner, Shared, answer, problem, refused, shown};
use crate::api_types::{
    Holder, JournalEntry, Mask, Masking, Operator, Parameter, Problem, Reply, Restarted, Restarting, State,
    command_names, masks, parameters,
};
use crate::request_limits::Said;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(state))
        .routes(routes!(command))
        .routes(routes!(journal))
        .routes(routes!(written_configuration))
        .routes(routes!(operator))
        .routes(routes!(take))
        .routes(routes!(give))
        .routes(routes!(all_masks, mask))
        .routes(routes!(restart))
        .routes(routes!(all_parameters, change))
}

/// Returns the state of the run sequence.
#[utoipa::path(get, path = "/api/v1/state", responses((status = 200, body = State)))]
async fn state(Of(shared): Of<Shared>) -> Json<State> {
    Json(State::of(&shared.control.view()))
}

/// Executes a command and waits until it has ended: done, already so, not possible now, or failed.
#[utoipa::path(
    post,
    path = "/api/v1/commands/{command}",
    params(
        ("command" = String, Path, description = "configure, start, pause, resume, stop, reset, shutdown; conf, enable, halt"),
        ("by" = Option<String>, Query, description = "name of the operator, for the journal"),
        ("field" = Option<Vec<String>>, Query, description = "of a start: a field of the run, NAME=VALUE; can be repeated"),
        ("wait" = Option<bool>, Query, description = "false: answer as soon as the command is accepted"),
    ),
    responses(
        (status = 200, body = Reply),
        (status = 202, description = "accepted"),
        (status = 400, body = Problem, description = "an invalid field, or a `wait` that is neither true nor false"),
        (status = 404, body = Problem),
        (status = 409, body = Reply, description = "not now, refused, overtaken, or another operator has control"),
        (status = 410, body = Problem, description = "run control has ended"),
        (status = 500, body = Reply),
    )
)]
async fn command(
    Commander(shared): Commander,
    Path(name): Path<String>,
    Query(manner): Query<Manner>,
    Query(all): Query<Vec<(String, String)>>,
) -> Response {
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
        // The client may have gone.
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

/// Returns the journal, oldest entry first. The last thousand entries are kept.
#[utoipa::path(
    get,
    path = "/api/v1/journal",
    params(("after" = Option<u64>, Query, description = "only entries after the one with this number")),
    responses((status = 200, body = [JournalEntry]))
)]
async fn journal(Of(shared): Of<Shared>, Query(since): Query<Since>) -> Json<Vec<JournalEntry>> {
    let entries = shared.control.journal_after(since.after.unwrap_or(0));
    Json(entries.into_iter().map(JournalEntry::of).collect())
}

/// Returns the configuration of the runs, as it is stored with each run: with the overrides of the command line,
/// without comments and webhook addresses.
#[utoipa::path(
    get,
    path = "/api/v1/configuration",
    responses((status = 200, description = "TOML", content_type = "text/plain"))
)]
async fn written_configuration(Of(shared): Of<Shared>) -> String {
    shared.control.view().configuration.as_ref().to_owned()
}

/// Returns the operator who has control.
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

/// Takes control: commands of other operators are refused from now on. The operator who already has control renews it.
#[utoipa::path(
    post,
    path = "/api/v1/operator/take",
    params(
        ("by" = String, Query, description = "the operator who takes control"),
        ("force" = Option<bool>, Query, description = "true: take control even if another operator has it"),
    ),
    responses(
        (status = 200, body = Operator),
        (status = 400, body = Problem, description = "`by` is missing or empty"),
        (status = 409, body = Problem, description = "another operator has control"),
        (status = 410, body = Problem, description = "run control has ended"),
    )
)]
async fn take(Commander(shared): Commander, Query(Taking { by, force }): Query<Taking>) -> Response {
    ask(&shared, &by, ControlsRequest::Take { is_forced: force }).await
}

#[derive(Deserialize)]
struct Giving {
    by: String,
    to: Option<String>,
}

/// Passes control to another operator, or releases it; once it is released, every operator may send commands.
#[utoipa::path(
    post,
    path = "/api/v1/operator/give",
    params(
        ("by" = String, Query, description = "the operator who has control"),
        ("to" = Option<String>, Query, description = "the operator who gets control; without it, control is released"),
    ),
    responses(
        (status = 200, body = Operator),
        (status = 400, body = Problem, description = "`by` is missing, or `by` or `to` is empty"),
        (status = 409, body = Problem, description = "the operator in `by` does not have control"),
        (status = 410, body = Problem, description = "run control has ended"),
    )
)]
async fn give(Commander(shared): Commander, Query(Giving { by, to }): Query<Giving>) -> Response {
    let to = to.map(|to| shown(&to));
    if to.as_ref().is_some_and(String::is_empty) {
        return problem(StatusCode::BAD_REQUEST, "`to` is empty: name an operator, or leave it out");
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

/// Returns the sources that are masked or were masked during this run, with the first and last event of each mask.
#[utoipa::path(get, path = "/api/v1/masks", responses((status = 200, body = [Mask])))]
async fn all_masks(Of(shared): Of<Shared>) -> Json<Vec<Mask>> {
    Json(masks(&shared.control.view()))
}

/// Masks or unmasks sources, in the current run and in the following ones. In the current run, the readout unit of a
/// source chooses the first affected event and reports it. The request is applied as a whole or not at all.
#[utoipa::path(
    post,
    path = "/api/v1/masks",
    params(("by" = Option<String>, Query, description = "name of the operator")),
    request_body = Masking,
    responses(
        (status = 200, body = [Mask], description = "the request was passed to the run; the new masks appear shortly afterwards"),
        (status = 400, body = Problem, description = "the body has another form"),
        (status = 404, body = Problem, description = "there is no such source"),
        (status = 409, body = Problem, description = "the request cannot be met, or another operator has control"),
        (status = 410, body = Problem, description = "run control has ended"),
    )
)]
async fn mask(Commander(shared): Commander, Query(manner): Query<Manner>, Said(masking): Said<Masking>) -> Response {
    let by = manner.by();
    let sources = masking.sources.into_iter().map(SourceId).collect();
    let request = MaskRequest { sources, is_masked: masking.is_masked };
    let told = answer(|reply| shared.control.mask(request, &by, reply)).await;
    match told.unwrap_or(Err(RequestRefusal::Over)) {
        Ok(()) => Json(masks(&shared.control.view())).into_response(),
        Err(refusal) => refused(refusal),
    }
}

/// Restarts sources: masks them in the current run and unmasks them as soon as their readout units have reported from
/// which event on they are out. A source takes part again from its first fragment that continues the run's event
/// numbers. The response is sent then, or when the readout units take too long.
#[utoipa::path(
    post,
    path = "/api/v1/masks/restart",
    params(("by" = Option<String>, Query, description = "name of the operator")),
    request_body = Restarting,
    responses(
        (status = 200, body = Restarted),
        (status = 400, body = Problem, description = "the body has another form"),
        (status = 404, body = Problem, description = "there is no such source"),
        (status = 409, body = Problem, description = "there is no current run, the request cannot be met, or another operator has control"),
        (status = 410, body = Problem, description = "run control has ended"),
        (status = 500, body = Restarted, description = "for some source, the first event without it is unknown"),
    )
)]
async fn restart(
    Commander(shared): Commander,
    Query(manner): Query<Manner>,
    Said(restarting): Said<Restarting>,
) -> Response {
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

/// Returns the parameters that can be changed during a run, with their current values.
#[utoipa::path(get, path = "/api/v1/parameters", responses((status = 200, body = [Parameter])))]
async fn all_parameters(Of(shared): Of<Shared>) -> Json<Vec<Parameter>> {
    Json(parameters(&shared.control.view()))
}

/// Changes parameters of the current run and of the following ones: all of them, or none.
#[utoipa::path(
    patch,
    path = "/api/v1/parameters",
    params(("by" = Option<String>, Query, description = "name of the operator")),
    request_body(content = BTreeMap<String, String>, description = "names and values, as in a configuration"),
    responses(
        (status = 200, body = [Parameter]),
        (status = 400, body = Problem, description = "the body has another form"),
        (status = 404, body = Problem, description = "there is no parameter of this name that can be changed"),
        (status = 409, body = Problem, description = "a value does not fit, or another operator has control"),
        (status = 410, body = Problem, description = "run control has ended"),
    )
)]
async fn change(
    Commander(shared): Commander,
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
