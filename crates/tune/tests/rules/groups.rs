//! What single rules say, and what they advise.

mod card;
mod interrupts;
mod limits;
mod memory;
mod network;
mod processor;
mod storage;
