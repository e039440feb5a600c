//! Boards whose event numbers grow, but not by one (the times of pulses), and that begin anew, fall silent, hang up within a frame, and
//! send frames that are wrong; each with a black box.
//!
//! ```text
//!   Board --frames with times--> ReadoutDrive --settled events--> Referee: one pulse each, none lost that nothing excuses
//!                                     |
//!                                     +--what came last, where something was wrong--> Keeper: is it what the board sent?
//! ```
//! What must come out follows from the scenario and from what boards sent when: numbers that are equal are of one event, whose board
//! counted right and spoke in time is in it, and a recording is a piece of what its board sent, from the begin of a frame to what was
//! wrong.

mod board;
mod keeper;
mod referee;
mod scenario;
mod world;

pub use scenario::{BoardSetting, Ending, Mishap, Scenario};
pub use world::World;
