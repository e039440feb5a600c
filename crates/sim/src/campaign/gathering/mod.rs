//! Boards that send an event in several frames, lose some of them, pause and hang up in the middle of an event, and are not read for
//! longer than the next frame is waited for.
//!
//! ```text
//!   Board --frames of an event--> ReadoutDrive --settled events--> Referee: which frames are in a fragment, and is it said
//!                                                                  that others are missing?
//! ```
//! What must come out follows from the scenario: a fragment holds all frames that came of its event up to its end, or up to where its
//! board paused or hung up for longer than anybody waits, and what is known to be missing in it is flagged.

mod board;
mod referee;
mod scenario;
mod world;

pub use scenario::{Break, Scenario, Style};
pub use world::World;
