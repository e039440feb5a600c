//! From guesses to a layout that can be tried.

use super::findings::{Group, Guess, Meaning, Wraps};
use ropewalk_wire::layout::{Clock, Frame, Layout, Number, Pattern, Plan};

/// The longest datagram: what UDP can carry.
const MOST_DATAGRAM: u32 = 65_507;
/// A frame that was never seen may be so much longer than the longest one that was.
const MARGIN: usize = 8;
/// The most that a stream's frames are expected to grow to, in bytes.
const MOST_STREAM_FRAME: u32 = 1 << 20;

/// A layout of what was found for this group: what is not certain is left out, and what is left compiles to a plan. None
/// where no frames were found.
pub fn draft(group: &Group) -> Option<Layout> {
    let is_stream = group.peers.iter().any(|account| account.peer.transport.is_stream());
    let frame = if is_stream { group.framing.clone()? } else { Frame::Datagram };
    let max = if is_stream {
        (group.most_frame * MARGIN).next_power_of_two().min(MOST_STREAM_FRAME as usize) as u32
    } else {
        MOST_DATAGRAM
    };
    let mut layout = Layout::new(frame, max.max(group.most_frame as u32));
    Plan::compile(&layout).ok()?;
    add(&mut layout, |layout| layout.matches = pattern(group));
    add(&mut layout, |layout| layout.time = clock(group));
    let counter = frame_counter(&group.guesses);
    add(&mut layout, |layout| layout.sequence = counter.map(|(number, _)| number));
    // What counts frames is the event's number as well where nothing else is.
    add(&mut layout, |layout| layout.event = event_number(&group.guesses).into_iter().collect());
    Some(layout)
}

/// Changes a layout if it still compiles then.
fn add(layout: &mut Layout, change: impl FnOnce(&mut Layout)) {
    let mut changed = layout.clone();
    change(&mut changed);
    if Plan::compile(&changed).is_ok() {
        *layout = changed;
    }
}

/// The first constant bytes that are long enough to be no accident, and that nothing else overlaps.
fn pattern(group: &Group) -> Option<Pattern> {
    let starts = match &group.framing {
        Some(Frame::Sync { word, .. }) => word.len(),
        _ => 0,
    };
    group.guesses.iter().find_map(|guess| match &guess.meaning {
        Meaning::Constant { at, bytes } if bytes.len() > 1 && *at >= starts => {
            Some(Pattern { at: *at as i32, bytes: bytes.clone(), mask: None })
        }
        _ => None,
    })
}

fn clock(group: &Group) -> Option<Clock> {
    let best = group.guesses.iter().find_map(|guess| match &guess.meaning {
        Meaning::Clock { number, tick, wraps, .. } => Some((*number, *tick, *wraps)),
        _ => None,
    });
    let (number, tick, wraps) = best?;
    let seconds = wraps.filter(Wraps::are_seconds).map(|wraps| wraps.number);
    let tick_attoseconds = (tick * 1e9).round() as u64;
    Some(Clock { ticks: vec![number], tick_attoseconds, seconds })
}

/// The counter of frames, that of all peers before others; and whether it is.
fn frame_counter(guesses: &[Guess]) -> Option<(Number, bool)> {
    let counters = guesses.iter().filter_map(|guess| match &guess.meaning {
        Meaning::FrameCounter { number, is_shared } => Some((*number, *is_shared)),
        _ => None,
    });
    // Wide ones before narrow ones.
    counters.max_by_key(|(number, is_shared)| (*is_shared, number.bytes, -number.at))
}

/// The event's number: what all peers count together, or what one of them counts for several frames, or else frames.
pub(super) fn event_number(guesses: &[Guess]) -> Option<Number> {
    let counter = frame_counter(guesses);
    let shared = counter.filter(|(_, is_shared)| *is_shared);
    let slow = guesses.iter().find_map(|guess| match &guess.meaning {
        Meaning::SlowCounter { number, .. } => Some((*number, false)),
        _ => None,
    });
    shared.or(slow).or(counter).map(|(number, _)| number)
}
