//! The machine as found, and where threads and memory are placed on it.
//!
//! [`Machine::read`] reads /proc and /sys below any directory, so that tests bring machines of their own.
//! [`Policy::plan`] turns ordered rules and names of threads and pools into a [`Plan`]; it changes nothing.
//! Applying a plan is the caller's.
//!
//! ```text
//! /proc, /sys --> Machine --+
//!                           +--> Plan: name, CPUs, NUMA node
//! rules, names --> Policy --+
//! ```
#![forbid(unsafe_code)]

mod cpu_list;
mod machine;
mod placement;

pub use cpu_list::{CpuList, CpuListError};
pub use machine::{HugePages, Machine, MachineError, Node, TransparentHugePages};
pub use placement::{Placement, Plan, PlanError, Policy, Rule};
