//! Sources of a flow that are taken out in mid-run, and in again.
//!
//! ```text
//!  number of the set     0 ... 11     12 ... 30     31 ...
//!  the source          takes part      masked     takes part       its turns: 12, 31
//! ```
//! A turn is one past the newest set that was seen when it was said. So a set in assembly goes on as it was begun, and whoever knows
//! a source's turns knows of each event whether it took part: also of a set before the turn whose packets come late. A source that was
//! ahead of the others while it was masked takes part again behind the last set of which something of it was refused, so that no
//! set waits for what was let go. Turns of a flow never go back: at each set it is as it was when some of them had been said, and somebody
//! takes part.

use super::config::FlowConfig;
use super::window::SetNumber;
use crate::messages::ReportEntry;
use arrayvec::ArrayVec;
use ropewalk_terms::EventKey;

/// The sets at which a source was masked and took part again, in turns.
type Turns = ArrayVec<SetNumber, { ReportEntry::MOST_TURNS }>;

/// Of a source of which nothing was said.
const NEVER: SetNumber = SetNumber::MAX;

/// In which sets which source of a flow takes no part.
#[derive(Debug)]
pub struct Masking {
    first_event: u64,
    packing: u64,
    /// By source: its first turn, or [`NEVER`]. Apart, since it is looked at for each packet while anybody is masked.
    first: Box<[SetNumber]>,
    turns: Box<[Turns]>,
    /// By source: one past the newest set of which a packet was refused since it is masked.
    refused: Box<[SetNumber]>,
    /// The last turn of any source.
    latest: SetNumber,
    /// Sources that have turns.
    mentioned: Vec<u16>,
    /// Sources that are masked now.
    masked: u16,
    /// Turns of all sources.
    said: usize,
}

impl Masking {
    /// Everybody takes part.
    pub(super) fn new(config: &FlowConfig) -> Self {
        let sources = config.sources.len();
        Self {
            first_event: config.first_event,
            packing: config.packing.into(),
            first: vec![NEVER; sources].into_boxed_slice(),
            turns: vec![Turns::new(); sources].into_boxed_slice(),
            refused: vec![0; sources].into_boxed_slice(),
            latest: 0,
            mentioned: Vec::with_capacity(sources),
            masked: 0,
            said: 0,
        }
    }

    /// From the set `next` on, which is newer than any that was seen, or soon behind it, a source takes no part, or takes part again.
    /// Nothing changes where that is so already, where nobody would be left, and where it would not be recorded any more.
    pub(super) fn say(&mut self, source: u16, is_masked: bool, next: SetNumber) {
        let index = usize::from(source);
        let others = self.first.len() - usize::from(self.masked);
        let Some(turns) = self.turns.get_mut(index) else { return };
        match (is_masked, turns.len() % 2 == 1) {
            // There is room for the end of a mask, too.
            (true, false) if others > 1 && turns.remaining_capacity() >= 2 => self.masked += 1,
            (false, true) => self.masked -= 1,
            _ => return,
        }
        self.latest = next.max(self.latest).max(self.refused[index]);
        if turns.is_empty() {
            self.first[index] = self.latest;
            self.mentioned.push(source);
        }
        turns.push(self.latest);
        self.said += 1;
    }

    /// A packet of a masked source was refused, of a set that others soon come to.
    pub(super) fn refuse(&mut self, source: u16, set: SetNumber) {
        let refused = &mut self.refused[usize::from(source)];
        *refused = (set + 1).max(*refused);
    }

    /// Whether a source takes no part in a set.
    #[inline]
    pub(super) fn covers(&self, set: SetNumber, source: u16) -> bool {
        let index = usize::from(source);
        set >= self.first[index] && self.turns[index].iter().take_while(|&&turn| turn <= set).count() % 2 == 1
    }

    /// The sources that take no part in a set.
    pub(super) fn left_out(&self, set: SetNumber) -> impl Iterator<Item = u16> + '_ {
        self.mentioned.iter().copied().filter(move |&source| self.covers(set, source))
    }

    /// How many sources are masked now.
    pub(super) const fn masked(&self) -> u16 {
        self.masked
    }

    /// How many turns all sources had: as long as it is the same, so is everything else.
    pub const fn said(&self) -> usize {
        self.said
    }

    /// The sources that were ever masked, by their place in the configuration, with the events at which each was masked and took part
    /// again, in turns.
    pub fn turns(&self) -> impl Iterator<Item = (u16, impl Iterator<Item = EventKey> + '_)> + '_ {
        self.mentioned.iter().map(|&source| {
            let turns = self.turns[usize::from(source)].iter();
            (source, turns.map(|set| EventKey::new(0, self.first_event + set * self.packing)))
        })
    }
}
