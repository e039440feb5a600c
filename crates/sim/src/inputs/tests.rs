//! Random bytes for every machine and every reader of texts, and the fuzzers' seeds: inputs that reach far, and those that once went wrong.

use super::{
    builder, configuration, control, framer, front_ends, gateway, layout, manager, quantity, readout, router, sniff,
    synchrony,
};
use crate::campaign::mixed;

/// Random bytes: the same for the same seed.
fn random(seed: u64, length: u64) -> Vec<u8> {
    (0..length).map(|index| mixed(seed, index, 0) as u8).collect()
}

/// The seeds of its fuzz target, then random inputs of all lengths; a failure names its seed. `ROPEWALK_INPUTS` sets how
/// many, for a longer look by hand.
fn feed(name: &str, machine: fn(&[u8])) {
    let directory = format!("{}/../../fuzz/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
    let seeds: Vec<_> = std::fs::read_dir(directory).expect("the seeds of a fuzz target").flatten().collect();
    assert!(seeds.len() > 4, "{} seeds", seeds.len());
    for seed in seeds {
        eprintln!("{}", seed.path().display());
        machine(&std::fs::read(seed.path()).expect("a file"));
    }
    let inputs = std::env::var("ROPEWALK_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(600);
    for seed in 0..inputs {
        let bytes = random(seed, 8 << (seed % 9));
        if let Err(panic) = std::panic::catch_unwind(|| machine(&bytes)) {
            eprintln!("seed {seed}, {} bytes", bytes.len());
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_readout_unit_keeps_count_whatever_comes() {
    feed("readout", readout);
}

#[test]
fn a_builder_unit_keeps_count_whatever_comes() {
    feed("builder", builder);
}

#[test]
fn an_event_manager_keeps_count_whatever_comes() {
    feed("manager", manager);
}

#[test]
fn run_control_keeps_order_whatever_comes() {
    feed("control", control);
}

#[test]
fn run_control_of_front_ends_keeps_order_whatever_they_say() {
    feed("front_ends", front_ends);
}

#[test]
fn whatever_comes_is_looked_at_and_no_more_is_believed_than_there_was() {
    feed("sniff", sniff);
}

#[test]
fn a_framer_finds_the_same_however_the_stream_is_cut() {
    feed("framer", framer);
}

#[test]
fn any_layout_is_refused_or_finds_the_same_however_the_stream_is_cut() {
    feed("layout", layout);
}

#[test]
fn a_gateway_keeps_count_whatever_comes() {
    feed("gateway", gateway);
}

#[test]
fn a_router_of_chunks_keeps_count_whatever_comes() {
    feed("router", router);
}

#[test]
fn the_watch_over_synchrony_takes_anything() {
    feed("synchrony", synchrony);
}

#[test]
fn what_is_wrong_in_a_configuration_has_its_place_whatever_it_is() {
    feed("configuration", configuration);
}

#[test]
fn a_quantity_is_refused_or_can_be_used() {
    feed("quantity", quantity);
}
