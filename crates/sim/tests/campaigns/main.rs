//! Campaigns of whole systems, and what they found.

mod found;
mod whole;
