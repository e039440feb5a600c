//! Filter units in processes of their own: a real builder unit's machine with everything behind it (farm, streams, order, storage),
//! and in the place of processes something that crashes, hangs and lies by seed.
//!
//! ```text
//!   Assigner: replaces event manager and readout unit --events--> Builder --> EventOutput: Filtering, Storage --> disk
//!                                                                          ^            |  ^
//!                                                             acknowledged |     events v  |  decisions, or its end
//!                                                                                     SimulatedUnit
//! ```
//! In scenarios with [`Lines`] these are on other machines: a real `RemoteUnit`, a simulated network, and behind it a `SimulatedNode`,
//! which has the `SimulatedUnit`. Connections are lost at any step, and take their time.
//!
//! What must come out follows from the scenario: each event is decided by its number, once; one over which two processes ended is set
//! aside; what filters fill into histograms is in them once for each event that was decided; and nothing that a process has is used again before it has ended for certain.

mod assigner;
mod behind;
mod kept;
mod node;
mod referee;
mod scenario;
mod unit;
mod world;

pub(super) use behind::{filtering, streams};
pub use scenario::{Lines, Mishap, Scenario};
pub use world::World;
