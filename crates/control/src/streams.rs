//! Streams: views of the run, written as JSON once for all clients, and samples, copies of events, so many a second and no more.
//!
//! Each stream of samples has one wish at the tap at a time, and has it only while its client has taken what came before. So builder units
//! do no more for it than for somebody who asks for one event after the other, a slow reader misses events, and what it has not read is one
//! sample.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use ropewalk_node::session::ControlHandle;
use ropewalk_node::tap::{Asked, EventSelection, Tap};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, WatchStream};

use crate::api_types::{Live, SampledEvent};
use crate::health_monitor::HealthMonitor;

/// How often a view is sent.
const LIVE_PERIOD: Duration = Duration::from_millis(500);

/// Writes views while somebody looks.
pub(crate) async fn publish(control: ControlHandle, health: Arc<HealthMonitor>, sender: watch::Sender<Bytes>) {
    loop {
        tokio::time::sleep(LIVE_PERIOD).await;
        if sender.receiver_count() > 1
            && let Ok(text) = serde_json::to_string(&Live::of(&control.view(), &health))
        {
            // One receiver lives as long as the server.
            let _ = sender.send(format!("event: live\ndata: {text}\n\n").into());
        }
    }
}

/// The stream of views for one client, which shares them with all others. A slow one misses some, and holds nobody up.
pub(crate) fn live_stream(receiver: watch::Receiver<Bytes>, place: OwnedSemaphorePermit) -> Response {
    let views = WatchStream::from_changes(receiver).map(move |view| {
        // It is given back with the stream.
        let _place = &place;
        Ok::<_, Infallible>(view)
    });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], Body::from_stream(views)).into_response()
}

/// Streams at once: the tap has places for two more, for those who want a single event.
pub(crate) const STREAMS: usize = 6;
/// Samples a second that may be asked for.
pub(crate) const LEAST_RATE: f64 = 0.01;
pub(crate) const MOST_RATE: f64 = 20.0;
/// Bytes of all fragments of one sample: twenty a second for every stream have to be written by the one thread that serves.
const MOST_BYTES: usize = 256 << 10;
/// Where nothing came for so long, whoever listens hears that somebody is there.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
const ALIVE: &str = ": no such event was built lately\n\n";
/// How often one looks whether an event has come.
const LOOK: Duration = Duration::from_millis(10);

/// What somebody goes on watching.
pub(crate) struct Watched {
    pub(crate) selection: EventSelection,
    /// Bytes of each fragment.
    pub(crate) front: usize,
    /// From one sample to the next, at least.
    pub(crate) period: Duration,
}

/// A stream of samples, for as long as somebody listens and the server is there. It has these places until it ends.
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

/// Sends samples until nobody takes them.
async fn serve(control: &ControlHandle, watched: &Watched, sender: &mpsc::Sender<Bytes>) {
    loop {
        // An event is asked for when there is room for it: it is of now, and not of when somebody began to read slowly.
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

/// The next event of the run that is under way then; none where there is none until then.
async fn come(control: &ControlHandle, watched: &Watched, until: Instant) -> Option<Bytes> {
    let mut wish: Option<(Tap, Asked)> = None;
    while Instant::now() < until {
        let view = control.view();
        // One run follows another, and each has its own tap.
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
