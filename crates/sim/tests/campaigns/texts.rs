//! Texts that people write, fed with anything: configurations, sizing files and quantities. The fuzz targets call these functions with
//! bytes that reach new code; the tests here call them with random ones.

use ropewalk_config::quantity::{Bandwidth, Bytes, Rate, Size, Time, Times};
use ropewalk_config::{ConfigurationError, parse};
use ropewalk_flow::source::Random;
use ropewalk_sim::sizing::SizingFile;
use ropewalk_wire::run_file::SegmentName;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Begins the part of an input whose lines `key = value` override values of the text before it.
const INSTEAD: &str = "\n--set\n";

/// Reads a text as a configuration of a run and as a sizing file. The place that an error names must exist.
///
/// # Panics
/// If a reader does, or if an error names a place that the text does not have.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (text, instead) = text.split_once(INSTEAD).unwrap_or((text, ""));
    let instead: Vec<(String, String)> = instead
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let variable = |name: &str| (name == "HOME").then(|| "/home".to_owned());
    if let Err(error) = parse("run.toml", text, &variable) {
        has_its_place(&error, text);
    }
    match SizingFile::parse("sizing.toml", text, &instead) {
        Ok(SizingFile::Pull(system)) => assert!(system.sources() > 0 && system.mean_fragment() > 0.0, "{system:?}"),
        Ok(SizingFile::Push(system)) => assert!(system.queues() > 0 && !system.flow.is_empty(), "{system:?}"),
        Err(error) => has_its_place(&error, text),
    }
}

fn has_its_place(error: &ConfigurationError, text: &str) {
    assert!(!error.message.is_empty() && error.to_string().contains(&error.message), "{error:?}");
    // The end of the text may be meant, behind its last newline.
    assert!(error.line <= 1 + text.matches('\n').count(), "{error:?}");
    assert_eq!(error.line == 0, error.column == 0, "{error:?}");
}

/// Reads each line of a text as every kind of quantity, and takes from it what a run would take.
///
/// # Panics
/// Where a reader does, or where a quantity does what it must not: no time is longer than [`Time::MOST`], say.
pub fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for line in text.lines().take(64) {
        read::<Bytes>(line);
        read::<Bandwidth>(line).inspect(|rate| assert!(rate.bytes_per_second > 0.0, "{line}"));
        read::<Rate>(line);
        read::<Size>(line);
        read::<Time>(line).inspect(|time| assert!(*time <= Time::MOST, "{line}"));
        if let Some(times) = read::<Times>(line) {
            let mut random = Random::new(1, 0);
            assert!(times.0.mean() <= Time::MOST.0, "{line}");
            (0..16).for_each(|_| assert!(times.0.next(&mut random) <= Time::MOST.0, "{line}"));
        }
        if let Some(name) = read::<SegmentName>(line) {
            assert_eq!(name.to_string().parse(), Ok(name), "a name is read as it is written");
        }
    }
}

/// Parses a text as a quantity; an error must have a message.
fn read<T: FromStr<Err: Display> + Debug>(text: &str) -> Option<T> {
    text.parse().map_err(|error: T::Err| assert!(!error.to_string().is_empty())).ok()
}

#[cfg(test)]
mod tests {
    use super::{configuration, quantity};
    use ropewalk_flow::source::Random;

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
            let mut random = Random::new(seed, 0);
            let bytes: Vec<u8> = (0..8 << (seed % 9)).map(|_| random.below(256) as u8).collect();
            if let Err(panic) = std::panic::catch_unwind(|| machine(&bytes)) {
                eprintln!("seed {seed}, {} bytes", bytes.len());
                std::panic::resume_unwind(panic);
            }
        }
    }

    #[test]
    fn what_is_wrong_in_a_configuration_has_its_place_whatever_it_is() {
        feed("configuration", configuration);
    }

    #[test]
    fn a_quantity_is_refused_or_can_be_used() {
        feed("quantity", quantity);
    }
}
