//! The rules of filtering, each as a test of the machines alone.

mod builtin;
mod farm;
mod ordering;
mod random;
mod streams;
