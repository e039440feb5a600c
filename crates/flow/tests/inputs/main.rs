//! Runs machines on the seeds of their fuzz targets and on random bytes, so that seeds and targets stay usable.

#![allow(clippy::disallowed_methods, reason = "the tests read the seeds of fuzz targets; the machines do not")]

pub mod machines;

use ropewalk_flow::source::Random;

/// Feeds the seeds of its fuzz target, then random inputs of all lengths; a failure names its seed. `ROPEWALK_INPUTS`
/// sets their number, for longer runs by hand.
fn feed(name: &str, machine: fn(&[u8])) {
    let directory = format!("{}/../../fuzz/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
    let seeds: Vec<_> = std::fs::read_dir(directory).expect("the seeds of a fuzz target").flatten().collect();
    assert!(seeds.len() > 4, "{} seeds", seeds.len());
    for seed in seeds {
        let bytes = std::fs::read(seed.path()).expect("a file");
        let fed = std::panic::catch_unwind(|| machine(&bytes));
        assert!(fed.is_ok(), "{}", seed.path().display());
    }
    let inputs = std::env::var("ROPEWALK_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(600);
    for seed in 0..inputs {
        let mut random = Random::new(seed, 0);
        let bytes: Vec<u8> = (0..8 << (seed % 9)).map(|_| random.below(256) as u8).collect();
        let fed = std::panic::catch_unwind(|| machine(&bytes));
        assert!(fed.is_ok(), "seed {seed}, {} bytes", bytes.len());
    }
}

#[test]
fn a_readout_unit_keeps_count_on_any_input() {
    feed("readout", machines::readout);
}

#[test]
fn a_builder_unit_keeps_count_on_any_input() {
    feed("builder", machines::builder);
}

#[test]
fn an_event_manager_keeps_count_on_any_input() {
    feed("manager", machines::manager);
}

#[test]
fn run_control_keeps_order_on_any_input() {
    feed("control", machines::control);
}

#[test]
fn run_control_of_front_ends_keeps_order_on_any_input() {
    feed("front_ends", machines::front_ends);
}

#[test]
fn sniff_accounts_for_every_byte_of_any_input() {
    feed("sniff", machines::sniff);
}

#[test]
fn a_framer_finds_the_same_however_the_stream_is_cut() {
    feed("framer", machines::framer);
}

#[test]
fn any_layout_is_refused_or_finds_the_same_however_the_stream_is_cut() {
    feed("layout", machines::layout);
}

#[test]
fn a_gateway_keeps_count_on_any_input() {
    feed("gateway", machines::gateway);
}

#[test]
fn a_router_of_chunks_keeps_count_on_any_input() {
    feed("router", machines::router);
}

#[test]
fn the_watch_over_synchrony_takes_anything() {
    feed("synchrony", machines::synchrony);
}
