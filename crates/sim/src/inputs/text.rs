//! Texts that people write: configurations, sizing files, quantities, names of files.

use crate::sizing::SizingFile;
use ropewalk_flow::source::Random;
use ropewalk_node::configuration::{ConfigurationError, parse};
use ropewalk_node::quantity::{Bandwidth, Bytes, Rate, Size, Time, Times};
use ropewalk_wire::run_file::SegmentName;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Begins the part of an input whose lines `key = value` take the place of what stands in the text before it.
const INSTEAD: &str = "\n--set\n";

/// Reads a text as a configuration of a run and as a sizing file; what does not please is told with a place that is
/// there.
///
/// # Panics
/// Where a reader does, or where an error names a place that the text does not have.
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
            assert!(times.mean() <= Time::MOST.0, "{line}");
            (0..16).for_each(|_| assert!(times.next(&mut random) <= Time::MOST.0, "{line}"));
        }
        if let Some(name) = read::<SegmentName>(line) {
            assert_eq!(name.to_string().parse(), Ok(name), "a name is read as it is written");
        }
    }
}

/// The quantity that a text stands for; an error says something.
fn read<T: FromStr<Err: Display> + Debug>(text: &str) -> Option<T> {
    text.parse().map_err(|error: T::Err| assert!(!error.to_string().is_empty())).ok()
}
