//! Rules on whole recorded machines: `tests/trees` has a laptop, a server of two sockets with a card of 100 Gb/s on node
//! 1, and a container with little right. What cannot be changed where tests run (rings, coalescing, interrupts, sockets
//! and slots) is tested on these trees alone.

mod groups;
mod machines;
mod page;
mod plans;
mod table;
