//! The builder: whole events out of super-fragments, and the watch over sources that slip against each other.

pub mod synchrony;
