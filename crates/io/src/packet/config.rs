//! Settings for receiving and sending packets, and the errors of making a receiver or sender.

use core::fmt;
use core::str::FromStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use ropewalk_memory::PoolError;
use ropewalk_wire::internet::ip_number;

/// The packets that belong together: all packets of one receiver or one sender.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Flow {
    /// UDP. The port is part of the address.
    Udp,
    /// Directly in IPv4 packets of this protocol number, as in paper 1: a number that no other program on the machine
    /// uses.
    Ip(u8),
}

impl Flow {
    /// The protocol number in the IP header.
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
            /// All mechanisms.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in configurations.
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

/// Maximum number of packets of a batch.
pub const MOST_BATCH: usize = 1024;

/// Settings of a receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveConfig {
    /// The mechanism.
    pub mechanism: ReceiveMechanism,
    /// The packets to receive.
    pub flow: Flow,
    /// This machine's address as their destination, 0.0.0.0 for any IPv4 address, `::` for any address; with the port
    /// (0: any free one) for UDP. IPv6 only works for UDP.
    pub address: SocketAddr,
    /// Maximum number of packets delivered by one call, from 1 to [`MOST_BATCH`].
    pub batch: usize,
    /// Bytes of the longest payload; longer packets are refused. Sockets reserve this room for each packet of a batch.
    pub largest: usize,
    /// Maximum bytes that wait in the kernel, 0 for its own default. The kernel counts more bytes for a packet than the
    /// packet has, and allows no more than `net.core.rmem_max` without the administrator's rights.
    pub socket_buffer: usize,
    /// The address of the interface at which a multicast group is joined; `None` follows the kernel's routes.
    pub interface: Option<IpAddr>,
    /// Whether several receivers of this address each get a part of the packets: those of one sender go to the same
    /// receiver (UDP only).
    pub is_shared: bool,
}

impl ReceiveConfig {
    /// A flow at an address, with defaults for Ethernet's usual frames.
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

/// Settings of a sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendConfig {
    /// The mechanism.
    pub mechanism: SendMechanism,
    /// The packets to send.
    pub flow: Flow,
    /// This machine's address to send from, 0.0.0.0 for the one on the route to the receiver; with the port (0: any
    /// free one) for UDP.
    pub address: SocketAddrV4,
    /// Maximum number of packets queued between two flushes, from 1 to [`MOST_BATCH`].
    pub batch: usize,
    /// Maximum bytes that wait in the kernel, 0 for its own default.
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

/// Error of making a receiver or a sender.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PacketError {
    /// A setting is impossible.
    #[error("{what}")]
    Config {
        /// The setting, and its valid values.
        what: &'static str,
    },
    /// Missing permission.
    #[error("{what} at {address}: the right is missing; run as the administrator, or give the program CAP_NET_RAW")]
    Denied {
        /// The attempted operation.
        what: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Another program receives at this address.
    #[error("cannot receive at {address}: the address is taken; choose another port, or 0 for any free one")]
    AddressInUse {
        /// The address.
        address: SocketAddr,
    },
    /// A system call failed.
    #[error("{what} at {address}: {source}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// There is no memory to receive into.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

impl PacketError {
    /// Classifies an error of the system.
    pub(super) fn of(what: &'static str, address: impl Into<SocketAddr>, source: io::Error) -> Self {
        let address = address.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied { what, address },
            io::ErrorKind::AddrInUse => Self::AddressInUse { address },
            _ => Self::System { what, address, source },
        }
    }
}
