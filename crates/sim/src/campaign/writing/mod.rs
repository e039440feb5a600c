//! Files of events as a builder unit writes them for filter units: its process dies at any step, and the disk fails.
//!
//! ```text
//!   events, lumisections --> Filing --> SimulatedDisk: torn, refused, slow      Referee: looks at every name that appears
//!   (in the place of builder and event manager) <--written--+                   (in the place of broker and filter units)
//! ```
//! What is not acknowledged when the process dies is given to its next life again, as the event manager would.

mod referee;
mod scenario;
mod world;

pub use scenario::Scenario;
pub use world::World;
