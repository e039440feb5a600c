//! The rules of the house. Each file holds one rule, its reason, and the test of the rule itself.

mod arrows;
mod cycles;
mod islands;
mod licences;
mod metadata;
mod pages;
mod printing;
mod purity;
mod reach;
mod sizes;
mod words;

use ropewalk_tidy::{modules, source, tree};
