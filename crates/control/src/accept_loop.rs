//! Accepts connections: a limit on their number, then TLS if the server has a certificate. Every step has a time limit,
//! and refused connections are counted. A connection whose other side does not read is closed, so that no response
//! waits for ever. The descriptor limit of the process must be enough for the run's own connections besides those of
//! clients.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{self, State};
use axum::http::{Request, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutWriter;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::util::MapRequest;
use utoipa::ToSchema;

use crate::api_types::Problem;
use crate::request_limits::{Peer, Requests, TooMany};
use crate::streams;
use crate::tls::Identity;

/// The limit of connections; further ones are closed at once.
pub(crate) const CONNECTIONS: usize = 2048;
/// One in this many connections is reserved for commands, since streams stay open.
const KEPT: usize = 8;
/// The time limit of a TLS handshake, of a request's head and of its body, of silence, and of a client that does not
/// read.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 32 << 10;
/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// The response to a client that does not speak TLS.
pub(crate) const SPEAK_TLS: &str = "this server speaks TLS: ask for https://";

/// Counters of connections.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    crowded: AtomicU64,
    plain: AtomicU64,
    refused: AtomicU64,
    late: AtomicU64,
    stalled: AtomicU64,
    streams_crowded: AtomicU64,
    too_many: AtomicU64,
}

/// Counters of connections, as the API returns them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Connections {
    /// Whether connections are encrypted.
    pub(crate) tls: bool,
    /// Connections that are open now, including those in their handshake.
    pub(crate) open: u64,
    /// The maximum number of open connections.
    pub(crate) most: u64,
    /// Accepted connections.
    pub(crate) accepted: u64,
    /// Of these, those closed at once because there were too many.
    pub(crate) crowded: u64,
    /// Of these, those without TLS although the server uses TLS.
    pub(crate) plain: u64,
    /// Of these, those whose TLS handshake failed, or whose client disconnected during it.
    pub(crate) handshakes_failed: u64,
    /// Of these, those whose handshake took too long.
    pub(crate) handshakes_late: u64,
    /// Of these, those closed because the client did not read its responses.
    pub(crate) stalled: u64,
    /// View and sample streams refused because there were too many; an eighth of all connections is reserved for other
    /// requests.
    pub(crate) streams_crowded: u64,
    /// Requests refused by the rate limits, that of one address or that of all clients together.
    pub(crate) requests_too_many: u64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Accepts connections and limits their number.
pub(crate) struct AcceptLoop {
    acceptor: Option<TlsAcceptor>,
    patience: Duration,
    most: usize,
    places: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    samples: Arc<Semaphore>,
    requests: Mutex<Requests>,
    counts: Counts,
}

impl AcceptLoop {
    /// Creates an accept loop for at most `most` connections. It uses TLS if there is an `identity`. `patience` limits
    /// a handshake, the head of a request, and the time in which a client does not read its response.
    pub(crate) fn new(identity: Option<&Identity>, patience: Duration, most: usize) -> Self {
        let (places, streams) = [most, most - most / KEPT].map(|most| Arc::new(Semaphore::new(most))).into();
        let samples = Arc::new(Semaphore::new(streams::STREAMS));
        let acceptor = identity.map(Identity::acceptor);
        let requests = Mutex::new(Requests::new(Instant::now()));
        Self { acceptor, patience, most, places, streams, samples, requests, counts: Counts::default() }
    }

    /// Returns the connection counters.
    pub(crate) fn connections(&self) -> Connections {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Connections {
            tls: self.acceptor.is_some(),
            open: (self.most - self.places.available_permits()) as u64,
            most: self.most as u64,
            accepted: of(&self.counts.accepted),
            crowded: of(&self.counts.crowded),
            plain: of(&self.counts.plain),
            handshakes_failed: of(&self.counts.refused),
            handshakes_late: of(&self.counts.late),
            stalled: of(&self.counts.stalled),
            streams_crowded: of(&self.counts.streams_crowded),
            requests_too_many: of(&self.counts.too_many),
        }
    }

    /// Accepts a connection and serves it in its own task, until `ending`. The caller does not wait.
    pub(crate) fn admit(self: &Arc<Self>, stream: TcpStream, app: &Router, ending: &watch::Receiver<()>) {
        count(&self.counts.accepted);
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return count(&self.counts.crowded) };
        // Send small responses at once. If this fails, they only arrive later.
        let _ = stream.set_nodelay(true);
        // A client that has already disconnected needs no response.
        let Ok(peer) = stream.peer_addr().map(|address| Peer(address.ip())) else { return };
        let (accept_loop, app, ending) = (Arc::clone(self), app.clone(), ending.clone());
        tokio::spawn(async move {
            accept_loop.let_in(stream, peer, app, ending).await;
            drop(place);
        });
    }

    /// Checks the rate limits for a request of this address.
    ///
    /// # Errors
    /// If a limit is exceeded, which is counted.
    pub(crate) fn hear(&self, peer: Peer) -> Result<(), TooMany> {
        let heard = self.requests.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now(), peer);
        heard.inspect_err(|_| count(&self.counts.too_many))
    }

    /// Returns a permit for a stream; none if there are too many streams.
    pub(crate) fn place_of_stream(&self) -> Option<OwnedSemaphorePermit> {
        self.place_in(&self.streams)
    }

    /// Returns a permit for a sample stream; none if there are too many.
    pub(crate) fn place_of_samples(&self) -> Option<OwnedSemaphorePermit> {
        self.place_in(&self.samples)
    }

    fn place_in(&self, places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(places).try_acquire_owned().ok();
        if place.is_none() {
            count(&self.counts.streams_crowded);
        }
        place
    }

    /// Waits until all connections are closed.
    pub(crate) async fn left(&self) {
        // The semaphore is never closed.
        let _ = self.places.acquire_many(self.most as u32).await;
    }

    async fn let_in(&self, stream: TcpStream, peer: Peer, app: Router, mut ending: watch::Receiver<()>) {
        let Some(acceptor) = &self.acceptor else { return self.converse(stream, peer, app, ending).await };
        let arrived = tokio::select! {
            arrived = timeout(self.patience, arrive(acceptor, stream)) => arrived,
            _ = ending.changed() => return,
        };
        match arrived {
            Ok(Arrived::Encrypted(stream)) => self.converse(*stream, peer, app, ending).await,
            Ok(Arrived::Plain(stream)) => {
                count(&self.counts.plain);
                self.converse(stream, peer, Router::new().fallback(speak_tls), ending).await;
            }
            Ok(Arrived::Gone) => count(&self.counts.refused),
            Err(_) => count(&self.counts.late),
        }
    }

    /// Serves one client until either side closes the connection.
    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        peer: Peer,
        app: Router,
        mut ending: watch::Receiver<()>,
    ) {
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.patience).max_buf_size(HEAD_BYTES).keep_alive(true);
        let mut stream = TimeoutWriter::new(stream);
        stream.set_timeout(Some(self.patience));
        let app = MapRequest::new(app, move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request
        });
        let mut connection =
            std::pin::pin!(http.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(app)));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            _ = ending.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        // An error of a connection concerns only its client.
        if ended.is_err_and(|error| is_stalled(&error)) {
            count(&self.counts.stalled);
        }
    }
}

/// Whether a connection ended because its client did not read.
fn is_stalled(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == ErrorKind::TimedOut)
}

/// How a client of a TLS server began its connection.
enum Arrived {
    Encrypted(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
    Gone,
}

/// Accepts a TLS handshake. The first byte identifies a client that speaks plain HTTP, which then gets an explanation.
async fn arrive(acceptor: &TlsAcceptor, stream: TcpStream) -> Arrived {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first == [HANDSHAKE] => {}
        Ok(1) => return Arrived::Plain(stream),
        _ => return Arrived::Gone,
    }
    match acceptor.accept(stream).await {
        Ok(stream) => Arrived::Encrypted(Box::new(stream)),
        Err(_) => Arrived::Gone,
    }
}

async fn speak_tls() -> impl IntoResponse {
    let problem = Problem { error: SPEAK_TLS.to_owned() };
    (StatusCode::BAD_REQUEST, [(header::CONNECTION, "close")], Json(problem))
}

/// Raises this process's limit of open files by this number if possible, and returns the number of connections (at most
/// the same) that it allows.
pub(crate) fn make_room(connections: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(before) = current else { return connections };
    let wanted = before.saturating_add(connections as u64);
    let wanted = maximum.map_or(wanted, |most| wanted.min(most));
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
    room(before, if is_raised { wanted } else { before }, connections)
}

/// The added part is for connections, and the run keeps what it had. If the added part is less than half of that, they
/// share.
fn room(before: u64, now: u64, connections: usize) -> usize {
    (now - before).max(before / 2).min(connections as u64) as usize
}

/// Passes a request on, or refuses it and says when to retry.
pub(crate) async fn bound(
    State(accept_loop): State<Arc<AcceptLoop>>,
    request: extract::Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get().copied();
    match peer.and_then(|peer| accept_loop.hear(peer).err()) {
        Some(too_many) => too_many.into_response(),
        None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn connections_leave_the_run_what_it_had_or_half_of_it() {
        for (before, now, expected) in
            [(1024, 3072, 2048), (1024, 1024, 512), (3000, 4096, 1500), (1024, 1800, 776), (20_000, 20_000, 2048)]
        {
            assert_eq!(room(before, now, 2048), expected, "{before} {now}");
        }
    }
}
