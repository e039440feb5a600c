//! AF_XDP: a program at the card's driver picks the flows, and their frames are copied (or written by the card itself) into
//! memory of ours, past everything else that the kernel does with packets.
//!
//! ```text
//!               fill ring ◄── frames ◄── pool of received frames ◄── last drop, on any thread
//!                  │                                                        ▲
//!   card ─ program ─┴─► receive ring ─► XdpReceiver ─► slices ──────────────┤
//!             │                                                             │ a received frame can leave as it is
//!             └► kernel: fragments, everybody else's     FrameSender<XdpTransmit> ─► transmit ring ─► card
//!                  └► a socket, read by XdpReceiver too       ▲ pool of frames to send ◄── completion ring
//! ```
//! One [`XdpCard`] attaches the program, which goes with it, also when the process dies: the kernel's link to the card is a
//! descriptor. It has one pair of receiver and sender for each queue of the card, and each of them its own thread.
//! The two pools are one piece of memory, which the kernel knows as a whole (UMEM).
//!
//! Zero copy, where the card itself writes into the frames, is asked for with one word in the configuration. No card that
//! can do that was at hand: that way has never run.

mod memory;
mod program;
mod receive;
mod rings;
mod transmit;

pub use memory::{XdpCard, XdpConfig, XdpInput, XdpMode};
pub use receive::XdpReceiver;
pub use transmit::XdpTransmit;
