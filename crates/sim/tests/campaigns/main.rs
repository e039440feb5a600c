//! Campaigns of whole systems and of parts of them, and what they found.

mod found;
mod small;
mod whole;
