//! Limits of requests and responses.
//!
//! Requests are limited in total and for each address, so that one busy client leaves other clients their share of the
//! single server thread. A dashboard sends about thirty requests when it is opened, and then at most six a second.
//! Fifty dashboards behind one address, for example through a tunnel, send 1,500 requests at once and 300 a second,
//! which the limits allow. A stream counts as one request.
//!
//! The body of a request is complete before a handler sees it, so that no handler waits for a slow sender. The memory
//! of responses that clients have not read yet is limited.

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

use crate::api_types::Problem;

/// The limit of all clients together.
const REQUESTS_TOGETHER: Rate = Rate { burst: 4000.0, per_second: 2000.0 };
/// The limit of one address.
const OF_ONE: Rate = Rate { burst: 2000.0, per_second: 500.0 };
/// Addresses with a limit of their own; all further addresses share one.
const MOST_PEERS: usize = 1024;
/// The network part of an IPv6 address. A client can choose the remaining bits anew for each request.
const NETWORK: u128 = u128::MAX << 64;

/// The sender of a request.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// A rate limit: a burst, and requests a second.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rate {
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

/// The remaining allowance of a rate limit.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) left: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) const fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    fn left(&self, rate: Rate, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + passed * rate.per_second).min(rate.burst)
    }

    /// Returns the time until the next request is allowed; none if it is allowed now.
    pub(crate) fn wait(&mut self, rate: Rate, now: Instant) -> Option<Duration> {
        (self.left, self.at) = (self.left(rate, now), now);
        (self.left < 1.0).then(|| Duration::from_secs_f64((1.0 - self.left) / rate.per_second))
    }
}

/// Why a request is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct TooMany {
    /// Whether the limit of one address was exceeded, rather than that of all clients together.
    is_of_one: bool,
    /// Time until the next request is allowed.
    after: Duration,
}

impl IntoResponse for TooMany {
    fn into_response(self) -> Response {
        let (rate, whose) = if self.is_of_one {
            (OF_ONE, "from one address")
        } else {
            (REQUESTS_TOGETHER, "from all clients together")
        };
        let seconds = self.after.as_secs() + 1;
        let error = format!(
            "more than {} requests a second {whose}: ask again in {seconds} s, and less often",
            rate.per_second
        );
        let headers = [(header::RETRY_AFTER, seconds.to_string())];
        (StatusCode::TOO_MANY_REQUESTS, headers, Json(Problem { error })).into_response()
    }
}

/// The remaining allowances of all clients together and of each address.
#[derive(Debug)]
pub(crate) struct Requests {
    together: Bucket,
    peers: HashMap<IpAddr, Bucket>,
    others: Bucket,
}

impl Requests {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            together: Bucket::full(REQUESTS_TOGETHER, now),
            peers: HashMap::new(),
            others: Bucket::full(OF_ONE, now),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// If a limit is exceeded. A refused request does not count.
    pub(crate) fn take(&mut self, now: Instant, Peer(address): Peer) -> Result<(), TooMany> {
        let address = owner(address);
        if self.peers.len() >= MOST_PEERS && !self.peers.contains_key(&address) {
            // An address whose allowance is full again needs no entry.
            self.peers.retain(|_, bucket| bucket.left(OF_ONE, now) < OF_ONE.burst);
        }
        let is_known = self.peers.len() < MOST_PEERS || self.peers.contains_key(&address);
        let Self { together, peers, others } = self;
        let of_one = if is_known { peers.entry(address).or_insert_with(|| Bucket::full(OF_ONE, now)) } else { others };
        if let Some(after) = of_one.wait(OF_ONE, now) {
            return Err(TooMany { is_of_one: true, after });
        }
        if let Some(after) = together.wait(REQUESTS_TOGETHER, now) {
            return Err(TooMany { is_of_one: false, after });
        }
        of_one.left -= 1.0;
        together.left -= 1.0;
        Ok(())
    }
}

/// Returns the address that identifies the client: of an IPv6 address only the network part, which one client owns
/// whole.
fn owner(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        address => address,
    }
}

/// The maximum length of a request's body, in bytes.
pub(crate) const BODY_BYTES: usize = 64 << 10;

/// The JSON body of a request. A body of another form is refused with status 400.
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

/// Refuses bodies that are too long, and bodies that have not arrived completely within `patience`.
pub(crate) fn bounded(app: Router, patience: Duration) -> Router {
    app.layer(from_fn_with_state(patience, whole)).layer(DefaultBodyLimit::max(BODY_BYTES))
}

/// Waits until the body is complete.
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
    // Otherwise the rest of the body would be read as the next request.
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
    // The response is complete, since its length is known.
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

    /// Returns how many of `count` simultaneous requests are allowed.
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
        // All addresses of a network share one limit.
        let of_network = |host: u32| peer(&format!("2001:db8::{host:x}"));
        let heard = (1..=5000).filter(|host| requests.take(now, of_network(*host)).is_ok()).count();
        assert_eq!(heard, 2000);
        // When all entries are busy, further addresses share one limit.
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
            // A response counts until its bytes are freed, not only until they are read.
            let bytes = to_bytes(first.into_body(), usize::MAX).await.expect("it is there");
            assert_eq!((bytes.len(), give(200_000).await.status().as_u16()), (200_000, 503));
            drop(bytes);
            assert_eq!(give(200_000).await.status(), 200);
            // A response larger than the budget is sent if no other one is held.
            let longest = give(1_000_000).await;
            assert_eq!((longest.status().as_u16(), give(100_000).await.status().as_u16()), (200, 503));
        });
    }
}
