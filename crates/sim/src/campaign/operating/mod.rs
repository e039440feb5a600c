//! Run control as operators have it: commands at any moment, and whoever carries out what it says fails, hangs, or ends too late.
//!
//! ```text
//!   operators --commands--> flow's Operation --tasks--> Crew: slow, refuses, fails, hangs      World: is what is answered so?
//!      <-----answers-----------+   <--ends, late ones too--+
//! ```

mod crew;
mod scenario;
mod world;

pub use scenario::Scenario;
pub use world::World;
