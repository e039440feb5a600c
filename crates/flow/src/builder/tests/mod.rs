//! Each rule of the protocol against the builder alone.

mod answers;
mod bulk;
mod crossings;
mod hand;
mod manager;
mod outcomes;
mod random;
mod slipping;
