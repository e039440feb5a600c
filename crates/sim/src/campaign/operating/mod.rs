//! Run control as operators have it: commands at any moment, of one who holds the controls or of anybody, and whoever carries out what it
//! says fails, hangs, or ends too late.
//!
//! ```text
//!   Operators --commands--> flow's Operation --tasks--> Crew: slow, refuses, fails, hangs      World: is what is answered so?
//!      <-----answers-----------+   <--ends, late ones too--+
//! ```

mod crew;
mod operators;
mod scenario;
mod world;

pub use scenario::Scenario;
pub use world::World;
