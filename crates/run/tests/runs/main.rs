//! Whole runs in this process: correct and misbehaving front ends over real connections, captures and files, faulty
//! disks, and a referee that reads the run files. One binary, because linking costs more than most of these tests.

mod bad_input;
mod black_box;
mod captures;
mod connections;
mod contents;
mod disks;
mod emulated;
mod entrances;
mod felix;
mod filters;
mod gathering;
mod limits;
mod networks;
mod numbering;
mod pipe;
mod restarts;
mod run_control;
mod splitters;
#[path = "../support/mod.rs"]
mod support;
mod tap;
mod transfer;
