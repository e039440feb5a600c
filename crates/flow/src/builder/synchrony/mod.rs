//! Synchrony: does each source still speak of the same trigger as the reference source?
