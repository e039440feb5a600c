//! Views as they come: written as JSON once, whoever looks.

use crate::api_types::Live;
use crate::health_monitor::HealthMonitor;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use ropewalk_node::session::ControlHandle;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;

/// How often a view is sent.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);

/// Writes views while somebody looks.
pub(crate) async fn publish(control: ControlHandle, health: Arc<HealthMonitor>, sender: watch::Sender<Bytes>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if sender.receiver_count() > 1
            && let Ok(text) = serde_json::to_string(&Live::of(&control.view(), &health))
        {
            // One receiver lives as long as the server.
            let _ = sender.send(format!("event: live\ndata: {text}\n\n").into());
        }
    }
}

/// The stream of views for one client, which shares them with all others. A slow one misses some, and holds nobody up.
pub(crate) fn stream(receiver: watch::Receiver<Bytes>, place: OwnedSemaphorePermit) -> Response {
    let views = WatchStream::from_changes(receiver).map(move |view| {
        // It is given back with the stream.
        let _place = &place;
        Ok::<_, Infallible>(view)
    });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], Body::from_stream(views)).into_response()
}
