//! The hardware of the machine, and the placement of threads and memory on it.
//!
//! [`Machine::read`] reads /proc and /sys below any directory, so that tests can provide machines. [`Policy::plan`]
//! turns ordered rules and the names of threads and pools into a [`Plan`]; it changes nothing. The caller applies a
//! plan.
//!
//! ```text
//! /proc, /sys --> Machine: sockets, nodes, cores, caches, cards with their interrupts, rights
//!                    |
//!                    +--> Plan: name, CPUs, NUMA node, scheduling --> Picture: both as text
//!                    |
//! rules, names --> Policy (and Layout, where no rule matches: paper 3's)
//! ```
#![forbid(unsafe_code)]

mod card;
mod cpu_list;
mod disk;
mod files;
mod machine;
mod picture;
mod placement;
mod rights;

pub use card::{Card, CardKind, Interrupt, InterruptTask, Network};
pub use cpu_list::{CpuList, CpuListError};
pub use disk::{DiskActivity, DiskCounters, Mount, disk_of, disk_with};
pub use files::MachineError;
pub use machine::{Cache, HugePages, Machine, Node, Socket, TransparentHugePages, container_cpus};
pub use picture::Picture;
pub use placement::{Decision, Feed, Item, Kind, Placement, Plan, PlanError, Policy, Rule, RuleName, Scheduling};
pub use rights::{Capability, Rights};
