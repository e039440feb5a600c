//! Monitoring of the current run: views, its limit, alarms and incidents, rate history, distributions of times and
//! sizes, fragment histograms, and connection counters.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ropewalk_monitor::alarms::AlarmError;
use ropewalk_monitor::quality::{Quality, lasting};
use ropewalk_terms::SourceId;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Commander, Manner, Shared, problem};
use crate::accept_loop::Connections;
use crate::api_types::{
    Address, Alarm, Balance, Count, Histogram, History, Incidents, Limited, Live, Measured, Node, Problem, Source,
    addresses, counters, histograms, measures, nodes, sources,
};
use crate::notify::Told;
use crate::streams;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(live_now))
        .routes(routes!(live_stream))
        .routes(routes!(ledger))
        .routes(routes!(all_counters))
        .routes(routes!(all_sources))
        .routes(routes!(all_nodes))
        .routes(routes!(all_addresses))
        .routes(routes!(limit))
        .routes(routes!(quality))
        .routes(routes!(alarms))
        .routes(routes!(told))
        .routes(routes!(test))
        .routes(routes!(acknowledge))
        .routes(routes!(shelve))
        .routes(routes!(incidents))
        .routes(routes!(history))
        .routes(routes!(all_measures))
        .routes(routes!(all_histograms))
        .routes(routes!(connections))
}

/// State, ledger, sources and nodes at once.
#[utoipa::path(get, path = "/api/v1/live", responses((status = 200, body = Live)))]
async fn live_now(Of(shared): Of<Shared>) -> Json<Live> {
    Json(Live::of(&shared.control.view(), &shared.health))
}

/// The same, twice a second, as server-sent events named `live`.
#[utoipa::path(
    get,
    path = "/api/v1/live/stream",
    responses(
        (status = 200, description = "events named `live`, each a Live as JSON", content_type = "text/event-stream"),
        (status = 503, body = Problem, description = "too many watch already")
    )
)]
async fn live_stream(Of(shared): Of<Shared>) -> Response {
    let Some(place) = shared.accept_loop.place_of_stream() else {
        let refusal = problem(StatusCode::SERVICE_UNAVAILABLE, "too many watch already; what is left is for commands");
        // Nor may it keep the connection.
        return ([(header::CONNECTION, "close")], refusal).into_response();
    };
    streams::live_stream(shared.live, place)
}

/// The balance of the present run.
#[utoipa::path(get, path = "/api/v1/ledger", responses((status = 200, body = Balance)))]
async fn ledger(Of(shared): Of<Shared>) -> Json<Balance> {
    Json(Balance::of(&shared.control.view()))
}

/// Every counter, summed over all nodes.
#[utoipa::path(get, path = "/api/v1/counters", responses((status = 200, body = [Count])))]
async fn all_counters(Of(shared): Of<Shared>) -> Json<Vec<Count>> {
    Json(counters(&shared.control.view()))
}

/// Every front end that has reported.
#[utoipa::path(get, path = "/api/v1/sources", responses((status = 200, body = [Source])))]
async fn all_sources(Of(shared): Of<Shared>) -> Json<Vec<Source>> {
    Json(sources(&shared.control.view()))
}

/// Every readout and builder unit.
#[utoipa::path(get, path = "/api/v1/nodes", responses((status = 200, body = [Node])))]
async fn all_nodes(Of(shared): Of<Shared>) -> Json<Vec<Node>> {
    let view = shared.control.view();
    Json(nodes(&view, &shared.health.silent_nodes(&view.sample)))
}

/// Where front ends of the run that is set up or under way connect to, and others.
#[utoipa::path(get, path = "/api/v1/addresses", responses((status = 200, body = [Address])))]
async fn all_addresses(Of(shared): Of<Shared>) -> Json<Vec<Address>> {
    Json(addresses(&shared.control.view()))
}

/// Everything that is counted, for Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "docs/metrics.md", content_type = "text/plain")))]
pub(super) async fn metrics(Of(shared): Of<Shared>) -> Response {
    let text = ropewalk_monitor::prometheus::text(&shared.control.view().sample);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Returns what limits the run; null while that is not known.
#[utoipa::path(get, path = "/api/v1/limit", responses((status = 200, body = Option<Limited>)))]
async fn limit(Of(shared): Of<Shared>) -> Json<Option<Limited>> {
    Json(shared.health.limit())
}

/// Returns the quality of the data: complete, incomplete and doubtful events, and every problem of the run.
#[utoipa::path(get, path = "/api/v1/quality", responses((status = 200, body = Object)))]
async fn quality(Of(shared): Of<Shared>) -> Json<Quality> {
    Json(shared.health.quality())
}

/// Returns all alarms, raised or not.
#[utoipa::path(get, path = "/api/v1/alarms", responses((status = 200, body = [Alarm])))]
async fn alarms(Of(shared): Of<Shared>) -> Json<Vec<Alarm>> {
    Json(shared.health.alarms())
}

/// Counts the messages sent to the command and the webhook of `[alarms]`; null if neither is configured.
#[utoipa::path(get, path = "/api/v1/alarms/told", responses((status = 200, body = Option<Told>)))]
async fn told(Of(shared): Of<Shared>) -> Json<Option<Told>> {
    Json(shared.health.told())
}

/// Sends a test message to the command and the webhook of `[alarms]`, and waits until they have accepted it.
#[utoipa::path(
    post,
    path = "/api/v1/alarms/test",
    params(("by" = Option<String>, Query, description = "name of the operator")),
    responses(
        (status = 200, body = Option<Told>),
        (status = 409, body = Problem, description = "neither a command nor a webhook is configured"),
        (status = 500, body = Problem, description = "the message was not accepted; the error says why"),
    )
)]
async fn test(Commander(shared): Commander, Query(manner): Query<Manner>) -> Response {
    let (by, view) = (manner.by(), shared.control.view());
    shared.control.remark(&by, format!("test message of alarms, by {by}"));
    match shared.health.test(view.at, view.run, &by).await {
        Some(Ok(())) => Json(shared.health.told()).into_response(),
        Some(Err(why)) => problem(StatusCode::INTERNAL_SERVER_ERROR, format!("the message was not sent: {why}")),
        None => problem(StatusCode::CONFLICT, "[alarms] has neither `command` nor `webhook`: alarms are not sent"),
    }
}

/// Acknowledges a raised alarm.
#[utoipa::path(
    post,
    path = "/api/v1/alarms/{name}/acknowledge",
    params(("name" = String, Path), ("by" = Option<String>, Query, description = "name of the operator")),
    responses(
        (status = 200, body = [Alarm]),
        (status = 404, body = Problem, description = "there is no such alarm"),
        (status = 409, body = Problem, description = "it is not raised"),
    )
)]
async fn acknowledge(Commander(shared): Commander, Path(name): Path<String>, Query(manner): Query<Manner>) -> Response {
    let by = manner.by();
    let acknowledged = shared.health.acknowledge(&name, &by);
    let known_by = shared.health.known_by(&name).filter(|known_by| *known_by != by);
    after_alarm(&shared, acknowledged, &by, || match known_by {
        Some(first) => format!("alarm {name}: {by} acknowledges it after {first}"),
        None => format!("alarm {name}: acknowledged by {by}"),
    })
}

#[derive(Deserialize)]
struct Shelf {
    seconds: u64,
}

/// The longest time for which an alarm can be shelved, in seconds: a day.
const LONGEST_SHELF: u64 = 24 * 3600;

/// Shelves an alarm: it is not shown for this many seconds, a day at most.
#[utoipa::path(
    post,
    path = "/api/v1/alarms/{name}/shelve",
    params(
        ("name" = String, Path),
        ("seconds" = u64, Query, description = "a day at most; 0 shows it again"),
        ("by" = Option<String>, Query, description = "name of the operator")
    ),
    responses(
        (status = 200, body = [Alarm]),
        (status = 400, body = Problem, description = "`seconds` is missing or not a number"),
        (status = 404, body = Problem, description = "there is no such alarm"),
    )
)]
async fn shelve(
    Commander(shared): Commander,
    Path(name): Path<String>,
    Query(Shelf { seconds }): Query<Shelf>,
    Query(manner): Query<Manner>,
) -> Response {
    let time = Duration::from_secs(seconds.min(LONGEST_SHELF));
    let by = manner.by();
    let said = || format!("alarm {name}: shelved by {by} for {}", lasting(time.as_secs()));
    after_alarm(&shared, shared.health.shelve(&name, time, &by), &by, said)
}

/// Writes the operator's action on an alarm into the journal, and returns all alarms.
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

/// The maximum number of incidents in a response.
const MOST_INCIDENTS: usize = 500;
/// The maximum length of a search text, in bytes. All clients, and the alarms, wait during a search.
const MOST_WORDS: usize = 256;

#[derive(Deserialize)]
struct WantedIncidents {
    search: Option<String>,
    limit: Option<usize>,
}

/// Returns the incidents since the program started: one for each cause and subject, latest first.
#[utoipa::path(
    get,
    path = "/api/v1/incidents",
    params(
        ("search" = Option<String>, Query, description = "words that an incident must all contain, in any field, ignoring case; 256 bytes at most"),
        ("limit" = Option<usize>, Query, description = "maximum number of incidents, at most 500"),
    ),
    responses((status = 200, body = Incidents), (status = 400, body = Problem, description = "`search` is too long, or `limit` is not a number"))
)]
async fn incidents(Of(shared): Of<Shared>, Query(wanted): Query<WantedIncidents>) -> Response {
    let (words, most) = (wanted.search.unwrap_or_default(), wanted.limit.unwrap_or(MOST_INCIDENTS).min(MOST_INCIDENTS));
    if words.len() > MOST_WORDS {
        return problem(StatusCode::BAD_REQUEST, format!("{MOST_WORDS} bytes at most can be searched for"));
    }
    Json(shared.health.incidents(&words, most)).into_response()
}

#[derive(Deserialize)]
struct Part {
    since: Option<i64>,
    step: Option<u32>,
}

/// Returns the history of rates, occupancies and live time, ready for a plot.
#[utoipa::path(
    get,
    path = "/api/v1/history",
    params(
        ("since" = Option<i64>, Query, description = "start, in seconds since 1970-01-01T00:00:00Z; by default everything that is kept"),
        ("step" = Option<u32>, Query, description = "seconds from one time to the next: below 60 for the last hour, otherwise whole minutes for the last seven days; by default 1"),
    ),
    responses((status = 200, body = History))
)]
async fn history(Of(shared): Of<Shared>, Query(part): Query<Part>) -> Json<History> {
    Json(History::of(shared.health.history(part.since.unwrap_or(i64::MIN), part.step.unwrap_or(1))))
}

/// Returns the distributions of sizes and times in the current run: of all nodes together, then of each node.
#[utoipa::path(get, path = "/api/v1/measures", responses((status = 200, body = [Measured])))]
async fn all_measures(Of(shared): Of<Shared>) -> Json<Vec<Measured>> {
    Json(measures(&shared.control.view().sample))
}

#[derive(Deserialize)]
struct WantedHistograms {
    name: Option<String>,
    source: Option<u32>,
}

/// Returns the configured source histograms of the current run, updated once a second.
#[utoipa::path(
    get,
    path = "/api/v1/histograms",
    params(
        ("name" = Option<String>, Query, description = "only the histogram of this name"),
        ("source" = Option<u32>, Query, description = "only the histograms of this source, without the counts of other sources"),
    ),
    responses((status = 200, body = [Histogram]))
)]
async fn all_histograms(Of(shared): Of<Shared>, Query(wanted): Query<WantedHistograms>) -> Json<Vec<Histogram>> {
    Json(histograms(&shared.control.view(), wanted.name.as_deref(), wanted.source.map(SourceId)))
}

/// Returns the connection counters: open, accepted, refused and failed connections.
#[utoipa::path(get, path = "/api/v1/connections", responses((status = 200, body = Connections)))]
async fn connections(Of(shared): Of<Shared>) -> Json<Connections> {
    Json(shared.accept_loop.connections())
}
