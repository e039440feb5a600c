//! Alarms: what people have to know of, until they do.
//!
//! ```text
//!             condition holds        for the hold time
//!  normal ───────────────────> pending ──────────────> active <──> acknowledged
//!    ^ <── it is over ────────────┘                      │ it is over     │
//!    │ <────────────── not latched, or acknowledged ─────┤ <──────────────┘
//!    └────── acknowledge ────── latched <── not yet acknowledged
//! ```
//!
//! A shelved alarm goes on underneath and is not shown until its time is over. *No triggers* is told from a data acquisition
//! that is dead: in the first nobody sends and everything is connected; in the second something is there to be built, or
//! somebody is missing, and nothing is built.

mod machine;
mod quantity_text;
mod rule;
#[cfg(test)]
mod tests;

pub use machine::{Alarm, AlarmError, Alarms, Change, State};
pub use quantity_text::NoQuantity;
pub use rule::{Condition, Look, Quantity, Rule, Severity, built_in};
