//! Makes sockets: addresses, options, the meaning of the kernel's errors, and the time limits for connecting and
//! closing.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use ropewalk_terms::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::{self, AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, sockopt};

use super::TcpConfig;
use crate::endpoint::{BrokenCause, ConnectCause, Endpoint, EndpointError};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Resolves `host:port`. The system resolves names, which may take a while: use numeric addresses if the caller must
/// not be delayed.
///
/// # Errors
/// If it is no such address, or the name does not resolve.
pub fn resolve(address: &str) -> Result<SocketAddr, EndpointError> {
    resolve_all(address).map(|found| found[0])
}

/// Resolves the address to receive datagrams on: the IPv4 address if the name has both.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_to_listen(address: &str) -> Result<SocketAddr, EndpointError> {
    let found = resolve_all(address)?;
    Ok(found.iter().find(|found| found.is_ipv4()).copied().unwrap_or(found[0]))
}

/// Returns at least one address.
fn resolve_all(address: &str) -> Result<Vec<SocketAddr>, EndpointError> {
    let bad = || EndpointError::BadAddress {
        address: address.to_owned(),
        expected: "host:port, for example 127.0.0.1:9000 or [::1]:0",
    };
    if let Ok(numeric) = address.parse() {
        return Ok(vec![numeric]);
    }
    let Some((name, port)) = address.rsplit_once(':') else { return Err(bad()) };
    let name = name.trim_matches(['[', ']']);
    let port = port.parse::<u16>().map_err(|_| bad())?;
    if name.is_empty() {
        return Err(bad());
    }
    let unknown = |source| EndpointError::NoSuchName { name: name.to_owned(), address: address.to_owned(), source };
    let found: Vec<_> = (name, port).to_socket_addrs().map_err(unknown)?.collect();
    if found.is_empty() {
        Err(unknown(io::Error::new(io::ErrorKind::NotFound, "it has no address")))
    } else {
        Ok(found)
    }
}

/// Whether this process may use this congestion control.
pub(super) fn has_congestion_control(name: &str) -> bool {
    new_socket(AddressFamily::INET).is_ok_and(|socket| sockopt::set_tcp_congestion(&socket, name).is_ok())
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(net::socket_with(family, SocketType::STREAM, FLAGS, None)?)
}

/// Copies the first waiting bytes of the socket into `head` without taking them, as many as fit, and returns their
/// number. `None` if nothing waits and nothing will arrive.
pub(super) fn peek(socket: &OwnedFd, head: &mut [u8]) -> Option<usize> {
    match net::recv(socket, head, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((bytes, _)) => (bytes > 0).then_some(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Some(0),
        Err(_) => None,
    }
}

/// Whether bytes wait in the socket.
pub(super) fn has_waiting(socket: &OwnedFd) -> bool {
    rustix::io::ioctl_fionread(socket).is_ok_and(|bytes| bytes > 0)
}

/// Whether the peer has closed its side, or the connection is broken.
pub(super) fn peer_has_ended(socket: &OwnedFd) -> bool {
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|_| asked[0].revents().intersects(ended))
}

/// Makes a socket with every option that listeners pass on to the connections they accept.
fn configured_socket(address: SocketAddr, config: &TcpConfig) -> io::Result<OwnedFd> {
    let socket = new_socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    if let Some(name) = &config.congestion_control {
        sockopt::set_tcp_congestion(&socket, name)?;
    }
    // Before connecting and listening: the window scale is negotiated with these in mind.
    if config.socket_send_buffer > 0 {
        sockopt::set_socket_send_buffer_size(&socket, config.socket_send_buffer)?;
    }
    if config.socket_receive_buffer > 0 {
        sockopt::set_socket_recv_buffer_size(&socket, config.socket_receive_buffer)?;
    }
    sockopt::set_tcp_nodelay(&socket, config.no_delay)?;
    if let Some(silence) = config.keep_alive {
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, silence)?;
        sockopt::set_tcp_keepintvl(&socket, silence / 3)?;
        sockopt::set_tcp_keepcnt(&socket, 3)?;
    }
    Ok(socket)
}

/// How long the port of a killed process may stay in use, and the interval of retries meanwhile.
const GONE_AFTER: Duration = Duration::from_secs(1);
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Makes a listening socket; also returns its address with the port filled in. The kernel closes the sockets of a
/// killed process's io_uring a moment after the process ended: a port in use is retried for up to a second.
pub(super) fn listen(address: &str, config: &TcpConfig) -> Result<(OwnedFd, SocketAddr), EndpointError> {
    let (resolved, begin) = (resolve(address)?, std::time::Instant::now());
    loop {
        match listen_now(resolved, config) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < GONE_AFTER => {
                std::thread::sleep(TRY_AGAIN);
            }
            done => return done.map_err(|error| listen_error(address, error)),
        }
    }
}

fn listen_now(address: SocketAddr, config: &TcpConfig) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = configured_socket(address, config)?;
    // A node that restarts must not wait for the connections of its previous process to expire.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, config.listen_backlog)?;
    let bound = net::getsockname(&socket)?.try_into()?;
    Ok((socket, bound))
}

/// Makes a socket that is connecting; also returns the cause if that failed at once.
pub(super) fn connect(address: &str, config: &TcpConfig) -> Result<(OwnedFd, Option<ConnectCause>), EndpointError> {
    let resolved = resolve(address)?;
    let socket = configured_socket(resolved, config).map_err(|error| connect_error(address, error))?;
    let failure = match net::connect(&socket, &resolved) {
        Ok(()) | Err(Errno::INPROGRESS) => None,
        Err(error) => Some(connect_cause(error)),
    };
    Ok((socket, failure))
}

/// Accepts the next connection that waits at a listener.
pub(super) fn accept(listener: &OwnedFd) -> Result<(OwnedFd, SocketAddr), Errno> {
    let (socket, address) = net::acceptfrom_with(listener, FLAGS)?;
    Ok((socket, address.ok_or(Errno::CONNABORTED)?.try_into()?))
}

/// Applies our own settings to a socket that was made elsewhere.
pub(super) fn ready_to_adopt(socket: &OwnedFd) -> io::Result<()> {
    rustix::io::fcntl_setfd(socket, FdFlags::CLOEXEC)?;
    Ok(rustix::io::ioctl_fionbio(socket, true)?)
}

/// The result of connecting, after the kernel reported that it has ended.
pub(super) fn connect_result(socket: &OwnedFd) -> Result<(), ConnectCause> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => {}
        Ok(Err(error)) | Err(error) => return Err(connect_cause(error)),
    }
    // A connection to a free local port can, rarely, connect to itself: there is no listener, so it is refused.
    let local: Option<SocketAddr> = net::getsockname(socket).ok().and_then(|address| address.try_into().ok());
    if local.is_some() && local == peer(socket) { Err(ConnectCause::Refused) } else { Ok(()) }
}

/// Ends the connection by a reset at once, also if the kernel still has operations on the socket.
pub(super) fn reset(socket: &OwnedFd) {
    reset_on_close(socket);
    // A local pair has no resets. If that fails too, the connection has ended anyway.
    let _ = net::connect_unspec(socket).or_else(|_| net::shutdown(socket, Shutdown::Both));
}

/// The address of the peer; `None` if the connection is gone.
pub(super) fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    net::getpeername(socket).ok().flatten().and_then(|address| address.try_into().ok())
}

/// Makes closing the socket a reset instead of an orderly end.
pub(super) fn reset_on_close(socket: &OwnedFd) {
    // If it fails, the connection has ended anyway.
    let _ = sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO));
}

pub(super) const fn connect_cause(error: Errno) -> ConnectCause {
    match error {
        Errno::CONNREFUSED | Errno::CONNRESET => ConnectCause::Refused,
        Errno::TIMEDOUT => ConnectCause::TimedOut,
        Errno::NETUNREACH | Errno::HOSTUNREACH => ConnectCause::Unreachable,
        other => ConnectCause::System(other.raw_os_error()),
    }
}

pub(super) const fn broken_cause(error: Errno) -> BrokenCause {
    match error {
        Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => BrokenCause::Reset,
        Errno::TIMEDOUT => BrokenCause::TimedOut,
        Errno::NETUNREACH | Errno::HOSTUNREACH => BrokenCause::Unreachable,
        other => BrokenCause::System(other.raw_os_error()),
    }
}

pub(super) fn listen_error(address: &str, source: io::Error) -> EndpointError {
    let address = address.to_owned();
    match source.kind() {
        io::ErrorKind::AddrInUse => EndpointError::AddressInUse { address },
        _ => EndpointError::System { what: "cannot listen on", address, source },
    }
}

pub(super) fn connect_error(address: &str, source: io::Error) -> EndpointError {
    EndpointError::System { what: "cannot connect to", address: address.to_owned(), source }
}

/// The endpoints with a running time limit; few, since most are neither connecting nor closing.
pub(super) struct Timers {
    /// Their time begins with the next poll, because only a poll knows the time.
    untimed: Vec<(Endpoint, Duration)>,
    running: Vec<(Endpoint, Instant)>,
}

impl Timers {
    /// Allocates room for this many endpoints.
    pub(super) fn with_capacity(endpoints: usize) -> Self {
        Self { untimed: Vec::with_capacity(endpoints), running: Vec::with_capacity(endpoints) }
    }

    /// Sets this time limit for the endpoint from the next poll on, and replaces an earlier one.
    pub(super) fn start(&mut self, endpoint: Endpoint, limit: Duration) {
        self.untimed.retain(|(known, _)| *known != endpoint);
        self.running.retain(|(known, _)| *known != endpoint);
        self.untimed.push((endpoint, limit));
    }

    /// Starts the pending time limits, and drops endpoints that are no longer awaited: a connection can be established
    /// as soon as it is requested.
    pub(super) fn begin(&mut self, now: Instant, is_awaited: impl Fn(Endpoint) -> bool) {
        self.running.extend(self.untimed.drain(..).map(|(endpoint, limit)| (endpoint, now.after(limit))));
        self.running.retain(|(endpoint, _)| is_awaited(*endpoint));
    }

    /// Returns an endpoint whose time limit has passed; each one once.
    pub(super) fn next_expired(&mut self, now: Instant) -> Option<Endpoint> {
        let place = self.running.iter().position(|(_, deadline)| *deadline <= now)?;
        Some(self.running.swap_remove(place).0)
    }

    /// Whether a time limit has yet to start.
    pub(super) fn has_untimed(&self) -> bool {
        !self.untimed.is_empty()
    }

    /// The next deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.running.iter().map(|(_, deadline)| *deadline).min()
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn an_unknown_name_is_distinguished_from_a_malformed_address() {
        for known in ["127.0.0.1:80", "[::1]:0", "localhost:9"] {
            assert!(resolve(known).is_ok(), "{known}");
        }
        for wrong in ["localhost", ":80", "localhost:http", "[::1]", "localhost:70000"] {
            assert!(matches!(resolve(wrong), Err(EndpointError::BadAddress { .. })), "{wrong}");
        }
        let error = resolve("board.invalid:80").expect_err("a reserved name that is never assigned");
        assert!(matches!(&error, EndpointError::NoSuchName { name, .. } if name == "board.invalid"), "{error}");
        assert!(error.to_string().contains("does not resolve"), "{error}");
    }

    const ONE: Endpoint = Endpoint::new(1, 0);
    const OTHER: Endpoint = Endpoint::new(2, 0);

    fn second(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn time_begins_with_the_poll_and_is_over_once() {
        let mut timers = Timers::with_capacity(4);
        timers.start(ONE, Duration::from_secs(5));
        assert!(timers.has_untimed() && timers.next_deadline().is_none());
        timers.begin(second(100), |_| true);
        assert_eq!((timers.has_untimed(), timers.next_deadline()), (false, Some(second(105))));
        assert_eq!(timers.next_expired(second(104)), None);
        assert_eq!((timers.next_expired(second(105)), timers.next_expired(second(106))), (Some(ONE), None));
    }

    #[test]
    fn a_present_peer_is_not_awaited_and_a_new_time_replaces_the_old_one() {
        let mut timers = Timers::with_capacity(4);
        timers.start(ONE, Duration::from_secs(5));
        timers.start(OTHER, Duration::from_secs(5));
        timers.begin(second(0), |endpoint| endpoint == OTHER);
        assert_eq!(timers.next_deadline(), Some(second(5)));
        timers.start(OTHER, Duration::from_secs(50));
        timers.begin(second(4), |_| true);
        assert_eq!((timers.next_expired(second(10)), timers.next_deadline()), (None, Some(second(54))));
    }
}
