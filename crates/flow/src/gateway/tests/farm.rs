//! The farm.
