//! Packets as frames of one network card, in memory shared by this process and the kernel: nothing is allocated, freed
//! or copied for a packet, which is what paper 2 did to its card's driver.
//!
//! ```text
//!   card -> driver ─┬─► xdp::XdpReceiver (AF_XDP): a program picks the frames before the kernel makes packets of them
//!                   ├─► ring::RingReceiver (TPACKET_V3): blocks of a ring, a copy of each frame that passes
//!                   ├─► ring: a program drops packets that the ring has got, if this process may attach it
//!                   └─► IP, UDP: a mute socket, so that the kernel reports no closed port
//!
//!   FrameSender ─► ring::TransmitRing (PACKET_TX_RING), past the card's queues
//!            ├───► xdp::XdpTransmit, from frames that were received too
//!            └───► a socket, as long as the kernel does not know the receiver's card
//! ```

mod open;
pub(super) mod ring;
mod sender;
mod socket;
mod xdp;

pub use self::ring::{RingConfig, RingReceiver, TransmitRing};
pub use self::sender::{FrameConfig, FrameSender, Transmit};
pub use self::socket::Card;
pub use self::xdp::{XdpCard, XdpConfig, XdpInput, XdpMode, XdpReceiver, XdpTransmit};
