//! The interpretation of the figures, without side effects, so that every sentence has a test.

use crate::measure::{Built, Measured};
use ropewalk_tune::{Finding, Grade, Sureness};
use schemars::JsonSchema;
use serde::Serialize;

/// What limits a machine.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The disk is slower than event building.
    Disk,
    /// A second CPU adds little.
    SharedCores,
    /// The kernel's network stack.
    Network,
    /// The memory.
    Memory,
    /// The work that is done for each fragment.
    Processor,
}

/// What the figures mean.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Verdict {
    /// What limits runs that are written.
    pub limit: Limit,
    /// The same in a sentence, with the figures behind it.
    pub why: String,
    /// What the machine can do, a line for each measured run.
    pub can_do: Vec<String>,
    /// What to change first, at most three lines; empty if nothing is known that would help.
    pub change_first: Vec<String>,
    /// What these figures do not show.
    pub not_shown: &'static str,
}

/// Numbers of streams for which rates are reported.
const STREAMS: [usize; 3] = [16, 64, 700];
/// Two CPUs with less than this together are threads of one core, or shared with other programs.
const TWO_CORES: f64 = 1.5;
/// A run that moves at least this share of what bare sockets move is limited by them.
const AS_BARE: f64 = 0.6;
/// If memory can be copied this many times faster than events are built, it is not the limit.
const SPARE_COPIES: f64 = 2.0;
/// Written data reaches the disk later than it is measured: a cache in between accepts somewhat more.
const CACHED: f64 = 1.3;

impl Verdict {
    /// The verdict on these measurements and findings.
    pub(crate) fn of(measured: &Measured, findings: &[Finding]) -> Self {
        let (limit, why) = limit(measured);
        Self {
            limit,
            why,
            can_do: measured.built.iter().map(can_do).collect(),
            change_first: first(findings),
            not_shown: "Front ends and Ropewalk share this machine here, over its loopback. With front ends elsewhere the sending half of the\n\
                        work is theirs; the card's interrupts, its rings and the path to it are not seen here.",
        }
    }
}

fn limit(measured: &Measured) -> (Limit, String) {
    let best = |is_written: bool| {
        let runs = measured.built.iter().filter(|built| built.is_written == is_written);
        runs.map(|built| built.gigabytes_per_second).fold(0.0, f64::max)
    };
    let (built, written) = (best(false), best(true));
    let same_size = |built: &&Built| {
        !built.is_written
            && measured.built.iter().any(|other| other.is_written && other.fragment_bytes == built.fragment_bytes)
    };
    let unwritten = measured.built.iter().find(same_size).map_or(built, |built| built.gigabytes_per_second);
    if written < 0.8 * unwritten && measured.disk * CACHED < unwritten {
        let why = format!(
            "the disk: it takes {:.2} GB/s when nothing is cached{}; runs build {unwritten:.2} GB/s without files, \
             {written:.2} GB/s with files",
            measured.disk,
            measured.disk_says.as_ref().map_or(String::new(), |says| format!(" ({says})"))
        );
        return (Limit::Disk, why);
    }
    if measured.cpus < 2 || measured.two_cpus_do < TWO_CORES {
        let why = format!(
            "its processors: two CPUs do {:.2} times what one does, so that they are threads of one core, or shared with others",
            measured.two_cpus_do
        );
        return (Limit::SharedCores, why);
    }
    if built * SPARE_COPIES > measured.memory_copy {
        let why = format!("memory: {:.1} GB/s can be copied, and {built:.2} GB/s are built", measured.memory_copy);
        return (Limit::Memory, why);
    }
    if built > AS_BARE * measured.loopback {
        let why = format!(
            "the kernel's network stack: bare sockets that do nothing else move {:.2} GB/s, and {built:.2} GB/s are built",
            measured.loopback
        );
        return (Limit::Network, why);
    }
    let why = format!(
        "the work done for each fragment: {built:.2} GB/s are built of {:.2} GB/s that bare sockets move",
        measured.loopback
    );
    (Limit::Processor, why)
}

fn can_do(built: &Built) -> String {
    let rates =
        STREAMS.map(|streams| format!("{} for {streams}", frequency(built.fragments_per_second() / streams as f64)));
    let what = if built.is_written { "built and written" } else { "built" };
    format!(
        "fragments of {}: {:.2} GB/s {what}, {} in total; per stream {} streams",
        size(built.fragment_bytes),
        built.gigabytes_per_second,
        frequency(built.fragments_per_second()),
        rates.join(", ")
    )
}

fn size(bytes: usize) -> String {
    if bytes >= 1 << 10 { format!("{} KiB", bytes >> 10) } else { format!("{bytes} B") }
}

fn frequency(hertz: f64) -> String {
    match hertz {
        many if many >= 1e6 => format!("{:.1} MHz", many / 1e6),
        some if some >= 1e3 => format!("{:.1} kHz", some / 1e3),
        few => format!("{few:.0} Hz"),
    }
}

/// What to change first: harmful findings before mediocre ones, measured ones before estimated ones.
fn first(findings: &[Finding]) -> Vec<String> {
    let mut advised: Vec<_> = findings.iter().filter(|finding| finding.grade >= Grade::CouldBeBetter).collect();
    let believed = |finding: &Finding| finding.sureness != Sureness::Measured;
    advised.sort_by_key(|finding| (std::cmp::Reverse(finding.grade), believed(finding), finding.changes.is_empty()));
    let told = advised.iter().take(3).map(|finding| {
        format!("{}: {} -> {} ({})", finding.subject, finding.found, finding.advised, finding.why.trim_end_matches('.'))
    });
    told.collect()
}
