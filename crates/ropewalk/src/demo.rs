//! The demo: a whole run of emulated front ends without a configuration file.

use crate::arguments::DemoOptions;
use crate::exit::Failure;
use crate::running::{Limits, take_run};
use ropewalk_node::configuration::{Configuration, parse};
use ropewalk_node::quantity::Bytes;
use ropewalk_node::session::RunLimits;
use std::fmt::Write as _;
use std::time::Duration;

/// The demo's pools together: small enough to be touched within the first second.
const POOL: u64 = 128 << 20;

pub(crate) fn demo(options: &DemoOptions) -> Result<u8, Failure> {
    let mut configuration = configuration(options)?;
    configuration.run.output.clone_from(&options.output);
    configuration.run.keep = Some(options.keep);
    let duration = match (options.duration, options.events) {
        (None, None) => Some(Duration::from_secs(10)),
        (duration, _) => duration.map(|time| time.0),
    };
    let run = RunLimits { duration, events: options.events, ..RunLimits::default() };
    let limits = Limits { run, json: options.json };
    take_run(&configuration, &limits)
}

/// The configuration that the options describe, written out and read like any other, so that the demo is no
/// special case.
fn configuration(options: &DemoOptions) -> Result<Configuration, Failure> {
    if options.sources == 0 || options.readout_units == 0 || options.builder_units == 0 {
        return Err(Failure::Usage(
            "a run needs at least one source, one readout unit and one builder unit".to_owned(),
        ));
    }
    if options.readout_units > options.sources {
        let message = format!(
            "{} readout units have nothing to read from {} sources: give at most one unit per source",
            options.readout_units, options.sources
        );
        return Err(Failure::Usage(message));
    }
    let largest = u64::from(options.fragment_size.0.largest());
    let sources = u64::from(options.sources.div_ceil(options.readout_units));
    // Blocks shrink with the number of sources, so that each source has several; fragments may span blocks.
    let pool = POOL / u64::from(options.readout_units);
    let block = [256 << 10, 128 << 10, 64 << 10, 32 << 10, 16 << 10, 8 << 10_u64]
        .into_iter()
        .find(|block| (sources * (largest.div_ceil(*block) + 4) + 16) * block <= pool)
        .unwrap_or(4 << 10);
    let mut text = String::from("version = 1\n[run]\nsync = \"never\"\nsegment_bytes = \"256MiB\"\n");
    for unit in 0..options.readout_units {
        let _ = write!(text, "[[readout]]\nname = \"ru{unit}\"\npool = \"{pool}\"\nblock = \"{block}\"\n");
    }
    for unit in 0..options.builder_units {
        let bytes = Bytes(POOL / 2 / u64::from(options.builder_units));
        let _ = write!(text, "[[builder]]\nname = \"bu{unit}\"\nbytes = \"{}\"\n", bytes.0);
    }
    for source in 0..options.sources {
        let unit = source % options.readout_units;
        let _ = write!(
            text,
            "[[source]]\nid = {source}\nreadout = \"ru{unit}\"\non_close = \"end\"\nmax_fragment = \"{largest}\"\nemulate = {{}}\n"
        );
    }
    let mut configuration = parse("demo", &text, &|_| None)?;
    for source in &mut configuration.source {
        if let Some(emulate) = &mut source.emulate {
            emulate.fragment_size = options.fragment_size;
            emulate.rate = options.rate;
        }
    }
    Ok(configuration)
}
