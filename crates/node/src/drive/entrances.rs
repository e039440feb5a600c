//! How front ends come to their readout unit, other than by connecting to its service point and saying who they are.
//!
//! ```text
//!  listen: a service point of its own ---- whoever connects there is the source
//!  call:   the board listens ------------- called, and called again when the connection has ended
//!  adopt:  one end of a local pair ------- into the other one a program, or a thread that reads a file, writes
//! ```
//! Here the place says whose bytes come; what they are is said by the source's own framing, where it has one.

use ropewalk_io::{Dispatcher, Endpoint, EndpointError, ServicePoint};
use ropewalk_memory::Owner;
use ropewalk_terms::Instant;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Pause before a board that does not answer is called again.
const RETRY: Duration = Duration::from_millis(200);

/// A way in for one source.
#[derive(Debug)]
pub enum Entrance {
    /// Whoever connects to this address is the source.
    Listen(String),
    /// The source listens at this address: it is called, and called again when the connection has ended, unless its end is
    /// the source's end.
    Call(String),
    /// What comes out of this socket is the source's.
    Adopt {
        /// One end of a connected pair.
        socket: OwnedFd,
        /// What is at the other one, for messages.
        name: String,
    },
}

/// A board that listens.
#[derive(Debug)]
struct Call {
    source: usize,
    address: String,
    endpoint: Option<Endpoint>,
    retry: Instant,
    /// It has said everything that it had to say.
    is_over: bool,
}

/// Every entrance that belongs to one source.
#[derive(Debug, Default)]
pub(super) struct Entrances {
    listening: Vec<(ServicePoint, usize)>,
    calls: Vec<Call>,
    adopted: Vec<(Endpoint, usize)>,
}

impl Entrances {
    /// Another way for a source to come in; returns the address where it listens, port filled in. Endpoints that are made
    /// here have `owner`'s quota at first.
    ///
    /// # Errors
    /// Where the address cannot be listened on, or the transport has no sockets to adopt.
    pub(super) fn add(
        &mut self,
        endpoints: &mut impl Dispatcher,
        source: usize,
        entrance: Entrance,
        owner: Owner,
    ) -> Result<Option<String>, EndpointError> {
        match entrance {
            Entrance::Listen(address) => {
                let service = endpoints.listen(&address)?;
                self.listening.push((service, source));
                return Ok(endpoints.address_of(service));
            }
            Entrance::Call(address) => {
                self.calls.push(Call { source, address, endpoint: None, retry: Instant::ZERO, is_over: false });
            }
            Entrance::Adopt { socket, name } => {
                let adopted = endpoints.adopt(socket);
                let wrong = |source| EndpointError::System { what: "cannot read from", address: name, source };
                let endpoint = adopted.map_err(wrong)?;
                endpoints.set_owner(endpoint, owner);
                self.adopted.push((endpoint, source));
            }
        }
        Ok(None)
    }

    /// Whose service point it is; none for the one that all share.
    pub(super) fn source_at(&self, service: ServicePoint) -> Option<usize> {
        self.listening.iter().find(|(known, _)| *known == service).map(|(_, source)| *source)
    }

    /// Whose connection it is that was called or adopted, now that it stands.
    pub(super) fn established(&mut self, endpoint: Endpoint) -> Option<usize> {
        let called = self.calls.iter().find(|call| call.endpoint == Some(endpoint)).map(|call| call.source);
        called.or_else(|| {
            let place = self.adopted.iter().position(|(known, _)| *known == endpoint)?;
            Some(self.adopted.swap_remove(place).1)
        })
    }

    /// Calls whoever is not connected, where it is time; what they say first lies in `owner`'s blocks. Returns how many
    /// were called.
    pub(super) fn call_due(&mut self, now: Instant, endpoints: &mut impl Dispatcher, owner: Owner) -> usize {
        let is_due = |call: &&mut Call| call.endpoint.is_none() && !call.is_over && now >= call.retry;
        let mut called = 0;
        for call in self.calls.iter_mut().filter(is_due) {
            call.retry = now.after(RETRY);
            call.endpoint = endpoints.connect(&call.address).ok();
            call.endpoint.into_iter().for_each(|endpoint| endpoints.set_owner(endpoint, owner));
            called += 1;
        }
        called
    }

    /// A connection has ended, or did not come to stand. A source that `may_return` is called again after a while.
    pub(super) fn ended(&mut self, now: Instant, endpoint: Endpoint, may_return: bool) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.endpoint == Some(endpoint)) {
            call.endpoint = None;
            call.retry = now.after(RETRY);
            call.is_over = !may_return;
        }
    }

    /// When somebody is called again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.calls.iter().filter(|call| call.endpoint.is_none() && !call.is_over);
        waiting.map(|call| call.retry).min()
    }
}
