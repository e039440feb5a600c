//! The program seen from outside: exit statuses, signals, one process per node, and processes that are killed. Front
//! ends and referee are those of the node's fault tests.

mod accounts;
mod all_killed;
mod cluster;
mod command_line;
mod control;
mod counters;
mod felix;
mod felix_input;
mod file_based;
mod filters;
mod following;
mod foreign;
mod forms;
mod front_ends;
mod gateway;
mod hung;
mod inputs;
mod limits;
mod nodes;
mod process;
mod quality;
mod referee;
mod reference;
mod splitters;
mod statuses;
#[path = "../../../run/tests/support/mod.rs"]
mod support;
mod topology;
mod tune;
