//! Splitters in processes of their own: boards that pack several events into a frame, a real readout unit, and in the place of
//! processes something that crashes, hangs and lies by seed.
//!
//! ```text
//!   Board --frames of several events--> ReadoutDrive --settled events--> Overseer: starts, looks at contents, releases
//!                                         |  ^
//!                                 frames  v  |  pieces, or its end
//!                                    SimulatedSplitter: what happens at which frame stands in the scenario
//! ```
//! What must come out follows from the scenario alone: a frame over which two processes ended is lost, and nothing else; and
//! nobody who waits for a process is taken for absent.

mod board;
mod contents;
mod scenario;
mod splitter;
mod world;

pub use scenario::{BoardSetting, Mishap, Scenario};
pub use world::World;
