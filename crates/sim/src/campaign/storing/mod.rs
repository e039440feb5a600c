//! The run files of a builder unit whose events go to several streams, on a disk that refuses, is slow, and loses power,
//! while the process dies and comes back.
//!
//! ```text
//!   events with their streams --> Storage --> simulated disk: its files outlive the process
//!              \--> taken, acknowledged <--/            \--> Referee: what is in the files?
//! ```
//! What was acknowledged at the level is in a file of each of its streams, whole; nothing is in a stream that it was not for;
//! and within a life nothing is written twice.

mod event;
mod referee;
mod scenario;
mod world;

pub use scenario::{Accident, Scenario};
pub use world::World;
