//! Fault campaigns: one seed is one system, one schedule of faults and one verdict.
//!
//! ```text
//!   seed --> Scenario: system, settings, faults --> World: real drives on a simulated network and disk
//!                                                     |  every step: what must hold of each machine
//!                                                     v
//!   Coverage: fault x situation <-- Campaign <-- judge: ledger, pools, credits, and the referee, who reads the files
//!                                       |        and knows what the sources made
//!                                       v
//!                              Failure: seed, words, the command that replays it, as few faults as possible
//! ```
//! Each seed is two systems: this one, and one in which sources push (`push`). Parts of a system have campaigns of their own,
//! with one or two real machines and simulated surroundings:
//! ```text
//! controlled      front ends under run control          writing, filing  files between builder units and filter units
//! dividing        splitters and their processes         filtering        filter units, and what follows them
//! growing         boards whose numbers grow             storing          run files in several streams
//! numbering       boards whose numbers are wrong        operating        run control as operators use it
//! packet_numbers  the same, of sources that push        tuning           settings of a host, changed and taken back
//! gathering       boards with several frames an event   watching         alarms, and what limits a run
//! ```
//! What those of a readout unit share is in `stand`. Event managers come and go: `reign` knows which one leads, checks whom nodes
//! obey, and has the service that gives leases.
//! A machine joins in `machines`: how it is wired, and what must hold of it after every turn.
//! `docs/simulation.md` says how to read a failure and how to add a machine.

mod audience;
mod cards;
mod content;
pub mod controlled;
pub mod dividing;
mod draw;
mod endpoints;
mod fault;
pub mod filing;
pub mod filtering;
pub mod gathering;
pub mod growing;
mod inject;
mod judge;
mod machines;
mod masking;
mod node;
pub mod numbering;
pub mod operating;
mod outcome;
pub mod packet_numbers;
pub mod push;
mod recorder;
mod referee;
mod reign;
mod runner;
mod scenario;
mod schedule;
mod stand;
pub mod storing;
pub mod tuning;
pub mod watching;
mod world;
pub mod writing;

pub use cards::{CardSetting, Damage, SubscriberSetting, Trouble};
pub use content::{Contents, Format, Sizes, mixed};
pub use fault::{Fault, FaultKind, Place, Scheduled};
pub use masking::Masking;
pub use node::NodeClock;
pub use outcome::{
    Broken, Checker, Outcome, run, run_controlled, run_dividing, run_filing, run_filtering, run_gathering, run_growing,
    run_numbering, run_operating, run_packet_numbers, run_push, run_storing, run_tuning, run_watching, run_writing,
};
pub use runner::{
    Campaign, Coverage, FailedSeed, Failure, Missed, Orders, Situation, Summary, System, SystemKind, shrink,
    shrink_push, unreachable,
};
pub use scenario::{End, Managers, Rooms, Scenario, TimeOuts};
pub use world::World;
