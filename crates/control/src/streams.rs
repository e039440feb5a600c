//! Streams: views of the run, serialised as JSON once for all clients, and samples, which are copies of events at a
//! limited rate.
//!
//! Each sample stream has at most one request at the tap, and only after its client has read the previous sample. So a
//! stream costs the builder units no more than a client that requests single events one after the other, a slow client
//! misses events, and at most one sample waits for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use ropewalk_engine::tap::{Asked, EventSelection, Tap};
use ropewalk_monitor::{NodeSample, Rates};
use ropewalk_run::session::{ControlHandle, SessionView};
use ropewalk_terms::{Counter, NodeId};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, WatchStream};

use crate::api_types::{Balance, Live, SampledEvent, State, nodes, sources};
use crate::health_monitor::HealthMonitor;

/// Number of incidents in the live view.
const LATEST: usize = 10;

/// The interval between views.
const LIVE_PERIOD: Duration = Duration::from_millis(500);

impl Live {
    pub(crate) fn of(view: &SessionView, health: &HealthMonitor) -> Self {
        let rates = health.rates();
        let (disk_free_bytes, disk_left_s) = disk_left(view, rates.as_ref());
        Self {
            state: State::of(view),
            ledger: Balance::of(view),
            sources: sources(view),
            nodes: nodes(view, &health.silent_nodes(&view.sample)),
            rates,
            limit: health.limit(),
            quality: health.quality(),
            alarms: health.shown(),
            shelved: health.shelved(),
            incidents: health.incidents("", LATEST),
            bytes_received: view.snapshot.counter(Counter::PayloadBytesReceived),
            bytes_written: view.snapshot.counter(Counter::BytesWritten),
            disk_free_bytes,
            disk_left_s,
        }
    }
}

/// Returns the free bytes of the disk that has least, and the seconds until the first one is full. If builder units are
/// other processes, these are what they report.
fn disk_left(view: &SessionView, rates: Option<&Rates>) -> (Option<u64>, Option<u64>) {
    if let Some(left) = view.disk_left {
        return (Some(left.free_bytes), left.time.map(|time| time.as_secs()));
    }
    let room = |node: &NodeSample| Some((node.node, node.numbers.known(Counter::OutputRoom)?));
    let rooms: Vec<_> = view.sample.nodes.iter().filter(|node| node.is_connected).filter_map(room).collect();
    let time = |&(node, bytes): &(NodeId, u64)| {
        let rates = rates?.nodes.iter().find(|rates| rates.node == node)?;
        (rates.bytes_per_second > 0.0).then(|| (bytes as f64 / rates.bytes_per_second) as u64)
    };
    (rooms.iter().map(|&(_, bytes)| bytes).min(), rooms.iter().filter_map(time).min())
}

/// Publishes views while clients are connected.
pub(crate) async fn publish(control: ControlHandle, health: Arc<HealthMonitor>, sender: watch::Sender<Bytes>) {
    loop {
        tokio::time::sleep(LIVE_PERIOD).await;
        if sender.receiver_count() > 1
            && let Ok(text) = serde_json::to_string(&Live::of(&control.view(), &health))
        {
            // The server keeps one receiver, so that this cannot fail.
            let _ = sender.send(format!("event: live\ndata: {text}\n\n").into());
        }
    }
}

/// Returns the stream of views for one client; all clients share the views. A slow client misses some and delays no
/// other.
pub(crate) fn live_stream(receiver: watch::Receiver<Bytes>, place: OwnedSemaphorePermit) -> Response {
    let views = WatchStream::from_changes(receiver).map(move |view| {
        // The permit is returned when the stream ends.
        let _place = &place;
        Ok::<_, Infallible>(view)
    });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], Body::from_stream(views)).into_response()
}

/// The maximum number of sample streams. The tap has two more places, for requests of single events.
pub(crate) const STREAMS: usize = 6;
/// The range of sample rates, in samples a second.
pub(crate) const LEAST_RATE: f64 = 0.01;
pub(crate) const MOST_RATE: f64 = 20.0;
/// The maximum bytes of all fragments of one sample: the single server thread must write twenty samples a second for
/// every stream.
const MOST_BYTES: usize = 256 << 10;
/// After this time without a sample, the server sends a comment, so that clients know that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
const ALIVE: &str = ": no such event was built lately\n\n";
/// The interval at which the tap is polled for an event.
const LOOK: Duration = Duration::from_millis(10);

/// The parameters of a sample stream.
pub(crate) struct Watched {
    pub(crate) selection: EventSelection,
    /// The maximum bytes of each fragment.
    pub(crate) front: usize,
    /// The minimum time between two samples.
    pub(crate) period: Duration,
}

/// Returns a stream of samples, which runs until its client disconnects or the server ends. It holds `places` until
/// then.
pub(crate) fn sample_stream(
    control: ControlHandle,
    watched: Watched,
    mut ending: watch::Receiver<()>,
    places: [OwnedSemaphorePermit; 2],
) -> Response {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            _ = ending.changed() => {}
            () = serve(&control, &watched, &sender) => {}
        }
        drop(places);
    });
    let samples = ReceiverStream::new(receiver).map(Ok::<_, Infallible>);
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], Body::from_stream(samples)).into_response()
}

/// Sends samples until the client disconnects.
async fn serve(control: &ControlHandle, watched: &Watched, sender: &mpsc::Sender<Bytes>) {
    loop {
        // Request an event only when there is room for it: a slow client then gets a recent event, not an old one.
        let Ok(room) = sender.reserve().await else { return };
        let until = Instant::now() + KEEP_ALIVE;
        match come(control, watched, until).await {
            Some(text) => {
                let next = Instant::now() + watched.period;
                room.send(text);
                while next > Instant::now() {
                    let alive = Instant::now() + KEEP_ALIVE;
                    sleep_until(next.min(alive)).await;
                    if alive < next && sender.send(Bytes::from_static(ALIVE.as_bytes())).await.is_err() {
                        return;
                    }
                }
            }
            None => room.send(Bytes::from_static(ALIVE.as_bytes())),
        }
    }
}

/// Returns the next event of the current run; none if no event arrives before `until`.
async fn come(control: &ControlHandle, watched: &Watched, until: Instant) -> Option<Bytes> {
    let mut wish: Option<(Tap, Asked)> = None;
    while Instant::now() < until {
        let view = control.view();
        // Each run has its own tap.
        if wish.as_ref().map(|(tap, _)| tap) != view.tap.as_ref() {
            wish = None;
            if let Some(tap) = &view.tap {
                let front = watched.front.min(MOST_BYTES / view.sources.max(1));
                wish = tap.ask(watched.selection, front).map(|asked| (tap.clone(), asked));
            }
        }
        if let Some(event) = wish.as_mut().and_then(|(_, asked)| asked.take()) {
            let text = serde_json::to_string(&SampledEvent::of(&event, view.at)).ok()?;
            return Some(format!("event: sample\ndata: {text}\n\n").into());
        }
        sleep(LOOK).await;
    }
    None
}
