//! Settings of a host that are changed and taken back, while whoever does it is killed, the host is started again, and somebody else
//! changes them, too.
//!
//! ```text
//!   Scenario: acts --> tune's Application, Undoing --actions--> Host: rounds, refuses, moves others     World: what must be there
//!                              |                                                                        at the end, and is it?
//!                              +--entries--> a journal in memory, of which a kill may leave some lines
//! ```
//! The world knows from the acts alone what must be there when all is taken back, and sees in the journal only
//! whether all steps of a plan are there.

mod host;
mod scenario;
mod world;

pub use host::{Habit, Host};
pub use scenario::{Act, Busy, Kill, Scenario};
pub use world::World;
