//! Bytes exchanged with other programs: data of a real detector, the example senders, and the seeds of the fuzzers.

mod cms_csc;
mod fuzz_seeds;
mod senders;
