//! Single events while they are built.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ropewalk_engine::tap::{Asked, EventSample, EventSelection};
use ropewalk_terms::SourceId;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Shared, problem};
use crate::api_types::{Problem, SampledEvent};
use crate::streams::{self, LEAST_RATE, MOST_RATE, STREAMS, Watched};

/// The default and maximum number of bytes shown of each fragment.
const FRONT: usize = 256;
const MOST_FRONT: usize = 64 << 10;
/// The time limit for an event, and the interval at which the tap is polled.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(sample)).routes(routes!(stream))
}

/// Query parameters: which events, and how much of each.
#[derive(Deserialize)]
struct Wanted {
    rate: Option<f64>,
    incomplete: Option<bool>,
    doubtful: Option<bool>,
    source: Option<u32>,
    trigger_type: Option<u16>,
    least_bytes: Option<u64>,
    front: Option<usize>,
}

impl Wanted {
    fn selection(&self) -> EventSelection {
        EventSelection {
            is_incomplete: self.incomplete == Some(true),
            is_doubtful: self.doubtful == Some(true),
            source: self.source.map(SourceId),
            trigger_type: self.trigger_type,
            least_bytes: self.least_bytes.unwrap_or(0),
        }
    }

    fn front(&self) -> usize {
        self.front.unwrap_or(FRONT).min(MOST_FRONT)
    }
}

/// Returns the next event that is built and matches the query. Waits at most three seconds; the run never waits.
#[utoipa::path(
    get,
    path = "/api/v1/events/sample",
    params(
        ("incomplete" = Option<bool>, Query, description = "true: one that lacks required sources"),
        ("doubtful" = Option<bool>, Query, description = "true: one with a fragment whose content is in doubt"),
        ("source" = Option<u32>, Query, description = "one in which this source has a fragment"),
        ("trigger_type" = Option<u16>, Query, description = "one of this trigger type"),
        ("least_bytes" = Option<u64>, Query, description = "one with at least this many bytes of payload"),
        ("front" = Option<usize>, Query, description = "bytes of each fragment: by default 256, at most 65536"),
    ),
    responses(
        (status = 200, body = SampledEvent),
        (status = 404, body = Problem),
        (status = 503, body = Problem),
    )
)]
async fn sample(Of(shared): Of<Shared>, Query(wanted): Query<Wanted>) -> Response {
    let Some(tap) = shared.control.view().tap.clone() else {
        return problem(StatusCode::NOT_FOUND, "no run is set up whose builder units or gateways are in this process");
    };
    let Some(asked) = tap.ask(wanted.selection(), wanted.front()) else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "too many wait for an event already; ask again in a moment");
    };
    match come(asked).await {
        Some(event) => Json(SampledEvent::of(&event, shared.control.view().at)).into_response(),
        None => problem(StatusCode::NOT_FOUND, "no such event was built within three seconds"),
    }
}

/// Streams matching events as they are built, as server-sent events named `sample`, at a limited rate. The stream
/// continues over following runs, until the client disconnects. After three seconds without an event, the server sends
/// a comment. A slow client misses events; the run never waits.
#[utoipa::path(
    get,
    path = "/api/v1/events/stream",
    params(
        ("rate" = Option<f64>, Query, description = "maximum number of events a second: 0.01 to 20, by default 1"),
        ("incomplete" = Option<bool>, Query, description = "true: only events that lack required sources"),
        ("doubtful" = Option<bool>, Query, description = "true: only events with a fragment whose content is in doubt"),
        ("source" = Option<u32>, Query, description = "only events in which this source has a fragment"),
        ("trigger_type" = Option<u16>, Query, description = "those of this trigger type"),
        ("least_bytes" = Option<u64>, Query, description = "those with at least this many bytes of payload"),
        ("front" = Option<usize>, Query, description = "bytes of each fragment: by default 256, at most 65536, and at most 256 KiB for all fragments"),
    ),
    responses(
        (status = 200, body = SampledEvent, content_type = "text/event-stream", description = "the data of each event"),
        (status = 400, body = Problem),
        (status = 503, body = Problem, description = "there are too many such streams"),
    )
)]
async fn stream(Of(shared): Of<Shared>, Query(wanted): Query<Wanted>) -> Response {
    let rate = wanted.rate.unwrap_or(1.0);
    if !(LEAST_RATE..=MOST_RATE).contains(&rate) {
        let error = format!("rate={rate}: {LEAST_RATE} to {MOST_RATE} samples a second");
        return problem(StatusCode::BAD_REQUEST, error);
    }
    let places = (shared.accept_loop.place_of_samples(), shared.accept_loop.place_of_stream());
    let (Some(place), Some(connection)) = places else {
        let error = format!(
            "too many streams are open already, {STREAMS} of samples at most: close one, or ask for single samples"
        );
        return problem(StatusCode::SERVICE_UNAVAILABLE, error);
    };
    let period = Duration::from_secs_f64(1.0 / rate);
    let watched = Watched { selection: wanted.selection(), front: wanted.front(), period };
    streams::sample_stream(shared.control, watched, shared.ending, [place, connection])
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
