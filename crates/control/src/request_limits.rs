//! Limits of requests and responses.
//!
//! Requests are counted, of everybody together and of each address, so that an address which asks as fast as it can leaves others their
//! part of the one thread that serves. A dashboard asks for about thirty files and numbers when it is opened, and then six times a second
//! at most. Fifty of them may come from one address, through a tunnel: 1,500 at once and 300 a second, which is heard. A stream counts once.
//!
//! The body of a request is complete before a handler sees it, so that no handler waits for a slow sender. The memory of responses that
//! clients have not read yet is limited.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::accept_loop::AcceptLoop;
use crate::api_types::Problem;

/// Requests of everybody.
const REQUESTS_TOGETHER: Rate = Rate { burst: 4000.0, per_second: 2000.0 };
/// Requests of one address.
const OF_ONE: Rate = Rate { burst: 2000.0, per_second: 500.0 };
/// Addresses that are told apart; further ones share what one of them may.
const MOST_PEERS: usize = 1024;
/// Bits of an IPv6 address that say whose it is: the rest its owner may choose anew for each request.
const NETWORK: u128 = u128::MAX << 64;

/// Whoever sent a request.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// So many at once, and so many a second.
#[derive(Copy, Clone, Debug)]
struct Rate {
    burst: f64,
    per_second: f64,
}

/// What is left of a rate.
#[derive(Copy, Clone, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    const fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    fn left(&self, rate: Rate, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + passed * rate.per_second).min(rate.burst)
    }

    /// How long it is until there is one; none where there is.
    fn wait(&mut self, rate: Rate, now: Instant) -> Option<Duration> {
        (self.left, self.at) = (self.left(rate, now), now);
        (self.left < 1.0).then(|| Duration::from_secs_f64((1.0 - self.left) / rate.per_second))
    }
}

/// Why a request is not heard.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct TooMany {
    /// There are too many of one address, or of everybody.
    is_of_one: bool,
    /// When there is room for one again.
    after: Duration,
}

/// What everybody may still ask.
#[derive(Debug)]
pub(crate) struct Requests {
    everybody: Bucket,
    peers: HashMap<IpAddr, Bucket>,
    others: Bucket,
}

impl Requests {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            everybody: Bucket::full(REQUESTS_TOGETHER, now),
            peers: HashMap::new(),
            others: Bucket::full(OF_ONE, now),
        }
    }

    /// A request has come.
    ///
    /// # Errors
    /// Where there are too many. One that is not heard counts for nobody.
    pub(crate) fn take(&mut self, now: Instant, Peer(address): Peer) -> Result<(), TooMany> {
        let address = owner(address);
        if self.peers.len() >= MOST_PEERS && !self.peers.contains_key(&address) {
            // Those who have asked for nothing lately are as good as new.
            self.peers.retain(|_, bucket| bucket.left(OF_ONE, now) < OF_ONE.burst);
        }
        let is_known = self.peers.len() < MOST_PEERS || self.peers.contains_key(&address);
        let Self { everybody, peers, others } = self;
        let of_one = if is_known { peers.entry(address).or_insert_with(|| Bucket::full(OF_ONE, now)) } else { others };
        if let Some(after) = of_one.wait(OF_ONE, now) {
            return Err(TooMany { is_of_one: true, after });
        }
        if let Some(after) = everybody.wait(REQUESTS_TOGETHER, now) {
            return Err(TooMany { is_of_one: false, after });
        }
        of_one.left -= 1.0;
        everybody.left -= 1.0;
        Ok(())
    }
}

/// Whoever has this address has all that begin as this does.
fn owner(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        address => address,
    }
}

/// Lets a request through, or says when to ask again.
pub(crate) async fn bound(State(accept_loop): State<Arc<AcceptLoop>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get().copied();
    let Some(TooMany { is_of_one, after }) = peer.and_then(|peer| accept_loop.hear(peer).err()) else {
        return next.run(request).await;
    };
    let (rate, whose) =
        if is_of_one { (OF_ONE, "from one address") } else { (REQUESTS_TOGETHER, "from everybody together") };
    let seconds = after.as_secs() + 1;
    let error =
        format!("more than {} requests a second {whose}: ask again in {seconds} s, and less often", rate.per_second);
    let headers = [(header::RETRY_AFTER, seconds.to_string())];
    (StatusCode::TOO_MANY_REQUESTS, headers, Json(Problem { error })).into_response()
}

/// Bytes of a request's body.
pub(crate) const BODY_BYTES: usize = 64 << 10;

/// What a request's body says, as JSON. One that is not of this form is told so (400).
pub(crate) struct Said<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Said<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::from_request(request, state).await {
            Ok(Json(said)) => Ok(Self(said)),
            Err(error) => Err((StatusCode::BAD_REQUEST, Json(Problem { error: error.body_text() })).into_response()),
        }
    }
}

/// Has longer bodies refused, and those that have not come after so long a time.
pub(crate) fn bounded(app: Router, patience: Duration) -> Router {
    app.layer(from_fn_with_state(patience, whole)).layer(DefaultBodyLimit::max(BODY_BYTES))
}

/// Waits until all of a body is there.
async fn whole(State(patience): State<Duration>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let reading = Bytes::from_request(Request::from_parts(parts.clone(), body), &());
    let (status, error) = match timeout(patience, reading).await {
        Ok(Ok(bytes)) => return next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            (error.status(), format!("a request's body has {BODY_BYTES} bytes at most"))
        }
        Ok(Err(error)) => (error.status(), error.body_text()),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, format!("the request's body did not come within {patience:?}")),
    };
    // What is left of the body would be taken for the next request.
    (status, [(header::CONNECTION, "close")], Json(Problem { error })).into_response()
}

/// Responses up to this size, in bytes, are always sent. Responses to commands are smaller.
const SMALL: usize = 64 << 10;
/// Memory of all larger responses together, in bytes.
const UNREAD_TOGETHER: u32 = 128 << 20;

/// The memory that larger responses share.
#[derive(Clone, Debug)]
pub(crate) struct ResponseBudget {
    most: u32,
    free: Arc<Semaphore>,
}

impl ResponseBudget {
    pub(crate) fn new() -> Self {
        Self::of(UNREAD_TOGETHER)
    }

    fn of(most: u32) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most as usize)) }
    }
}

/// A response that holds its part of the memory until its last byte is sent.
struct Held {
    bytes: Bytes,
    _part: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Sends a response if there is memory for it. Streams have no length, and share what they send.
pub(crate) async fn hold(State(memory): State<ResponseBudget>, response: Response) -> Response {
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    if bytes <= SMALL as u64 {
        return response;
    }
    // A response that is larger than the budget takes all of it.
    let part = u32::try_from(bytes).unwrap_or(u32::MAX).min(memory.most);
    let Ok(part) = memory.free.try_acquire_many_owned(part) else {
        let error = "too many large responses have not been read yet: try again later".to_owned();
        return (StatusCode::SERVICE_UNAVAILABLE, Json(Problem { error })).into_response();
    };
    let (head, body) = response.into_parts();
    // It is there as a whole: its length is known.
    match to_bytes(body, usize::MAX).await {
        Ok(bytes) => Response::from_parts(head, Body::from(Bytes::from_owner(Held { bytes, _part: part }))),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, Json(Problem { error: error.to_string() })).into_response(),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn peer(text: &str) -> Peer {
        Peer(text.parse().expect("an address"))
    }

    /// How many of so many requests at once are heard.
    fn heard(requests: &mut Requests, now: Instant, peer: Peer, count: usize) -> usize {
        (0..count).filter(|_| requests.take(now, peer).is_ok()).count()
    }

    #[test]
    fn one_address_has_its_part_and_others_theirs() {
        let now = Instant::now();
        let mut requests = Requests::new(now);
        assert_eq!(heard(&mut requests, now, peer("10.0.0.1"), 5000), 2000);
        let refused = requests.take(now, peer("::ffff:10.0.0.1")).expect_err("it is the same one");
        assert_eq!(refused, TooMany { is_of_one: true, after: Duration::from_millis(2) });
        assert_eq!(heard(&mut requests, now, peer("10.0.0.2"), 1900), 1900);
        assert_eq!(heard(&mut requests, now, peer("10.0.0.3"), 500), 100, "all together have asked for so much");
        assert!(!requests.take(now, peer("10.0.0.3")).expect_err("too many").is_of_one);
        let later = now + Duration::from_secs(1);
        assert_eq!(heard(&mut requests, later, peer("10.0.0.1"), 5000), 500);
        assert_eq!(heard(&mut requests, later, peer("10.0.0.3"), 5000), 1500);
    }

    #[test]
    fn fifty_dashboards_behind_one_address_are_heard() {
        let mut now = Instant::now();
        let mut requests = Requests::new(now);
        assert_eq!(heard(&mut requests, now, peer("127.0.0.1"), 50 * 30), 50 * 30);
        for _ in 0..600 {
            now += Duration::from_millis(100);
            assert_eq!(heard(&mut requests, now, peer("127.0.0.1"), 30), 30);
        }
    }

    #[test]
    fn addresses_are_told_apart_as_far_as_there_is_room() {
        let mut now = Instant::now();
        let mut requests = Requests::new(now);
        for network in 0..3000_u32 {
            now += Duration::from_millis(1);
            assert!(requests.take(now, Peer(std::net::Ipv4Addr::from_bits(network).into())).is_ok());
            assert!(requests.peers.len() <= MOST_PEERS);
        }
        // The whole network is one's.
        let of_network = |host: u32| peer(&format!("2001:db8::{host:x}"));
        let heard = (1..=5000).filter(|host| requests.take(now, of_network(*host)).is_ok()).count();
        assert_eq!(heard, 2000);
        // Where there is no room because all are busy, the rest share.
        let mut requests = Requests::new(now);
        for host in 0..MOST_PEERS as u32 {
            assert!(requests.take(now, Peer(std::net::Ipv4Addr::from_bits(host).into())).is_ok());
        }
        let stranger = |host: u32| Peer(std::net::Ipv4Addr::from_bits(0x0a00_0000 + host).into());
        let heard = (0..5000).filter(|host| requests.take(now, stranger(*host)).is_ok()).count();
        assert_eq!((heard, requests.peers.len()), (2000, MOST_PEERS));
    }

    #[test]
    fn what_is_not_taken_is_bounded_and_small_answers_are_always_given() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let memory = ResponseBudget::of(300_000);
            let give = async |bytes: usize| hold(State(memory.clone()), vec![7_u8; bytes].into_response()).await;
            let first = give(200_000).await;
            assert_eq!(first.status(), 200);
            assert_eq!(give(200_000).await.status(), 503);
            assert_eq!(give(SMALL).await.status(), 200);
            // It is counted until its bytes are gone, not until somebody has them.
            let bytes = to_bytes(first.into_body(), usize::MAX).await.expect("it is there");
            assert_eq!((bytes.len(), give(200_000).await.status().as_u16()), (200_000, 503));
            drop(bytes);
            assert_eq!(give(200_000).await.status(), 200);
            // The longest is given to whoever asks alone.
            let longest = give(1_000_000).await;
            assert_eq!((longest.status().as_u16(), give(100_000).await.status().as_u16()), (200, 503));
        });
    }
}
