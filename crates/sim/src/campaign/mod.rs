//! Fault campaigns: one seed is one system, one schedule of faults and one verdict.
