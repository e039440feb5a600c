//! Sources taken out in mid-run, and connections whose bytes made no sense.

use super::error::FramingError;
use super::machine::Readout;
use ropewalk_terms::{Cause, EventKey, Instant};

impl Readout {
    /// From this event on, or from the oldest one that is not settled if that is later, a source does not take
    /// part: events neither wait for it nor hold it, and what it sends is dropped and counted. Returns from which
    /// event on, for the run's record.
    pub fn mask(&mut self, now: Instant, source: usize, from: EventKey) -> EventKey {
        let from = self.timeline.end_of(from.previous()).map_or(self.head, |position| position.max(self.head));
        let input = &mut self.sources[source];
        input.masked_from = input.masked_from.min(from);
        let masked_from = input.masked_from;
        let withdrawn = self.table.withdraw(source, masked_from..super::timeline::NEVER);
        self.sources[source].account.dropped.add(Cause::Masked, withdrawn);
        self.moved(now, source);
        self.timeline.key(masked_from)
    }

    /// A source's bytes made no sense: whatever was in them counts as one fragment that was dropped. The
    /// connection is closed and [`Readout::source_disconnected`] follows.
    pub fn framing_lost(&mut self, source: usize, error: FramingError) {
        let input = &mut self.sources[source];
        input.account.received += 1;
        input.account.dropped.add(error.cause, 1);
        input.statistics.framing_errors += 1;
        input.statistics.garbage_bytes += error.bytes_discarded;
    }
}
