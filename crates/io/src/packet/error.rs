//! Why there is no receiver or sender.

use std::io;
use std::net::SocketAddr;

use ropewalk_memory::PoolError;

/// Why a receiver or a sender could not be made.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PacketError {
    /// A setting is impossible.
    #[error("{what}")]
    Config {
        /// What is wrong, and what would be right.
        what: &'static str,
    },
    /// The right is missing.
    #[error("{what} at {address}: the right is missing; run as the administrator, or give the program CAP_NET_RAW")]
    Denied {
        /// What was tried.
        what: &'static str,
        /// For which address.
        address: SocketAddr,
    },
    /// Somebody else receives there.
    #[error("cannot receive at {address}: the address is taken; choose another port, or 0 for any free one")]
    AddressInUse {
        /// What was given.
        address: SocketAddr,
    },
    /// The system refused a call.
    #[error("{what} at {address}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// For which address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// There is no memory to receive into.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

impl PacketError {
    /// What the system's refusal means to the user.
    pub(super) fn of(what: &'static str, address: impl Into<SocketAddr>, source: io::Error) -> Self {
        let address = address.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied { what, address },
            io::ErrorKind::AddrInUse => Self::AddressInUse { address },
            _ => Self::System { what, address, source },
        }
    }
}
