//! Sources that start their numbering again in mid-run.
//!
//! ```text
//!   newest 800 |   0   10 ..  70    eight packets in a row behind the newest one, ascending: the source restarted
//!   run at 880 |  80 .. 810 820     810 lags behind the run by as much as the counter was set back: out of sync
//!   run at 1990 | 1990              as close to the run as before the restart: in sync again
//! ```
//! A packet holds nothing but its number that says where it belongs, so the packets of a restarted source are dropped. Only other
//! sources show how far the run has come: a source that is alone is in sync again with the number behind its newest one.

use ropewalk_terms::flaws::{Flaw, is_planted};

/// Packets in a row behind a source's newest one that show a restart. Fewer may have come twice or overtaken each other.
const PROOF: u8 = 8;

/// A source started its numbering again.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Recount {
    /// First event of its newest packet before, as in the packet.
    pub from: u32,
    /// First event of the first packet afterwards.
    pub to: u32,
}

/// How far the numbers of one source have come. Numbers are first events of packets and wrap.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct SourceNumbers {
    /// The newest one that has a place.
    newest: Option<u32>,
    /// Packets in a row behind it, ascending, and the first and the last of their numbers.
    in_a_row: u8,
    behind: (u32, u32),
    /// How far it lagged behind the run when the first of them came.
    lag: i32,
    is_out_of_sync: bool,
}

/// How far a number lies ahead of another one.
const fn ahead(number: u32, of: u32) -> i32 {
    number.wrapping_sub(of) as i32
}

impl SourceNumbers {
    /// A packet got its place.
    #[inline]
    pub(super) fn placed(&mut self, number: u32) {
        self.in_a_row = 0;
        if self.newest.is_none_or(|newest| ahead(number, newest) > 0) {
            self.newest = Some(number);
        }
    }

    /// A packet of a set that is past, or that had one, where the run has come to `run`. Returns the restart that it proves.
    pub(super) fn refused(&mut self, number: u32, run: u32) -> Option<Recount> {
        let newest = self.newest?;
        if ahead(number, newest) > 0 {
            self.in_a_row = 0;
            return None;
        }
        let goes_on = self.in_a_row > 0 && ahead(number, self.behind.1) > 0;
        if !goes_on {
            (self.in_a_row, self.behind, self.lag) = (0, (number, number), ahead(run, newest));
        }
        (self.in_a_row, self.behind.1) = (self.in_a_row + 1, number);
        self.is_out_of_sync = self.in_a_row == PROOF && !is_planted(Flaw::PacketRestartUnseen);
        self.is_out_of_sync.then_some(Recount { from: newest, to: self.behind.0 })
    }

    /// Whether a packet cannot be placed since its source restarted. One that is about as close to the run as before ends that.
    #[inline]
    pub(super) fn is_out_of_sync(&mut self, number: u32, run: u32) -> bool {
        self.is_out_of_sync && !self.comes_back(number, run)
    }

    #[cold]
    fn comes_back(&mut self, number: u32, run: u32) -> bool {
        let Some(newest) = self.newest.filter(|&newest| ahead(number, newest) > 0) else { return false };
        let set_back = ahead(newest, self.behind.0);
        let is_close = ahead(run, number) <= self.lag.saturating_add(set_back / 2);
        self.is_out_of_sync &= !is_close;
        is_close
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source whose newest number is 800, in a run at 810.
    fn at_800() -> SourceNumbers {
        let mut numbers = SourceNumbers::default();
        [780, 800, 790].into_iter().for_each(|number| numbers.placed(number));
        numbers
    }

    /// The restart that these numbers prove, if they do with the last one.
    fn refused(numbers: &mut SourceNumbers, all: impl IntoIterator<Item = u32>) -> Option<Recount> {
        all.into_iter().map(|number| numbers.refused(number, 810)).last().flatten()
    }

    #[test]
    fn eight_numbers_in_a_row_behind_the_newest_one_are_a_restart() {
        let mut numbers = at_800();
        assert_eq!(refused(&mut numbers, (0..70).step_by(10)), None);
        assert_eq!(refused(&mut numbers, [70]), Some(Recount { from: 800, to: 0 }));
        assert!(numbers.is_out_of_sync(80, 890) && numbers.is_out_of_sync(800, 1610));
        assert!(numbers.is_out_of_sync(810, 1620), "as far behind the run as it was set back");
        assert!(!numbers.is_out_of_sync(1640, 1640) && !numbers.is_out_of_sync(1650, 1640));
    }

    #[test]
    fn what_comes_twice_or_late_is_no_restart() {
        let cases: [(&str, Vec<u32>); 3] = [
            ("the same one", vec![500; 12]),
            ("they descend", (0..12).map(|place| 700 - place * 10).collect()),
            ("ahead: the source is late", (0..12).map(|place| 810 + place * 10).collect()),
        ];
        for (why, all) in cases {
            let mut numbers = at_800();
            assert!(all.into_iter().all(|number| numbers.refused(number, 810).is_none()), "{why}");
        }
        let mut numbers = at_800();
        assert_eq!(refused(&mut numbers, (730..800).step_by(10)), None);
        numbers.placed(810);
        assert_eq!(refused(&mut numbers, [800, 810]), None, "one was placed between");
    }

    #[test]
    fn a_source_that_repeats_its_last_packets_goes_on_at_once() {
        let mut numbers = at_800();
        assert!(refused(&mut numbers, (730..=800).step_by(10)).is_some());
        assert!(!numbers.is_out_of_sync(810, 820), "no further behind than before");
    }

    #[test]
    fn numbers_wrap() {
        let mut numbers = SourceNumbers::default();
        [u32::MAX - 4, 5, 15].into_iter().for_each(|number| numbers.placed(number));
        assert_eq!(refused(&mut numbers, (100..200).step_by(10)), None, "ahead");
        let behind = (0..8).map(|place| (u32::MAX - 94).wrapping_add(10 * place));
        assert_eq!(refused(&mut numbers, behind), Some(Recount { from: 15, to: u32::MAX - 94 }));
    }
}
