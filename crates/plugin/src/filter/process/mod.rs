//! A filter in a process of its own, which reads events where they lie: whatever it does there harms nobody else.
//!
//! ```text
//!  FilterProcess                                                        serve, or a program of somebody's own
//!    descriptions of events --> events: memory that it can only read --> the event as C sees it --> process
//!    pools of this process ---> mapped, to be read only ----------------/
//!    decisions, checked <------ decisions: memory that it can write <--- decision, result
//!    wake-ups      <----------------- socket --------------------------> wake-ups, ready
//! ```
//! `layout` says where everything lies. Nothing of the memory that the process can write is believed, and all of it is read
//! once. The process is [confined](crate::confinement), and dies with the thread that started it; why it ended stands in a
//! [`Journal`](crate::Journal). It is started with memory of its own each time, so that whatever is left of an earlier one
//! writes to nothing that is looked at.

mod child;
#[cfg(any(test, fuzzing))]
mod hostile;
mod layout;
mod parent;
mod program;
mod ring;
mod space;
#[cfg(test)]
mod tests;

pub use child::serve;
#[cfg(any(test, fuzzing))]
pub use hostile::hear;
pub use layout::{MOST_EVENTS, VERSION};
pub use parent::{FilterProcess, Offer, ProcessConfig, Sight};
pub use program::become_program;
