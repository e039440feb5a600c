//! Planted bugs, one at a time: each is found by the seeds that `docs/planted-bugs.md` names, all among the first 500.
//!
//! `ROPEWALK_FLAWS=1 cargo test -p ropewalk-sim --test flaws -- --nocapture whole_table` looks through all 500 seeds and prints the
//! table anew; with other words, with commas between them, the rows of mistakes whose names have one.
//!
//! These tests are a program of their own, since they silence panics, for which a process has one hook.

use ropewalk_sim::campaign::{Broken, Scenario, push, run};
use ropewalk_terms::flaws::{Flaw, plant};

/// Seeds in which each mistake must be found.
const SEEDS: u64 = 500;
/// As many seeds as the table names for each.
const NAMED: usize = 3;

/// What checkers say of a seed: of its system that pulls, then of the one that pushes.
fn judged(seed: u64) -> Option<Broken> {
    run(Scenario::draw(seed)).broken.or_else(|| run(push::Scenario::draw(seed)).broken)
}

/// What checkers say of a seed while a mistake is made.
fn found(flaw: Flaw, seed: u64) -> Option<String> {
    // A mistake may make a machine panic: that is a way to be found, and needs no text.
    std::panic::set_hook(Box::new(|_| {}));
    plant(Some(flaw));
    let broken = judged(seed);
    plant(None);
    broken.map(|broken| broken.checker.name().to_owned())
}

/// The first seeds that find a mistake, and which checkers do.
fn search(flaw: Flaw, good: &[u64]) -> Vec<(u64, String)> {
    good.iter().filter_map(|&seed| Some((seed, found(flaw, seed)?))).take(NAMED).collect()
}

/// The rows of the table: name and seeds.
fn table() -> Vec<(String, Vec<u64>)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/planted-bugs.md");
    let text = std::fs::read_to_string(page).expect("the page with the table");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let seeds = cells[3].split(',').filter_map(|seed| seed.trim().parse().ok()).collect();
        (cells[1].trim_matches('`').to_owned(), seeds)
    })
    .collect()
}

#[test]
fn every_planted_bug_is_found_by_the_seeds_that_the_table_names() {
    let table = table();
    assert!(table.len() >= 24, "{} planted bugs", table.len());
    let mut missed = Vec::new();
    for &flaw in Flaw::ALL {
        let row = table.iter().find(|(name, _)| name == flaw.name());
        let (_, seeds) = row.unwrap_or_else(|| panic!("{} is in no row of the table", flaw.name()));
        assert!(!seeds.is_empty() && seeds.iter().all(|&seed| seed < SEEDS), "{}: {seeds:?}", flaw.name());
        if !seeds.iter().any(|&seed| found(flaw, seed).is_some()) {
            missed.push(flaw.name());
        }
    }
    let _ = std::panic::take_hook();
    // A change of the protocol moves what a seed does; the rows are printed anew then.
    assert!(missed.is_empty(), "{missed:?} are found by none of their seeds: see how to print rows anew");
}

#[test]
fn without_a_planted_bug_the_same_seeds_are_good() {
    let mut seeds: Vec<u64> = table().into_iter().flat_map(|(_, seeds)| seeds).collect();
    seeds.sort_unstable();
    seeds.dedup();
    for seed in seeds {
        assert_eq!(judged(seed), None, "seed {seed}");
    }
}

/// Prints the table; run by hand, since it takes minutes.
#[test]
fn whole_table() {
    let Ok(which) = std::env::var("ROPEWALK_FLAWS") else { return };
    // A seed that finds something without any mistake says nothing about this one.
    let good: Vec<u64> = (0..SEEDS).filter(|&seed| judged(seed).is_none()).collect();
    let mut missed = Vec::new();
    for &flaw in Flaw::ALL.iter().filter(|flaw| which == "1" || which.split(',').any(|word| flaw.name().contains(word)))
    {
        let found = search(flaw, &good);
        let seeds: Vec<String> = found.iter().map(|(seed, _)| seed.to_string()).collect();
        let mut checkers: Vec<&str> = found.iter().map(|(_, checker)| checker.as_str()).collect();
        checkers.sort_unstable();
        checkers.dedup();
        println!("| `{}` | {} | {} |", flaw.name(), flaw.what(), seeds.join(", "));
        eprintln!("{}: found by {}", flaw.name(), checkers.join(", "));
        if found.is_empty() {
            missed.push(flaw.name());
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}
