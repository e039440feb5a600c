//! What must hold of every event, and of a board in the end.

use super::super::broken::{Broken, Checker};
use super::super::stand::{held, is_accounted_for};
use super::board::{Board, Frame};
use super::scenario::{Break, Scenario, Style};
use ropewalk_flow::messages::FragmentFlags;
use ropewalk_flow::readout::Readout;
use ropewalk_terms::{EventKey, FragmentAccount};

/// Compares what a settled event holds with the frames that boards sent of it; says whether it is complete.
pub(super) fn look(key: EventKey, scenario: &Scenario, boards: &[Board], readout: &Readout) -> Result<bool, Broken> {
    let (event, fragments) = (key.number(), held(key, readout)?);
    let mut is_complete = true;
    for (index, board) in boards.iter().enumerate() {
        let mine = fragments.iter().find(|one| one.meta.source.0 == index as u32 + 1);
        let there = mine.filter(|one| one.meta.missing_cause().is_none());
        is_complete &= there.is_some();
        let sent = board.of(event);
        Broken::unless(there.is_none() == sent.is_empty(), Checker::Loss, || {
            format!("event {event}: board {index} sent {} frames, and is {mine:?}", sent.len())
        })?;
        let Some(fragment) = there else { continue };
        let bytes = fragment.payload.to_vec();
        let ends = (1..=sent.len()).filter(|&end| may_end(sent, end));
        let found = ends.map(|end| &sent[..end]).find(|frames| concat(frames) == bytes);
        let Some(frames) = found else {
            let words = format!("event {event}: board {index}: {} bytes that are none of its frames", bytes.len());
            return Err(Broken::new(Checker::Content, words));
        };
        let is_flagged = fragment.meta.flags.contains(FragmentFlags::FRAMES_MISSING);
        Broken::unless(is_flagged == is_known_to_miss(scenario.style, frames), Checker::Content, || {
            format!("event {event}: board {index}: {frames:?}, and that frames are missing is said: {is_flagged}")
        })?;
    }
    Ok(is_complete)
}

/// Whether a fragment may end behind so many of an event's frames: with the last of them, or where its board made others wait.
fn may_end(sent: &[Frame], end: usize) -> bool {
    end == sent.len() || sent[end - 1].behind.is_some_and(Break::may_end)
}

fn concat(frames: &[Frame]) -> Vec<u8> {
    frames.iter().flat_map(|frame| &frame.bytes).copied().collect()
}

/// Whether these frames alone show that there were others of their event.
fn is_known_to_miss(style: Style, frames: &[Frame]) -> bool {
    let has_holes = frames.windows(2).any(|pair| pair[1].place != pair[0].place + 1);
    let begins_late = frames.first().is_some_and(|first| first.place > 0);
    let ends_early = frames.last().is_some_and(|last| !last.is_last);
    match style {
        Style::Marked => has_holes || begins_late || ends_early,
        Style::Placed => has_holes || begins_late,
        Style::Numbered => has_holes,
    }
}

/// What must hold of a board's account in the end.
pub(super) fn judge(index: usize, board: &Board, account: &FragmentAccount) -> Result<(), Broken> {
    is_accounted_for(index, account)?;
    // Behind a break a frame may come too late, or begin its event a second time; nothing else is no fragment of an event.
    let is_behind_break = |frames: &[Frame]| {
        let mut breaks = frames.iter().map(|frame| frame.behind.is_some_and(Break::may_end));
        breaks.position(|may_end| may_end).map_or(0, |first| frames.len() - 1 - first)
    };
    let events = board.frames.chunk_by(|one, other| one.event == other.event);
    let (events, most_late) =
        events.fold((0, 0), |(events, late), frames| (events + 1, late + is_behind_break(frames)));
    let built = account.in_complete_events + account.in_incomplete_events;
    let rest = account.received - built;
    let is_right = built == events && rest == account.late + account.duplicate && rest <= most_late as u64;
    Broken::unless(is_right, Checker::Loss, || {
        format!("board {index}: {events} events, {most_late} frames behind a break: {account:?}")
    })
}
