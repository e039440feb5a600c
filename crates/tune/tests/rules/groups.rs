//! What single rules say, and what they advise.

mod card;
mod limits;
mod network;
