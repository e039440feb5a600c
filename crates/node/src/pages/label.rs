//! What stands at the head of a page: who writes it, and what its cells are.

use ropewalk_flow::messages::ReportEntry;
use ropewalk_terms::{CAUSES, COUNTERS, Cause, Counter, CounterKind, Incarnation, SourceId, StreamIndex, Unit};
use serde::{Deserialize, Serialize};

/// The form of the label and of what the first cells are. Which numbers there are the label says itself.
pub(super) const FORM: &str = "ropewalk-counters-1";

/// The cells of the state, before the first row: those of two cache lines, which the numbers do not share.
pub(super) const STATE_CELLS: usize = 16;

/// What a cell of the state says.
#[derive(Copy, Clone, Debug)]
pub(super) enum StateCell {
    /// When the last turn began, in nanoseconds of the machine's monotonic clock; 0 before the first.
    Turned,
    /// Turns that began.
    Begun,
    /// Turns that ended.
    Ended,
    /// What was done in all turns.
    Work,
    /// When all numbers were told last, by the same clock.
    Told,
    /// The run.
    Run,
    /// How far it is: the index of a name in the label.
    Phase,
}

/// Whose numbers a row has.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerKind {
    /// The node's own.
    Node,
    /// Those of a source of the node.
    Source,
    /// Those of a stream, as the node has it.
    Stream,
}

/// A row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerLabel {
    /// Whose it is.
    pub of: OwnerKind,
    /// The source's id, or the stream's index.
    pub id: u32,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl OwnerLabel {
    /// The row of a source.
    pub const fn source(id: SourceId) -> Self {
        Self { of: OwnerKind::Source, id: id.0, name: String::new() }
    }

    /// The row of a stream.
    pub fn stream(index: StreamIndex, name: &str) -> Self {
        Self { of: OwnerKind::Stream, id: u32::from(index.0), name: name.to_owned() }
    }
}

/// A number that every row has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NumberLabel {
    /// Its stable name; of what has a cause `dropped:`, `missing:` or `lost:` with that.
    pub name: String,
    /// What it counts in: `count`, `bytes`, `nanoseconds`.
    pub unit: String,
    /// It says how much there is now, and may fall.
    pub level: bool,
    /// The sum over several rows means something.
    pub adds_up: bool,
}

/// What a node with a page is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PageRole {
    /// A readout unit.
    Readout,
    /// A builder unit.
    Builder,
    /// An event manager.
    Manager,
    /// A gateway, or a thread of one.
    Gateway,
}

impl PageRole {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Readout, Self::Builder, Self::Manager, Self::Gateway];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Readout => "readout",
            Self::Builder => "builder",
            Self::Manager => "manager",
            Self::Gateway => "gateway",
        }
    }
}

/// What stands at the head of a page, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Label {
    /// The form.
    pub form: String,
    /// The version of the program that writes it.
    pub program: String,
    /// The node's name; where two threads share its work, with that of the thread.
    pub node: String,
    /// What it is: the name of its [`PageRole`].
    pub role: String,
    /// The directory in which it makes its run directories.
    pub output: String,
    /// The process.
    pub pid: u32,
    /// Which life of the node.
    pub incarnation: u64,
    /// Civil time when the monotonic clock stood at zero, in nanoseconds since 1970.
    pub utc_at_zero_ns: i64,
    /// The names of phases, by their number.
    pub phases: Vec<String>,
    /// The rows; the first one is the node's own.
    pub rows: Vec<OwnerLabel>,
    /// The numbers of each row.
    pub numbers: Vec<NumberLabel>,
}

/// Phases, in the order of their numbers.
pub(super) const PHASES: [&str; 5] = ["initial", "configured", "running", "draining", "ended"];

/// The number that stands in a page for a phase.
pub(super) fn number_of(phase: &str) -> u64 {
    PHASES.iter().position(|name| *name == phase).unwrap_or_default() as u64
}

/// Numbers of every row: each counter, and what was dropped, never came, and was lost for each cause.
pub(super) const NUMBERS: usize = Counter::COUNT + 3 * Cause::COUNT;

/// Where the number of an entry stands in a row; none where it is told in no page.
pub(super) fn column(entry: &ReportEntry) -> Option<usize> {
    let by_cause = |part: usize, cause: Cause| Counter::COUNT + part * Cause::COUNT + cause as usize;
    entry
        .as_counter()
        .map(|counter| counter as usize)
        .or_else(|| entry.as_cause().map(|cause| by_cause(0, cause)))
        .or_else(|| entry.as_missing().map(|cause| by_cause(1, cause)))
        .or_else(|| entry.as_lost().map(|cause| by_cause(2, cause)))
}

/// The numbers of every row, in their order.
fn numbers() -> Vec<NumberLabel> {
    let counters = COUNTERS.iter().map(|counter| NumberLabel {
        name: counter.name().to_owned(),
        unit: counter.unit().name().to_owned(),
        level: counter.kind() != CounterKind::Total,
        adds_up: counter.kind() != CounterKind::State,
    });
    let unit = Unit::Count.name();
    let by_cause =
        ["dropped", "missing", "lost"].into_iter().flat_map(|what| CAUSES.iter().map(move |cause| (what, cause)));
    let by_cause = by_cause.map(|(what, cause)| NumberLabel {
        name: format!("{what}:{}", cause.name()),
        unit: unit.to_owned(),
        level: false,
        adds_up: true,
    });
    counters.chain(by_cause).collect()
}

/// Which node a label is for.
#[derive(Copy, Clone, Debug)]
pub(super) struct Who<'a> {
    pub(super) node: &'a str,
    pub(super) role: PageRole,
    pub(super) output: &'a str,
    pub(super) incarnation: Incarnation,
    pub(super) utc_at_zero_ns: i64,
}

impl Label {
    /// That of a page of this program, with rows for the node and these.
    pub(super) fn new(who: Who<'_>, rows: impl IntoIterator<Item = OwnerLabel>) -> Self {
        let own = OwnerLabel { of: OwnerKind::Node, id: 0, name: String::new() };
        Self {
            form: FORM.to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            node: who.node.to_owned(),
            role: who.role.name().to_owned(),
            output: who.output.to_owned(),
            pid: std::process::id(),
            incarnation: who.incarnation.0,
            utc_at_zero_ns: who.utc_at_zero_ns,
            phases: PHASES.map(str::to_owned).to_vec(),
            rows: std::iter::once(own).chain(rows).collect(),
            numbers: numbers(),
        }
    }

    /// How many cells its page has.
    pub(super) const fn cells(&self) -> usize {
        STATE_CELLS + self.rows.len() * self.numbers.len()
    }

    /// Reads a label, and holds it against the number of cells that the page has.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(text: &str, cells: usize) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            form: String,
        }
        let damaged = |error: serde_json::Error| format!("its label is damaged ({error})");
        let Form { form } = serde_json::from_str(text).map_err(damaged)?;
        if form != FORM {
            return Err(format!(
                "it has the form `{form}`, and this program reads `{FORM}`: read it with the program that wrote it"
            ));
        }
        let label: Self = serde_json::from_str(text).map_err(damaged)?;
        if label.rows.first().is_none_or(|row| row.of != OwnerKind::Node) || label.cells() != cells {
            return Err(format!("it is damaged: {cells} cells are not those of its label"));
        }
        Ok(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::control::RunPhase;

    #[test]
    fn every_phase_has_its_number() {
        use RunPhase::{Configured, Draining, Ended, Initial, Running};
        let names = [Initial, Configured, Running, Draining, Ended].map(RunPhase::name);
        assert_eq!((names, names.map(number_of)), (PHASES, [0, 1, 2, 3, 4]));
    }

    #[test]
    fn every_number_has_a_place_of_its_own_under_its_own_name() {
        let numbers = numbers();
        let entry = |what| ReportEntry { source: None, what, value: 0 };
        let of_causes = CAUSES.iter().flat_map(|&cause| {
            let places = [ReportEntry::cause(cause), ReportEntry::missing(cause), ReportEntry::lost(cause)];
            places.into_iter().zip(["dropped", "missing", "lost"].map(|what| format!("{what}:{}", cause.name())))
        });
        let all = COUNTERS.iter().map(|counter| (*counter as u16, counter.name().to_owned())).chain(of_causes);
        let mut places: Vec<usize> = all
            .map(|(what, name)| {
                let place = column(&entry(what)).expect("it has a place");
                assert_eq!(numbers[place].name, name);
                place
            })
            .collect();
        places.sort_unstable();
        assert_eq!((places, numbers.len()), ((0..NUMBERS).collect(), NUMBERS));
        assert_eq!(
            column(&ReportEntry::histogram(SourceId(1), 0, 0, 0)),
            None,
            "cells of histograms are no numbers of a page"
        );
    }
}
