//! Campaigns of whole systems, and what they found. Texts of users, fed with anything.

mod found;
pub mod texts;
mod whole;
