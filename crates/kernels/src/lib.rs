//! Checksums at the speed of memory.
