//! Rules on whole recorded machines, and settings that are changed for real and taken back.
//!
//! `tests/trees` has a laptop, a server of two sockets with a card of 100 Gb/s on node 1, and a container with little right.
//! What cannot be changed where tests run (rings, coalescing, interrupts, sockets and slots) is tested on these trees alone.

mod cards;
mod interrupts;
mod machines;
mod real;
mod rules;
mod system;
mod threads;
