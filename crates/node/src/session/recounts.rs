//! Sources that start their numbering again in mid-run without a word, and what is done about that.

use crate::configuration::{Configuration, RestartChoice};
use crate::drive::RunSnapshot;
use ropewalk_flow::messages::{NumberingAnomaly, NumberingKind};
use ropewalk_terms::SourceId;
use std::collections::BTreeMap;

/// What the configuration says of that.
#[derive(Clone, Debug, Default)]
pub(super) struct RestartRules {
    /// What is done.
    pub(super) choice: RestartChoice,
    /// Sources' names.
    names: BTreeMap<SourceId, String>,
}

impl RestartRules {
    /// Those of a configuration. Sources of flows have no names but their ids.
    pub(super) fn of(configuration: &Configuration) -> Self {
        let name = |source: &crate::configuration::SourceSection| (SourceId(source.id), source.name_or_id());
        Self { choice: configuration.run.on_restart, names: configuration.source.iter().map(name).collect() }
    }
}

/// Of each source, how many restarts of the run were told.
#[derive(Debug, Default)]
pub(super) struct Recounts(BTreeMap<SourceId, usize>);

impl Recounts {
    /// Another run begins.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The restarts that were not told yet, for people.
    pub(super) fn news(&mut self, snapshot: &RunSnapshot, rules: &RestartRules) -> Vec<String> {
        let mut news = Vec::new();
        for (&source, anomalies) in &snapshot.numbering {
            let is_lost = |one: &&NumberingAnomaly| one.kind == NumberingKind::OutOfSync;
            let lost: Vec<_> = anomalies.iter().filter(is_lost).collect();
            let told = self.0.entry(source).or_default();
            let name = rules.names.get(&source).map_or_else(|| source.to_string(), Clone::clone);
            let text =
                |one: &&NumberingAnomaly| format!("source {name} restarted counting: {} -> {}", one.from, one.to);
            news.extend(lost.iter().skip(*told).map(text));
            *told = lost.len().max(*told);
        }
        news
    }
}
