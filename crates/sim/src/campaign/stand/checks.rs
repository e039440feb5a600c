//! What must hold in each of these campaigns, whatever its boards send.

use super::super::broken::{Broken, Checker};
use ropewalk_flow::messages::Fragment;
use ropewalk_flow::readout::Readout;
use ropewalk_terms::{EventKey, FragmentAccount};

/// What a settled event holds: who announces one has it.
pub(in super::super) fn held(key: EventKey, readout: &Readout) -> Result<Vec<Fragment>, Broken> {
    let (mut fragments, held) = (Vec::new(), readout.super_fragment(key));
    Broken::unless(held.is_some(), Checker::Content, || format!("event {} is announced and not held", key.number()))?;
    held.iter().for_each(|held| held.append_to(&mut fragments));
    Ok(fragments)
}

/// No board is read further than the window.
pub(in super::super) fn reads_within(window: u32, readout: &Readout) -> Result<(), Broken> {
    let lead = readout.lead();
    Broken::unless(lead <= u64::from(window), Checker::Bounds, || {
        format!("a source was read {lead} events past the oldest one, {window} are allowed")
    })
}

/// In the end every fragment that came from a board has become something.
pub(in super::super) fn is_accounted_for(board: usize, account: &FragmentAccount) -> Result<(), Broken> {
    let is_settled = account.received == account.accounted() && account.in_flight == 0;
    Broken::unless(is_settled, Checker::Ledger, || {
        format!("board {board}: fragments received are not accounted for: {account:?}")
    })
}
