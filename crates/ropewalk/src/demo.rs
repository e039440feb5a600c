//! First steps: a run that needs nothing, and a configuration to begin with.

use crate::arguments::{DEMO_DURATION, DemoOptions, InitKind, InitOptions};
use crate::ctl::DASHBOARD;
use crate::exit::{self, Failure};
use crate::running::{Controlled, Limits, take_run};
use ropewalk_config::fields::Fields;
use ropewalk_config::quantity::{Bytes, Time};
use ropewalk_config::{Emulate, alarm_rules, parse};
use ropewalk_control::ControlConfig;
use ropewalk_run::session::{AfterRun, Launcher, Patience};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;

/// The demo's pools together: small enough to be touched within the first second.
const POOL: u64 = 128 << 20;

pub(crate) fn demo(options: &DemoOptions) -> Result<u8, Failure> {
    let text = text(options)?;
    let mut configuration = parse("demo", &text, &|_| None)?;
    // A path need not be text, which a configuration has to be.
    configuration.run.output.clone_from(&options.output);
    configuration.written.set("run", "output", options.output.display().to_string());
    let duration = match (options.duration, options.events) {
        // Who sits before it looks at the dashboard, and says when it is enough.
        (None, None) => (!std::io::stderr().is_terminal()).then_some(DEMO_DURATION.0),
        (duration, _) => duration.map(|time| time.0),
    };
    if let Some(duration) = duration {
        configuration.run.duration = Some(Time(duration));
        configuration.written.set("run", "duration", format!("{}s", duration.as_secs_f64()));
    }
    let config = ControlConfig {
        listen: options.control.unwrap_or(DASHBOARD),
        token: None,
        identity: None,
        output: options.output.clone(),
        alarms: alarm_rules(&configuration.alarm),
        hearers: configuration.alarms.clone(),
        logbook: configuration.logbook.clone(),
        reference: configuration.monitor.reference,
    };
    let is_endless = duration.is_none() && options.events.is_none();
    let control = Controlled { config, takes_any_port: options.control.is_none(), is_idle: false };
    let after_run = if is_endless { AfterRun::Wait } else { AfterRun::Over };
    let fields = Fields::default();
    let limits = Limits {
        fields,
        json: options.json,
        after_run,
        is_single: false,
        patience: Patience::Configured,
        control: Some(control),
    };
    let slowing = crate::tune::harmful(&configuration);
    let ended = take_run(Arc::new(Launcher::new(configuration)), &limits);
    if ended.is_ok() && !slowing.is_empty() {
        let rules = slowing.into_iter().collect::<Vec<_>>().join(", ");
        tell!(
            "note: the demo is complete; settings of this machine slow it down ({rules}): `ropewalk tune check` \
             explains them"
        );
    }
    ended
}

/// The configuration that the options describe, written out, so that the demo is no special case.
fn text(options: &DemoOptions) -> Result<String, Failure> {
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
    // A change of the sizes alone is to change nothing else.
    let allowed = largest.max(u64::from(Emulate::default().fragment_size.0.largest()));
    let mut text = String::from("version = 1\n[run]\nsync = \"never\"\nsegment_bytes = \"256MiB\"\n");
    if let Some(events) = options.events {
        let _ = writeln!(text, "events = {events}");
    }
    let _ = writeln!(text, "keep = \"{}\"", options.keep.0);
    for unit in 0..options.readout_units {
        let _ = write!(text, "[[readout]]\nname = \"ru{unit}\"\npool = \"{pool}\"\nblock = \"{block}\"\n");
    }
    for unit in 0..options.builder_units {
        let bytes = Bytes(POOL / 2 / u64::from(options.builder_units));
        let _ = write!(text, "[[builder]]\nname = \"bu{unit}\"\nbytes = \"{}\"\n", bytes.0);
    }
    let rate = options.rate.map_or_else(String::new, |rate| format!(", rate = \"{rate}\""));
    let emulate = format!("{{ fragment_size = \"{}\"{rate} }}", options.fragment_size);
    for source in 0..options.sources {
        let unit = source % options.readout_units;
        let _ = write!(
            text,
            "[[source]]\nid = {source}\nreadout = \"ru{unit}\"\non_close = \"end\"\nmax_fragment = \"{allowed}\"\nemulate = {emulate}\n"
        );
    }
    Ok(text)
}

impl InitKind {
    /// The file's name and its content.
    const fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Testbeam => ("testbeam.toml", include_str!("../beginnings/testbeam.toml")),
            Self::Pull => ("pull.toml", include_str!("../beginnings/pull.toml")),
            Self::Gateway => ("gateway.toml", include_str!("../beginnings/gateway.toml")),
            Self::Felix => ("felix.toml", include_str!("../beginnings/felix.toml")),
        }
    }
}

/// The schema of the configuration, which the first line of the new file names.
const SCHEMA_FILE: &str = "ropewalk.schema.json";

/// Writes the configuration into the directory, which is created if it does not exist, and beside it the schema for
/// editors. Never overwrites a configuration.
pub(crate) fn init(options: &InitOptions) -> Result<u8, Failure> {
    let (name, text) = options.kind.file();
    let (directory, file) = (&options.directory, options.directory.join(name));
    let failed = |error: std::io::Error| Failure::Environment(format!("{}: {error}", file.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(mut new) => write!(new, "#:schema {SCHEMA_FILE}\n{text}").map_err(failed)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("{} is there already; move it away, or name another directory", file.display());
            return Err(Failure::Usage(message));
        }
        Err(error) => return Err(failed(error)),
    }
    // Editors check and complete keys by it.
    let schema = directory.join(SCHEMA_FILE);
    std::fs::write(&schema, ropewalk_config::schema())
        .map_err(|error| Failure::Environment(format!("{}: {error}", schema.display())))?;
    // As it was called, so that the line can be copied.
    let program = std::env::args().next().unwrap_or_else(|| "ropewalk".to_owned());
    say!("wrote    {}", file.display());
    say!("try      cd {} && {program} run {name} --duration 10s", directory.display());
    say!("         the first lines of the file describe the next steps");
    Ok(exit::GOOD)
}
