//! Sizing: a system described by numbers, run for some seconds of virtual time.
