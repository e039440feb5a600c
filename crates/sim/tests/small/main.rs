//! Campaigns of a part of the system each, with a machine or two that are as they are and what stands for the rest.

mod dividing;
mod filing;
mod filtering;
mod front_ends;
mod gathering;
mod growing;
mod numbering;
mod operating;
mod packet_numbers;
mod storing;
mod tuning;
mod watching;
mod writing;

/// As many seeds as every test run looks through. `ROPEWALK_INPUTS` sets another number, for a longer look by hand.
fn seeds(usual: u64) -> u64 {
    std::env::var("ROPEWALK_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}
