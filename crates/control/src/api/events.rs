//! Single events, as they are built.

use super::{Shared, problem};
use crate::forms::{Problem, SampledEvent};
use axum::extract::{Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ropewalk_node::tap::{Asked, EventSample, EventSelection};
use ropewalk_terms::SourceId;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::Instant;
use utoipa::OpenApi;

/// Bytes of each fragment that are shown where nobody says how many, and at most.
const FRONT: usize = 256;
const MOST_FRONT: usize = 64 << 10;
/// How long an event is waited for, and how often one looks.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

#[derive(OpenApi)]
#[openapi(paths(sample))]
pub(super) struct Document;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/events/sample", get(sample))
}

#[derive(Deserialize)]
struct Wanted {
    incomplete: Option<bool>,
    doubtful: Option<bool>,
    source: Option<u32>,
    trigger_type: Option<u16>,
    least_bytes: Option<u64>,
    front: Option<usize>,
}

/// The next event that is built, or the next such one. Waits three seconds for it; the run never waits.
#[utoipa::path(
    get,
    path = "/api/v1/events/sample",
    params(
        ("incomplete" = Option<bool>, Query, description = "true: one that lacks required sources"),
        ("doubtful" = Option<bool>, Query, description = "true: one with a fragment whose content is in doubt"),
        ("source" = Option<u32>, Query, description = "one in which this source has a fragment"),
        ("trigger_type" = Option<u16>, Query, description = "one of this trigger type"),
        ("least_bytes" = Option<u64>, Query, description = "one with so many bytes of payload at least"),
        ("front" = Option<usize>, Query, description = "bytes of each fragment, 256 by itself, 65536 at most"),
    ),
    responses(
        (status = 200, body = SampledEvent),
        (status = 404, body = Problem),
        (status = 503, body = Problem),
    )
)]
async fn sample(Of(shared): Of<Shared>, Query(wanted): Query<Wanted>) -> Response {
    let Some(tap) = shared.desk.view().tap.clone() else {
        return problem(
            StatusCode::NOT_FOUND,
            "no run is set up whose builder units are in this process (gateways give no samples)",
        );
    };
    let selection = EventSelection {
        is_incomplete: wanted.incomplete == Some(true),
        is_doubtful: wanted.doubtful == Some(true),
        source: wanted.source.map(SourceId),
        trigger_type: wanted.trigger_type,
        least_bytes: wanted.least_bytes.unwrap_or(0),
    };
    let Some(asked) = tap.ask(selection, wanted.front.unwrap_or(FRONT).min(MOST_FRONT)) else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "too many wait for an event already; ask again in a moment");
    };
    match come(asked).await {
        Some(event) => Json(SampledEvent::of(&event, shared.desk.view().at)).into_response(),
        None => problem(StatusCode::NOT_FOUND, "no such event was built within three seconds"),
    }
}

/// Waits for an event.
async fn come(mut asked: Asked) -> Option<EventSample> {
    let until = Instant::now() + PATIENCE;
    loop {
        match asked.take() {
            Some(event) => return Some(event),
            None if Instant::now() >= until => return None,
            None => tokio::time::sleep(LOOK).await,
        }
    }
}
