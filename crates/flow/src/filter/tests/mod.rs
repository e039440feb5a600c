//! The rules of filtering, each as a test of the machines alone.

mod builtin;
mod farm;
mod monitoring;
mod ordering;
mod random;
mod streams;
