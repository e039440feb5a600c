//! Random bytes for every machine; and the inputs that once went wrong.

use super::{builder, control, framer, manager, readout, synchrony};

/// A generator of bytes: the same for the same seed.
fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 32) as u8
    };
    (0..length).map(|_| byte(&mut state)).collect()
}

/// Inputs of all lengths; a failure names its seed. `ROPEWALK_INPUTS` sets how many, for a longer look by hand.
fn feed(machine: fn(&[u8])) {
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
    feed(readout);
}

#[test]
fn a_builder_unit_keeps_count_whatever_comes() {
    feed(builder);
}

#[test]
fn an_event_manager_keeps_count_whatever_comes() {
    feed(manager);
}

#[test]
fn run_control_keeps_order_whatever_comes() {
    feed(control);
}

#[test]
fn a_framer_finds_the_same_however_the_stream_is_cut() {
    feed(framer);
}

#[test]
fn the_watch_over_synchrony_takes_anything() {
    feed(synchrony);
}
