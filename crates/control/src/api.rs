//! What can be asked for.

use crate::forms::{
    Address, Alarm, Balance, Count, JournalEntry, Limited, Live, Node, Problem, Reply, Source, State, addresses,
    command_names, counters, nodes, sources,
};
use crate::guard::{Guard, guard};
use crate::lookout::Lookout;
use crate::{live, page};
use axum::extract::{DefaultBodyLimit, Path, Query, State as Of};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ropewalk_monitor::alarms::AlarmError;
use ropewalk_node::run::{ACCOUNT, Registry};
use ropewalk_node::session::{Command, Desk};
use ropewalk_terms::RunNumber;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use utoipa::{OpenApi, ToSchema};

/// Bytes of a request's body.
const BODY_BYTES: usize = 64 << 10;
/// Runs in one answer.
const MOST_RUNS: usize = 500;
/// Bytes of an account that is read.
const ACCOUNT_BYTES: u64 = 64 << 20;

#[derive(OpenApi)]
#[openapi(
    info(title = "Ropewalk run control", version = "1"),
    paths(
        state,
        command,
        live_now,
        live_stream,
        ledger,
        all_counters,
        all_sources,
        all_nodes,
        all_addresses,
        journal,
        written_configuration,
        limit,
        alarms,
        acknowledge,
        shelve,
        metrics,
        runs,
        run
    ),
    components(schemas(
        State,
        Reply,
        Problem,
        Live,
        Balance,
        Count,
        Source,
        Node,
        JournalEntry,
        KnownRun,
        Limited,
        Alarm,
        Address
    ))
)]
struct Document;

/// What every handler has.
#[derive(Clone)]
struct Shared {
    desk: Desk,
    output: Arc<PathBuf>,
    configuration: Arc<str>,
    live: watch::Receiver<Arc<str>>,
    lookout: Arc<Lookout>,
}

/// All ways in.
pub(crate) fn router(
    desk: Desk,
    output: PathBuf,
    configuration: Arc<str>,
    live: watch::Receiver<Arc<str>>,
    lookout: Arc<Lookout>,
    guards: Arc<Guard>,
) -> Router {
    let shared = Shared { desk, output: Arc::new(output), configuration, live, lookout };
    let api = Router::new()
        .route("/state", get(state))
        .route("/commands/{command}", post(command))
        .route("/live", get(live_now))
        .route("/live/stream", get(live_stream))
        .route("/ledger", get(ledger))
        .route("/counters", get(all_counters))
        .route("/sources", get(all_sources))
        .route("/nodes", get(all_nodes))
        .route("/addresses", get(all_addresses))
        .route("/journal", get(journal))
        .route("/configuration", get(written_configuration))
        .route("/limit", get(limit))
        .route("/alarms", get(alarms))
        .route("/alarms/{name}/acknowledge", post(acknowledge))
        .route("/alarms/{name}/shelve", post(shelve))
        .route("/runs", get(runs))
        .route("/runs/{run}", get(run))
        .with_state(shared.clone());
    Router::new()
        .route("/metrics", get(metrics).with_state(shared))
        .route("/", get(page::index))
        .route("/{file}", get(page::named))
        .route("/api/docs", get(document))
        .nest("/api/v1", api)
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(from_fn_with_state(guards, guard))
}

fn problem(status: StatusCode, error: impl Into<String>) -> Response {
    (status, Json(Problem { error: error.into() })).into_response()
}

async fn nothing() -> Response {
    problem(StatusCode::NOT_FOUND, "there is nothing here; /api/docs lists what there is")
}

async fn document() -> Response {
    match Document::openapi().to_json() {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Where the sequence of runs is.
#[utoipa::path(get, path = "/api/v1/state", responses((status = 200, body = State)))]
async fn state(Of(shared): Of<Shared>) -> Json<State> {
    Json(State::of(&shared.desk.view()))
}

/// How a command is given.
#[derive(Deserialize)]
struct Manner {
    /// In whose name, for the journal.
    by: Option<String>,
    /// `false`: the answer is not waited for.
    wait: Option<bool>,
}

/// The longest name in the journal.
const MOST_NAME: usize = 64;

/// Gives a command and waits until it has ended: what was asked for is so, was so, cannot be had now, or went wrong.
#[utoipa::path(
    post,
    path = "/api/v1/commands/{command}",
    params(
        ("command" = String, Path, description = "configure, start, pause, resume, stop, reset, shutdown; conf, enable, halt"),
        ("by" = Option<String>, Query, description = "in whose name, for the journal"),
        ("wait" = Option<bool>, Query, description = "false: the command is taken, and its end not waited for"),
    ),
    responses(
        (status = 200, body = Reply),
        (status = 202, description = "taken"),
        (status = 404, body = Problem),
        (status = 409, body = Reply),
        (status = 500, body = Reply),
    )
)]
async fn command(Of(shared): Of<Shared>, Path(name): Path<String>, Query(manner): Query<Manner>) -> Response {
    let Some(command) = Command::from_name(&name) else {
        let error = format!("no command is named `{}`: there are {}", shown(&name), command_names());
        return problem(StatusCode::NOT_FOUND, error);
    };
    let by = shown(manner.by.as_deref().unwrap_or("somebody"));
    let (sender, receiver) = oneshot::channel();
    shared.desk.command(command, &by, move |told| {
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

/// What somebody wrote, bounded and without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MOST_NAME).collect()
}

/// State, ledger, sources and nodes at once.
#[utoipa::path(get, path = "/api/v1/live", responses((status = 200, body = Live)))]
async fn live_now(Of(shared): Of<Shared>) -> Json<Live> {
    Json(Live::of(&shared.desk.view(), &shared.lookout))
}

/// The same, twice a second, as server-sent events named `live`.
#[utoipa::path(
    get,
    path = "/api/v1/live/stream",
    responses((status = 200, description = "events named `live`, each a Live as JSON", content_type = "text/event-stream"))
)]
async fn live_stream(Of(shared): Of<Shared>) -> impl IntoResponse {
    live::stream(shared.live)
}

/// The balance of the present run.
#[utoipa::path(get, path = "/api/v1/ledger", responses((status = 200, body = Balance)))]
async fn ledger(Of(shared): Of<Shared>) -> Json<Balance> {
    Json(Balance::of(&shared.desk.view()))
}

/// Every counter, summed over all nodes.
#[utoipa::path(get, path = "/api/v1/counters", responses((status = 200, body = [Count])))]
async fn all_counters(Of(shared): Of<Shared>) -> Json<Vec<Count>> {
    Json(counters(&shared.desk.view()))
}

/// Every front end that has been heard of.
#[utoipa::path(get, path = "/api/v1/sources", responses((status = 200, body = [Source])))]
async fn all_sources(Of(shared): Of<Shared>) -> Json<Vec<Source>> {
    Json(sources(&shared.desk.view()))
}

/// Every readout and builder unit.
#[utoipa::path(get, path = "/api/v1/nodes", responses((status = 200, body = [Node])))]
async fn all_nodes(Of(shared): Of<Shared>) -> Json<Vec<Node>> {
    Json(nodes(&shared.desk.view()))
}

/// Where front ends of the run that is set up or under way connect to, and others.
#[utoipa::path(get, path = "/api/v1/addresses", responses((status = 200, body = [Address])))]
async fn all_addresses(Of(shared): Of<Shared>) -> Json<Vec<Address>> {
    Json(addresses(&shared.desk.view()))
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
    let entries = shared.desk.journal_after(since.after.unwrap_or(0));
    Json(entries.into_iter().map(JournalEntry::of).collect())
}

/// The configuration, as it was written.
#[utoipa::path(
    get,
    path = "/api/v1/configuration",
    responses((status = 200, description = "TOML", content_type = "text/plain"))
)]
async fn written_configuration(Of(shared): Of<Shared>) -> String {
    shared.configuration.as_ref().to_owned()
}
/// What limits the run; null where that is not known yet.
#[utoipa::path(get, path = "/api/v1/limit", responses((status = 200, body = Option<Limited>)))]
async fn limit(Of(shared): Of<Shared>) -> Json<Option<Limited>> {
    Json(shared.lookout.limit())
}

/// All alarms, raised or not.
#[utoipa::path(get, path = "/api/v1/alarms", responses((status = 200, body = [Alarm])))]
async fn alarms(Of(shared): Of<Shared>) -> Json<Vec<Alarm>> {
    Json(shared.lookout.alarms())
}

/// Somebody knows of an alarm that is raised.
#[utoipa::path(
    post,
    path = "/api/v1/alarms/{name}/acknowledge",
    params(("name" = String, Path), ("by" = Option<String>, Query, description = "who knows")),
    responses((status = 200, body = [Alarm]), (status = 404, body = Problem), (status = 409, body = Problem))
)]
async fn acknowledge(Of(shared): Of<Shared>, Path(name): Path<String>, Query(manner): Query<Manner>) -> Response {
    let by = shown(manner.by.as_deref().unwrap_or("somebody"));
    after_alarm(&shared, shared.lookout.acknowledge(&name, &by))
}

#[derive(Deserialize)]
struct Shelf {
    seconds: u64,
}

/// Seconds for which an alarm is shelved at most: a day.
const LONGEST_SHELF: u64 = 24 * 3600;

/// An alarm is not shown for so many seconds, a day at most.
#[utoipa::path(
    post,
    path = "/api/v1/alarms/{name}/shelve",
    params(("name" = String, Path), ("seconds" = u64, Query)),
    responses((status = 200, body = [Alarm]), (status = 404, body = Problem))
)]
async fn shelve(Of(shared): Of<Shared>, Path(name): Path<String>, Query(shelf): Query<Shelf>) -> Response {
    let time = Duration::from_secs(shelf.seconds.min(LONGEST_SHELF));
    after_alarm(&shared, shared.lookout.shelve(&name, time))
}

fn after_alarm(shared: &Shared, done: Result<(), AlarmError>) -> Response {
    match done {
        Ok(()) => Json(shared.lookout.alarms()).into_response(),
        Err(error @ AlarmError::Unknown { .. }) => problem(StatusCode::NOT_FOUND, error.to_string()),
        Err(error) => problem(StatusCode::CONFLICT, error.to_string()),
    }
}

/// Everything that is counted, for Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "docs/metrics.md", content_type = "text/plain")))]
async fn metrics(Of(shared): Of<Shared>) -> Response {
    let text = ropewalk_monitor::prometheus::text(&shared.desk.view().sample);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// A run in the output directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct KnownRun {
    /// Its number.
    run: u32,
    /// Its directory.
    directory: String,
    /// Whether it has its account: it has ended in order.
    has_account: bool,
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
        let meant = runs.into_iter().rev().filter(|run| page.before.is_none_or(|before| run.run.0 < before));
        let known = meant.take(page.limit.unwrap_or(50).min(MOST_RUNS)).map(|run| KnownRun {
            run: run.run.0,
            has_account: run.path.join(ACCOUNT).is_file(),
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
