//! The program as others see it: exit statuses, signals, one process per node, and processes that are killed. Front
//! ends and referee are those of the node's fault tests.

mod accounts;
mod all_killed;
mod bench;
mod builder_killed;
mod cluster;
mod control;
mod counters;
mod doctor;
mod examples;
mod felix;
mod felix_input;
mod felix_process;
mod felix_run;
mod file_based;
mod filter_nodes;
mod filters;
mod filters_stopped;
mod following;
mod foreign;
mod front_ends;
mod gateway;
mod gateway_control;
mod init;
mod interrupts;
mod limits;
mod manager_killed;
mod masks;
mod nodes;
mod parameters;
mod process;
mod reference;
mod refusals;
mod replay;
mod runs;
mod samples;
mod sizing;
mod source_histograms;
mod splitters;
mod statuses;
#[path = "../../../node/tests/support/mod.rs"]
mod support;
mod terminal;
mod topology;
mod tune;
mod unread;
