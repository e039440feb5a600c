//! The participation of sources in runs, as chosen by operators. A choice applies to the current run, from a recorded
//! event on, and to the following runs.

use super::control_handle::RequestRefusal;
use ropewalk_config::Configuration;
use ropewalk_terms::Requirement;
use ropewalk_terms::SourceId;
use ropewalk_wire::message::ReportEntry;
use std::collections::{BTreeMap, BTreeSet};

/// The sources, and whether each may be masked and unmasked.
#[derive(Clone, Debug, Default)]
pub(super) struct MaskRules {
    /// Why a source cannot be masked or unmasked; `None` if it can.
    sources: BTreeMap<SourceId, Option<&'static str>>,
    /// Flows by name, with the sources that may be masked. At least one of each flow must take part.
    flows: Vec<(String, Vec<SourceId>)>,
}

impl MaskRules {
    /// Returns the rules for the sources of readout units, or of flows.
    pub(super) fn of(configuration: &Configuration) -> Self {
        const MASKED: Option<&str> = Some("the configuration masks it in every run");
        let rule = |(trigger, requirement): (bool, Requirement)| match requirement {
            _ if trigger => Some("it is the trigger source, which opens the events"),
            Requirement::Masked => MASKED,
            Requirement::Required | Requirement::Optional => None,
        };
        let sources = configuration.source.iter();
        let sources = sources.map(|source| (SourceId(source.id), rule((source.trigger, source.requirement))));
        let mut rules = Self { sources: sources.collect(), flows: Vec::new() };
        for flow in &configuration.flow {
            let ids = |masked| flow.sources.entries(masked).map(|(id, _)| SourceId(id));
            for source in ids(true) {
                rules.sources.entry(source).or_insert(MASKED);
            }
            rules.sources.extend(ids(false).map(|source| (source, None)));
            rules.flows.push((flow.name.clone(), ids(false).collect()));
        }
        rules
    }

    /// Refuses a mask that would leave no source, in all or in one of the flows that have sources.
    fn expect_a_source(&self, takes_part: impl Fn(&SourceId) -> bool) -> Result<(), RequestRefusal> {
        let empty = self.flows.iter().find(|(_, sources)| !sources.iter().any(&takes_part));
        let of_flow = empty.map(|(flow, _)| format!("no source of flow `{flow}` would be left to take part"));
        let of_all =
            || (!self.sources.keys().any(&takes_part)).then(|| "no source would be left to take part".to_owned());
        of_flow.or_else(of_all).map_or(Ok(()), |why| Err(RequestRefusal::Unfit(why)))
    }
}

/// An operator's request to mask or unmask sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaskRequest {
    /// The sources.
    pub sources: Vec<SourceId>,
    /// Whether to mask them. False unmasks them.
    pub is_masked: bool,
}

/// The masks that operators have set.
#[derive(Debug, Default)]
pub(super) struct Masks {
    rules: MaskRules,
    masked: BTreeSet<SourceId>,
    /// Sources that were ever masked or unmasked.
    mentioned: BTreeSet<SourceId>,
    /// Number of mask changes of each source in the current run; `None` between runs.
    turns: Option<BTreeMap<SourceId, usize>>,
}

impl Masks {
    pub(super) const fn new(rules: MaskRules) -> Self {
        Self { rules, masked: BTreeSet::new(), mentioned: BTreeSet::new(), turns: None }
    }

    /// Applies a changed set of sources. Masks of sources that remain and may be masked are kept.
    pub(super) fn follow(&mut self, rules: MaskRules) {
        let may_be = |source: &SourceId| matches!(rules.sources.get(source), Some(None));
        self.masked.retain(may_be);
        self.mentioned.retain(may_be);
        self.rules = rules;
    }

    /// Returns the masked sources.
    pub(super) const fn masked(&self) -> &BTreeSet<SourceId> {
        &self.masked
    }

    /// Returns whether each source that was ever mentioned is masked. Each run must be informed, because front ends
    /// stay connected from run to run and may have missed a change in between.
    fn said(&self) -> impl Iterator<Item = (SourceId, bool)> + '_ {
        self.mentioned.iter().map(|&source| (source, self.masked.contains(&source)))
    }

    /// Begins a run. Returns its masks: whether each source that was ever mentioned is masked.
    pub(super) fn begin(&mut self) -> impl Iterator<Item = (SourceId, bool)> + '_ {
        self.turns = Some(self.masked.iter().map(|&source| (source, 1)).collect());
        self.said()
    }

    /// Ends the run.
    pub(super) fn end(&mut self) {
        self.turns = None;
    }

    /// Refuses a change that could not be recorded: `more` further turns of this source in the current run.
    fn expect_turns(&self, source: SourceId, more: usize) -> Result<(), RequestRefusal> {
        let times = ReportEntry::MOST_TURNS;
        let turns = self.turns.as_ref().and_then(|turns| turns.get(&source)).copied().unwrap_or(0);
        if turns + more <= times {
            return Ok(());
        }
        let why = format!(
            "source {source} was taken out and in {turns} times in this run, and more than {times} are not recorded: start the next one"
        );
        Err(RequestRefusal::Unfit(why))
    }

    /// Refuses sources that cannot be masked and then unmasked.
    pub(super) fn expect_restart(&self, sources: &[SourceId]) -> Result<(), RequestRefusal> {
        let turns = |source: &SourceId| if self.masked.contains(source) { 1 } else { 2 };
        sources.iter().try_for_each(|source| self.expect_turns(*source, turns(source)))
    }

    /// Applies the whole request or nothing. Returns the sources whose mask changed.
    pub(super) fn ask(&mut self, request: &MaskRequest) -> Result<Vec<SourceId>, RequestRefusal> {
        let what = if request.is_masked { "masked" } else { "taken in" };
        for source in &request.sources {
            match self.rules.sources.get(source) {
                None => return Err(RequestRefusal::Unknown(format!("there is no source {source}"))),
                Some(Some(why)) => {
                    return Err(RequestRefusal::Unfit(format!("source {source} cannot be {what}: {why}")));
                }
                Some(None) => {}
            }
        }
        let mut masked = self.masked.clone();
        for &source in &request.sources {
            if request.is_masked {
                masked.insert(source)
            } else {
                masked.remove(&source)
            };
        }
        let takes_part = |source: &SourceId| !masked.contains(source);
        if request.is_masked {
            self.rules.expect_a_source(takes_part)?;
        }
        let changed: Vec<SourceId> = masked.symmetric_difference(&self.masked).copied().collect();
        changed.iter().try_for_each(|&source| self.expect_turns(source, 1))?;
        if let Some(turns) = &mut self.turns {
            changed.iter().for_each(|&source| *turns.entry(source).or_default() += 1);
        }
        self.mentioned.extend(&changed);
        self.masked = masked;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<SourceId> {
        ids.iter().copied().map(SourceId).collect()
    }

    fn ask(masks: &mut Masks, sources: &[u32], is_masked: bool) -> Result<Vec<SourceId>, RequestRefusal> {
        masks.ask(&MaskRequest { sources: ids(sources), is_masked })
    }

    /// Returns rules by which all these sources may be masked.
    fn all(ids: &[u32]) -> MaskRules {
        MaskRules { sources: ids.iter().map(|&id| (SourceId(id), None)).collect(), ..MaskRules::default() }
    }

    fn unfit(text: &str) -> Result<Vec<SourceId>, RequestRefusal> {
        Err(RequestRefusal::Unfit(text.to_owned()))
    }

    #[test]
    fn changed_masks_are_reported_and_an_impossible_request_is_refused_as_a_whole() {
        let rules = [(1, Some("it triggers")), (2, None), (3, None), (4, None)];
        let rules = MaskRules { sources: rules.map(|(id, why)| (SourceId(id), why)).into(), ..MaskRules::default() };
        let mut masks = Masks::new(rules);
        assert_eq!(ask(&mut masks, &[2, 3], true), Ok(ids(&[2, 3])));
        assert_eq!(ask(&mut masks, &[3, 4], true), Ok(ids(&[4])));
        assert_eq!(ask(&mut masks, &[2, 1], false), unfit("source 1 cannot be taken in: it triggers"));
        assert_eq!(ask(&mut masks, &[2, 9], false), Err(RequestRefusal::Unknown("there is no source 9".to_owned())));
        assert_eq!(masks.masked().len(), 3, "nothing of what is refused is done");
        assert_eq!(ask(&mut masks, &[2, 3], false), Ok(ids(&[2, 3])));
        assert_eq!(ask(&mut masks, &[2], false), Ok(vec![]));
        let said = [(2, false), (3, false), (4, true)].map(|(id, is_masked)| (SourceId(id), is_masked));
        assert_eq!(masks.begin().collect::<Vec<_>>(), said, "sources that take part again are listed, too");
    }

    #[test]
    fn what_was_said_of_sources_that_stay_still_holds() {
        let mut masks = Masks::new(all(&[1, 2, 3]));
        ask(&mut masks, &[2, 3], true).expect("they may be");
        masks.follow(all(&[1, 3, 4]));
        assert_eq!(masks.masked().iter().copied().collect::<Vec<_>>(), ids(&[3]));
        assert_eq!(masks.begin().count(), 1);
        assert!(ask(&mut masks, &[2], false).is_err(), "it is gone");
    }

    #[test]
    fn what_would_not_be_recorded_is_refused() {
        let mut masks = Masks::new(all(&[1, 2]));
        ask(&mut masks, &[2], true).expect("it may be");
        assert_eq!(masks.begin().count(), 1);
        for turn in 1..ReportEntry::MOST_TURNS {
            ask(&mut masks, &[2], turn % 2 == 0).expect("it is recorded");
        }
        assert!(masks.expect_restart(&ids(&[2])).is_err() && masks.expect_restart(&ids(&[1])).is_ok());
        assert!(matches!(ask(&mut masks, &[2], false), Ok(none) if none.is_empty()), "it takes part already");
        let refused = ask(&mut masks, &[2], true);
        assert!(
            matches!(&refused, Err(RequestRefusal::Unfit(why)) if why.contains("64 times in this run")),
            "{refused:?}"
        );
        masks.end();
        ask(&mut masks, &[2], true).expect("between runs nothing is recorded");
    }

    #[test]
    fn one_source_must_take_part() {
        let mut masks = Masks::new(all(&[1, 2]));
        assert_eq!(ask(&mut masks, &[1, 2], true), unfit("no source would be left to take part"));
        assert_eq!(ask(&mut masks, &[1], true), Ok(ids(&[1])));
        assert_eq!(ask(&mut masks, &[2], true), unfit("no source would be left to take part"));
    }

    #[test]
    fn one_source_of_each_flow_must_take_part() {
        let text = "version = 1\n[[flow]]\nname = \"l1\"\npacking = 5\n\
                    sources = { count = 3, first = 0, address = \"127.0.0.1:23000\", masked = [1] }\n\
                    [[flow]]\nname = \"hlt\"\npacking = 5\nsources = { count = 2, first = 10, address = \"127.0.0.1:24000\" }\n\
                    [[gateway]]\nname = \"gw0\"\nlisten = { l1 = \"127.0.0.1:0\", hlt = \"127.0.0.1:0\" }\n[farm]\nnodes = 1\nemulate = {}\n";
        let read = ropewalk_config::parse("masks", text, &|_| None);
        let mut masks = Masks::new(MaskRules::of(&read.unwrap_or_else(|error| panic!("{error}"))));
        assert_eq!(
            ask(&mut masks, &[1], false),
            unfit("source 1 cannot be taken in: the configuration masks it in every run")
        );
        assert_eq!(ask(&mut masks, &[0, 10], true), Ok(ids(&[0, 10])));
        assert_eq!(ask(&mut masks, &[2], true), unfit("no source of flow `l1` would be left to take part"));
        assert_eq!(ask(&mut masks, &[11], true), unfit("no source of flow `hlt` would be left to take part"));
        assert_eq!(ask(&mut masks, &[10], false), Ok(ids(&[10])));
        assert_eq!(ask(&mut masks, &[11], true), Ok(ids(&[11])));
        assert_eq!(ask(&mut masks, &[3], true), Err(RequestRefusal::Unknown("there is no source 3".to_owned())));
    }
}
