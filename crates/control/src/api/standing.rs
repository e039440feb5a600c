//! How the present run stands.

use super::{Shared, problem};
use crate::api_types::{Address, Balance, Count, Live, Node, Problem, Source, addresses, counters, nodes, sources};
use crate::live;
use axum::extract::State as Of;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(live_now, live_stream, ledger, all_counters, all_sources, all_nodes, all_addresses, metrics))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/live", get(live_now))
        .route("/live/stream", get(live_stream))
        .route("/ledger", get(ledger))
        .route("/counters", get(all_counters))
        .route("/sources", get(all_sources))
        .route("/nodes", get(all_nodes))
        .route("/addresses", get(all_addresses))
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
    live::stream(shared.live, place)
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

/// Every front end that has been heard of.
#[utoipa::path(get, path = "/api/v1/sources", responses((status = 200, body = [Source])))]
async fn all_sources(Of(shared): Of<Shared>) -> Json<Vec<Source>> {
    Json(sources(&shared.control.view()))
}

/// Every readout and builder unit.
#[utoipa::path(get, path = "/api/v1/nodes", responses((status = 200, body = [Node])))]
async fn all_nodes(Of(shared): Of<Shared>) -> Json<Vec<Node>> {
    Json(nodes(&shared.control.view()))
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
