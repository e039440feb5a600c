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
//! Each seed is a system of either kind: this one, and one in which sources push (`push`). Front ends under run control have a
//! campaign of their own (`controlled`), with nothing but programs, their connections and what stands for nodes; so have splitters
//! and their processes (`dividing`), boards whose numbers grow, with their black boxes (`growing`), boards whose numbers are
//! wrong (`numbering`, and of sources that push, `packet_numbers`), and boards that send an event in several frames (`gathering`): what these stand on is in `stand`. Run files in several streams have one, too (`storing`), with
//! nothing but storage and its disk, and so have files between builder units and filter units (`writing`, `filing`), and filter units
//! with what becomes of events behind them (`filtering`), run control as operators have it (`operating`), settings of a host that are changed
//! and taken back (`tuning`), and those who watch a run, its alarms and what limits it (`watching`).
//! Event managers come and go: `reign` knows who speaks, `coordination` gives leases, `obedience` looks whom nodes obey.
//! A machine joins with one file in `machines`: how it is wired, and what must hold of it after every turn.
//! `docs/simulation.md` says how to read a failure and how to add a machine.

mod audience;
mod broken;
mod cards;
mod clock;
mod content;
pub mod controlled;
mod coordination;
mod copies;
mod coverage;
mod disk;
pub mod dividing;
mod draw;
mod endpoints;
mod fault;
mod fault_kind;
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
mod obedience;
mod order;
mod outcome;
pub mod packet_numbers;
mod perfetto;
mod place;
pub mod push;
mod recorder;
mod referee;
mod reign;
mod ring;
mod runner;
mod scenario;
mod schedule;
mod scheduled;
mod shrink;
mod stand;
mod summary;

pub mod operating;
pub mod storing;
mod timeline;
mod trouble;
pub mod tuning;
mod watch;
pub mod watching;
mod world;
pub mod writing;

pub use broken::{Broken, Checker};
pub use cards::{CardSetting, SubscriberSetting};
pub use clock::NodeClock;
pub use content::{Contents, Format, Sizes, mixed};
pub use coverage::{Coverage, Situation, unreachable};
pub use fault::{Fault, Scheduled};
pub use fault_kind::FaultKind;
pub use masking::Masking;
pub use outcome::{
    Outcome, run, run_controlled, run_dividing, run_filing, run_filtering, run_gathering, run_growing, run_numbering,
    run_operating, run_packet_numbers, run_push, run_storing, run_tuning, run_watching, run_writing,
};
pub use place::Place;
pub use runner::{Campaign, Failure, Orders, System, SystemKind};
pub use scenario::{End, Managers, Rooms, Scenario, TimeOuts};
pub use shrink::{shrink, shrink_push};
pub use summary::{FailedSeed, Missed, Summary};
pub use trouble::{Damage, Trouble};
pub use world::World;
