//! Bad input and faults, each with a test that fails when its handling is taken out: whole runs in this process, front
//! ends that misbehave over real connections, and a referee that reads the files.

mod connections;
mod contents;
mod disk_full;
mod disk_wrong;
mod numbering;
#[path = "../support/mod.rs"]
mod support;
