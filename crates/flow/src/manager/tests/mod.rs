//! Each rule of the protocol: against the machine alone, and in a world of builders and model readout units in
//! which messages are lost with their connections, repeated, and nodes die at random.

mod announcements;
mod assignments;
mod bulk;
mod garbage;
mod hand;
mod lumisections;
mod masks;
mod policies;
mod random;
mod recovery;
mod runs;
mod standby;
mod world;
