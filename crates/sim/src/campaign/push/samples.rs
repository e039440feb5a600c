//! Somebody who watches a gateway all the time: what the tap gives is what sources sent, and says what was missing.

use super::farm::Held;
use super::files::banks;
use super::scenario::{Scenario, source_of};
use super::world::World;
use crate::campaign::outcome::{Broken, Checker};
use ropewalk_node::tap::{Asked, EventSample, EventSelection, Tap};
use ropewalk_terms::{Cause, NodeId};
use ropewalk_wire::run_file::EventFlags;
use std::collections::BTreeMap;

/// Samples of each kind that are kept of a gateway.
const MOST: usize = 32;
/// Bytes of each fragment.
const FRONT: usize = 256;

/// One kind of events that are asked for, one after the other.
struct Kind {
    selection: EventSelection,
    asked: Option<Asked>,
    /// Turns until the next one is asked for: more from one to the next, so that samples are of the whole run.
    rests: usize,
    samples: Vec<EventSample>,
}

/// Who watches a gateway, through all of its lives.
pub(super) struct Watcher {
    pub(super) tap: Tap,
    kinds: [Kind; 2],
}

impl Watcher {
    /// Who asks for any event, and for one that lacks something.
    pub(super) fn new(scenario: &Scenario) -> Self {
        let sources = scenario.flows.iter().map(|flow| usize::from(flow.sources.sources)).max();
        let kinds = [false, true].map(|is_incomplete| Kind {
            selection: EventSelection { is_incomplete, ..EventSelection::default() },
            asked: None,
            rests: 0,
            samples: Vec::new(),
        });
        let mut watcher = Self { tap: Tap::new(sources.unwrap_or_default()), kinds };
        watcher.look();
        watcher
    }

    /// Takes what has come, and asks anew.
    pub(super) fn look(&mut self) {
        for kind in self.kinds.iter_mut().filter(|kind| kind.samples.len() < MOST) {
            if let Some(sample) = kind.asked.as_mut().and_then(Asked::take) {
                kind.samples.push(sample);
                (kind.asked, kind.rests) = (None, kind.samples.len());
            }
            kind.rests = kind.rests.saturating_sub(1);
            if kind.asked.is_none() && kind.rests == 0 {
                kind.asked = self.tap.ask(kind.selection, FRONT);
            }
        }
    }
}

impl World {
    /// Whoever watched was shown events as they were.
    pub(super) fn judge_samples(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for (gateway, watcher) in (0u16..).zip(&self.watchers) {
            let sets = || referee.lives_of(gateway).flat_map(|life| &life.farm.sets);
            for (kind, sample) in
                watcher.kinds.iter().flat_map(|kind| kind.samples.iter().map(move |sample| (kind, sample)))
            {
                let broken = |words: &str| Broken::new(Checker::Content, format!("gw{gateway}: {words}: {sample:?}"));
                let place = self.place_of_sample(sample).ok_or_else(|| broken("there is no such event"))?;
                let mut lives = sets().filter(|(known, _)| **known == place).peekable();
                lives.peek().ok_or_else(|| broken("a sample of a set that no node was to get"))?;
                let is_right = lives.any(|(_, held)| is_as_held(sample, held)) && self.is_as_sent(sample);
                let is_wanted = !kind.selection.is_incomplete || !sample.is_complete();
                let is_named = sample.builder == NodeId::builder(gateway);
                Broken::unless(is_right && is_wanted && is_named, Checker::Content, || {
                    format!("gw{gateway}: whoever watches was shown {sample:?}")
                })?;
            }
            let was_something = sets().next().is_some();
            Broken::unless(!was_something || !watcher.kinds[0].samples.is_empty(), Checker::Loss, || {
                format!("gw{gateway}: whoever watched all the time saw no event")
            })?;
        }
        Ok(())
    }

    /// Flow and set of a sample: its sources tell the flow.
    fn place_of_sample(&self, sample: &EventSample) -> Option<(u8, u64)> {
        let there = sample.fragments.iter().map(|fragment| fragment.entry.source);
        let (flow, _) = source_of(there.chain(sample.missing.iter().map(|missing| missing.source)).next()?);
        let (set, _) = self.scenario.flows.get(usize::from(flow))?.place_of(sample.key)?;
        Some((flow, set))
    }

    /// Whether its fragments are what sources sent.
    fn is_as_sent(&self, sample: &EventSample) -> bool {
        sample.fragments.iter().all(|fragment| {
            let (flow, source) = source_of(fragment.entry.source);
            let sent = banks(&self.scenario.flows[usize::from(flow)], source, sample.key.number());
            fragment.entry.length as usize == sent.len() && sample.front_of(fragment) == &sent[..sent.len().min(FRONT)]
        })
    }
}

/// Whether a sample has the sources that had come, and says why which are missing.
fn is_as_held(sample: &EventSample, held: &Held) -> bool {
    let there = sample.fragments.iter().map(|fragment| source_of(fragment.entry.source).1);
    let missing = sample.missing.iter().filter_map(|missing| Some((source_of(missing.source).1, missing.cause()?)));
    held.came.iter().copied().eq(there)
        && missing.collect::<BTreeMap<u16, Cause>>() == held.absent
        && sample.flags.contains(EventFlags::INCOMPLETE) != held.absent.is_empty()
}
