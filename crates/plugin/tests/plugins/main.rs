//! Plug-ins in C, in C++ and as programs: loaded, called in this thread and in processes of their own.
//!
//! One program for all, which is also the process of the plug-ins that need one (`support`).

mod examples;
mod filter_process;
mod histograms;
mod hostile;
mod process;
mod support;
mod trusted;
