//! TCP endpoints, over whichever mechanism of the kernel the configuration names.
//!
//! ```text
//!  Tcp ─► readiness: epoll | poll | select      asks what is ready, then reads and writes
//!     └─► uring                                 hands operations over, and takes what has been done
//! ```

mod choice;
mod config;
mod readiness;
mod socket;
mod timers;
mod uring;

use ropewalk_memory::Pool;

pub use self::choice::Choice;
pub use self::config::{Mechanism, TcpConfig, UnknownMechanism};
pub use self::socket::{resolve, resolve_to_listen};

use self::readiness::{Epoll, Poll, ReadyTcp, Select};
use self::uring::{Ring, UringTcp};
use crate::endpoint::{Dispatcher, EndpointError};

/// Tries whether this process may use io_uring, and whether the kernel has all that is used of it.
///
/// # Errors
/// Permission denied where it is forbidden, unsupported where the kernel has it not, or not all of it; else what the kernel
/// says.
pub fn try_io_uring() -> std::io::Result<()> {
    Ring::new().map(drop)
}

/// The operations of io_uring that endpoints use, by the kernel's names, and whether this kernel has them; `PBUF_RING_INC` are
/// buffers that are filled bit by bit.
///
/// # Errors
/// As [`try_io_uring`], where no ring can be made at all.
pub fn io_uring_operations() -> std::io::Result<Vec<(&'static str, bool)>> {
    uring::used()
}

/// A dispatcher of TCP endpoints with its receive pool.
pub struct Tcp {
    inner: Box<dyn Dispatcher + Send>,
    choice: Choice,
    congestion_control: Option<String>,
}

impl Tcp {
    /// A dispatcher that receives into `pool`.
    ///
    /// # Errors
    /// The kernel lacks the mechanism, or the process has no descriptor left.
    pub fn new(mut config: TcpConfig, pool: Pool) -> Result<Self, EndpointError> {
        config.congestion_control = config.congestion_control.filter(|name| socket::has_congestion_control(name));
        let congestion_control = config.congestion_control.clone();
        let failed = |mechanism: Mechanism| {
            let address = format!("a dispatcher over {mechanism}");
            move |source| EndpointError::System { what: "cannot make", address, source }
        };
        let (choice, ring) = Choice::make(config.mechanism, Ring::new).map_err(failed(config.mechanism))?;
        let inner: std::io::Result<Box<dyn Dispatcher + Send>> = match (choice.mechanism, ring) {
            (_, Some(ring)) => boxed(UringTcp::new(config, ring, pool)),
            (Mechanism::Poll, None) => boxed(ReadyTcp::<Poll>::new(config, pool)),
            (Mechanism::Select, None) => boxed(ReadyTcp::<Select>::new(config, pool)),
            (_, None) => boxed(ReadyTcp::<Epoll>::new(config, pool)),
        };
        let inner = inner.map_err(failed(choice.mechanism))?;
        Ok(Self { inner, choice, congestion_control })
    }

    /// The mechanism in use, and why it is that one.
    pub const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The congestion control that the sockets get; `None` if they keep the system's.
    pub fn congestion_control(&self) -> Option<&str> {
        self.congestion_control.as_deref()
    }
}

fn boxed<D: Dispatcher + Send + 'static>(made: std::io::Result<D>) -> std::io::Result<Box<dyn Dispatcher + Send>> {
    made.map(|dispatcher| Box::new(dispatcher) as Box<dyn Dispatcher + Send>)
}

/// Everything is done by the mechanism.
impl Dispatcher for Tcp {
    crate::pass_on!(
        inner:
        listen, address_of, connect, adopt, accept, reject, set_owner, pool, pool_mut, post_block, set_reading,
        is_dry, peek, peer_has_ended, has_waiting, send, hands_over, hand_over, set_send_limits, send_room, queued, set_half_close, finish, close,
        abort, poll, prepare_wait, wait_descriptor, own_wait, next_deadline
    );
}
