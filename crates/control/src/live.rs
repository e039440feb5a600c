//! Views as they come: written as JSON once, whoever looks.

use crate::forms::Live;
use crate::lookout::Lookout;
use axum::response::sse::{Event, KeepAlive, Sse};
use ropewalk_node::session::Desk;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};

/// How often a view is sent.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);

/// Writes views while somebody looks.
pub(crate) async fn publish(desk: Desk, lookout: Arc<Lookout>, sender: watch::Sender<Arc<str>>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if sender.receiver_count() > 1
            && let Ok(text) = serde_json::to_string(&Live::of(&desk.view(), &lookout))
        {
            // One receiver lives as long as the server.
            let _ = sender.send(text.into());
        }
    }
}

/// The stream of views for one client. A slow one misses some, and holds nobody up.
pub(crate) fn stream(receiver: watch::Receiver<Arc<str>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = WatchStream::from_changes(receiver).map(|text| Ok(Event::default().event("live").data(&*text)));
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(10)))
}
