//! Compares what a settled event holds with what boards sent of it.

use super::super::broken::{Broken, Checker};
use super::super::stand::held;
use super::board::data;
use super::scenario::Scenario;
use ropewalk_flow::readout::Readout;
use ropewalk_terms::EventKey;

/// Whether a settled event is complete.
pub(super) fn look(key: EventKey, scenario: &Scenario, readout: &Readout) -> Result<bool, Broken> {
    let (event, fragments) = (key.number(), held(key, readout)?);
    let mut is_complete = true;
    for (board, setting) in scenario.boards.iter().enumerate() {
        let mine = fragments.iter().find(|one| one.meta.source.0 == board as u32 + 1);
        let there = mine.filter(|one| one.meta.missing_cause().is_none());
        is_complete &= there.is_some();
        let was_sent = event <= setting.events();
        if let Some(fragment) = there {
            let expected = was_sent && fragment.payload.to_vec() == data(board, event);
            Broken::unless(expected, Checker::Content, || format!("event {event}: not what board {board} sent"))?;
        }
        if !setting.is_exact() || !was_sent {
            continue;
        }
        Broken::unless(there.is_none() == setting.loses(event), Checker::Loss, || {
            format!("event {event}: board {board} is {:?}", mine.map(|one| one.meta.missing_cause()))
        })?;
    }
    Ok(is_complete)
}
