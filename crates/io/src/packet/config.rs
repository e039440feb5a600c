//! How packets are received and sent, and why there may be no receiver or sender.

use core::fmt;
use core::str::FromStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use ropewalk_memory::PoolError;
use ropewalk_wire::internet::ip_number;

/// The packets that belong together: all that one receiver gets and one sender sends.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Flow {
    /// UDP. The port is part of the address.
    Udp,
    /// Straight in IPv4 packets of this protocol number, as in paper 1: one that no one else on the machine uses.
    Ip(u8),
}

impl Flow {
    /// The number of what IP carries.
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Udp => ip_number::UDP.0,
            Self::Ip(number) => number,
        }
    }
}

/// How packets are received.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum ReceiveMechanism {
    /// One system call for each packet.
    RecvFrom,
    /// One system call for a batch of packets.
    #[default]
    RecvMmsg,
    /// One system call for a train of UDP packets, which the kernel has coupled because they came from one sender and are
    /// equally long. A train that is lost counts as one packet: the kernel does not say how many it had.
    UdpGro,
}

/// How packets are sent.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SendMechanism {
    /// One system call for each packet.
    SendTo,
    /// One system call for all that is queued.
    #[default]
    SendMmsg,
    /// As `SendMmsg`; neighbours in the queue that go to one receiver and are equally long (the last one may be shorter)
    /// pass through the kernel as one packet, which is cut at its lower end.
    UdpGso,
}

macro_rules! words {
    ($type:ident, $error:ident, $list:literal: $($name:ident = $word:literal),*) => {
        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word for it in configurations.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.name())
            }
        }

        /// There is no such mechanism.
        #[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
        #[error($list)]
        pub struct $error;

        impl FromStr for $type {
            type Err = $error;

            fn from_str(word: &str) -> Result<Self, $error> {
                Self::ALL.iter().copied().find(|mechanism| mechanism.name() == word).ok_or($error)
            }
        }
    };
}

words!(ReceiveMechanism, UnknownReceiveMechanism, "no such mechanism; there are recvfrom, recvmmsg and udp-gro":
    RecvFrom = "recvfrom", RecvMmsg = "recvmmsg", UdpGro = "udp-gro");
words!(SendMechanism, UnknownSendMechanism, "no such mechanism; there are sendto, sendmmsg and udp-gso":
    SendTo = "sendto", SendMmsg = "sendmmsg", UdpGso = "udp-gso");

/// The most packets of a batch.
pub const MOST_BATCH: usize = 1024;

/// What to receive, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveConfig {
    /// How the kernel is asked.
    pub mechanism: ReceiveMechanism,
    /// Which packets.
    pub flow: Flow,
    /// This machine's address to which they are sent, 0.0.0.0 for any IPv4 address, `::` for any address; with the port (0: any free one) for UDP. IPv6 is for UDP alone.
    pub address: SocketAddr,
    /// Packets handed on by one call at most, from 1 to [`MOST_BATCH`].
    pub batch: usize,
    /// Bytes of the longest payload; longer packets are refused. Sockets set so much room aside for each packet of a batch.
    pub largest: usize,
    /// Bytes that wait in the kernel at most, 0 for its own default. The kernel counts a packet as more than it has,
    /// and gives no more than `net.core.rmem_max` without the administrator's rights.
    pub socket_buffer: usize,
    /// The address of the interface at which the group of a multicast address is joined; none: where the kernel's routes lead.
    pub interface: Option<IpAddr>,
    /// Several receivers of this address each get a part of the packets: those of one sender go to the same one (UDP alone).
    pub is_shared: bool,
}

impl ReceiveConfig {
    /// A flow at an address, with what fits Ethernet's usual frames.
    pub fn new(flow: Flow, address: impl Into<SocketAddr>) -> Self {
        Self {
            mechanism: ReceiveMechanism::RecvMmsg,
            flow,
            address: address.into(),
            batch: 64,
            largest: 1480,
            socket_buffer: 4 << 20,
            interface: None,
            is_shared: false,
        }
    }
}

/// What to send, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendConfig {
    /// How the kernel is asked.
    pub mechanism: SendMechanism,
    /// Which packets.
    pub flow: Flow,
    /// This machine's address from which they are sent, 0.0.0.0 for the one that leads to the receiver; with the port (0: any
    /// free one) for UDP.
    pub address: SocketAddrV4,
    /// Packets queued at most between two flushes, from 1 to [`MOST_BATCH`].
    pub batch: usize,
    /// Bytes that wait in the kernel at most, 0 for its own default.
    pub socket_buffer: usize,
}

impl SendConfig {
    /// A flow from an address.
    pub const fn new(flow: Flow, address: SocketAddrV4) -> Self {
        Self { mechanism: SendMechanism::SendMmsg, flow, address, batch: 64, socket_buffer: 4 << 20 }
    }
}

/// Any free port at any address of this machine.
pub const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

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
    /// Another program receives there.
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
