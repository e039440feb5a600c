//! The sources of a flow: finds the source of a packet, and holds masks and counts per source.

use super::config::FlowConfig;
use super::set::{Range, SetNumber};
use crate::histogram::{Histogram, HistogramConfig, Histogrammed};
use crate::messages::ReportEntry;
use arrayvec::ArrayVec;
use core::fmt;
use core::net::Ipv4Addr;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, EventKey, Instant, SourceId};
use ropewalk_wire::mep::{FRAGMENT_HEADER_BYTES, FragmentHeader, MEP_HEADER_BYTES};

/// Address of a source.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The sender's address.
    pub ip: Ipv4Addr,
    /// Its UDP port; 0 for raw IP, or if the port does not matter.
    pub port: u16,
}

impl Address {
    /// Any port of this IP address.
    pub const fn of(ip: Ipv4Addr) -> Self {
        Self { ip, port: 0 }
    }

    /// Whether ports distinguish sources too: at least one address has a port.
    pub(super) fn tells_ports(mut sources: impl Iterator<Item = Self>) -> bool {
        sources.any(|address| address.port != 0)
    }

    /// Returns address and port as one number.
    #[inline]
    pub(super) const fn number(self, by_port: bool) -> u64 {
        let port = if by_port { self.port } else { 0 };
        (self.ip.to_bits() as u64) << 16 | port as u64
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == 0 { self.ip.fmt(out) } else { write!(out, "{}:{}", self.ip, self.port) }
    }
}

/// Marks an empty place; no address has this number.
const VACANT: u64 = u64::MAX;
/// Index of masked sources; there are fewer sources than this.
const MASKED: u16 = u16::MAX;

/// Hash table from addresses to source indices. It is at most half full, so that searches are short.
#[derive(Debug)]
pub(super) struct SourceTable {
    places: Box<[(u64, u16)]>,
    shift: u32,
    by_port: bool,
}

impl SourceTable {
    pub(super) fn new(config: &FlowConfig) -> Self {
        let by_port = Address::tells_ports(config.addresses());
        let length = (2 * config.addresses().count()).next_power_of_two().max(2);
        let places = vec![(VACANT, 0); length].into_boxed_slice();
        let mut table = Self { places, shift: 64 - length.trailing_zeros(), by_port };
        for (index, address) in config.addresses().enumerate() {
            let number = address.number(by_port);
            let place = table.place(number);
            table.places[place] = (number, if index < config.sources.len() { index as u16 } else { MASKED });
        }
        table
    }

    /// Returns the source at this address.
    ///
    /// # Errors
    /// [`Cause::UnknownSource`] and [`Cause::Masked`].
    #[inline]
    pub(super) fn find(&self, address: Address) -> Result<u16, Cause> {
        let number = address.number(self.by_port);
        match self.places[self.place(number)] {
            (found, _) if found != number => Err(Cause::UnknownSource),
            (_, MASKED) => Err(Cause::Masked),
            (_, index) => Ok(index),
        }
    }

    /// Returns the place of the number, or where it would be.
    #[inline]
    fn place(&self, number: u64) -> usize {
        // Fibonacci hashing spreads neighbouring addresses.
        let mut place = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        while self.places[place].0 != number && self.places[place].0 != VACANT {
            place = (place + 1) & (self.places.len() - 1);
        }
        place
    }
}

/// Number of consecutive packets behind a source's newest one that prove a restart. Fewer may be duplicates or out of
/// order.
const PROOF: u8 = 8;

/// A restart of a source's numbering.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Recount {
    /// First event of its newest packet before the restart, as in the packet.
    pub from: u32,
    /// First event of the first packet after the restart.
    pub to: u32,
}

/// Progress of one source's numbers. Numbers are first events of packets and wrap. A source may restart its numbering
/// during the run:
///
/// ```text
///   newest 800 |   0   10 ..  70    eight packets in a row behind the newest one, ascending: the source restarted
///   run at 880 |  80 .. 810 820     810 lags behind the run by as much as the counter was set back: out of sync
///   run at 1990 | 1990              as close to the run as before the restart: in sync again
/// ```
/// Only the number of a packet says where it belongs, so the packets of a restarted source are dropped. Only other
/// sources show the progress of the run: a source that is alone is in sync again with the number after its newest one.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct SourceNumbers {
    /// The newest number that was placed.
    newest: Option<u32>,
    /// Number of consecutive ascending packets behind it, and the first and the last of their numbers.
    in_a_row: u8,
    behind: (u32, u32),
    /// How far it lagged behind the run at the first of them.
    lag: i32,
    is_out_of_sync: bool,
}

/// Returns how far a number lies ahead of another one.
const fn ahead(number: u32, of: u32) -> i32 {
    number.wrapping_sub(of) as i32
}

impl SourceNumbers {
    /// Records that a packet was placed.
    #[inline]
    pub(super) fn placed(&mut self, number: u32) {
        self.in_a_row = 0;
        if self.newest.is_none_or(|newest| ahead(number, newest) > 0) {
            self.newest = Some(number);
        }
    }

    /// Records a packet of a past set, or of a set that already had one; the run has reached `run`. Returns a proven
    /// restart.
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
        self.is_out_of_sync = self.in_a_row == PROOF;
        self.is_out_of_sync.then_some(Recount { from: newest, to: self.behind.0 })
    }

    /// Whether a packet cannot be placed because its source restarted. A packet about as close to the run as before
    /// ends that.
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

/// The sets at which a source was masked and unmasked, alternately.
type Turns = ArrayVec<SetNumber, { ReportEntry::MOST_TURNS }>;

/// The first turn of a source that was never masked.
const NEVER: SetNumber = SetNumber::MAX;

/// The sets in which sources of a flow do not participate. Sources can be masked and unmasked during the run.
///
/// ```text
///  number of the set     0 ... 11     12 ... 30     31 ...
///  the source          takes part      masked     takes part       its turns: 12, 31
/// ```
/// A turn is one past the newest set that was seen at the command. So a set in assembly is not affected, and the turns
/// say for each event whether the source participates, also for a set before the turn whose packets arrive late. A
/// source that was ahead of the others while it was masked participates again after the last set of which it was
/// refused a packet, so that no set waits for refused packets. Turns of a flow never go back: the state at each set is
/// the state after some prefix of all turns, and at least one source participates.
#[derive(Debug)]
pub struct Masking {
    first_event: u64,
    packing: u64,
    /// First turn of each source, or [`NEVER`]. Separate, because it is read for each packet while any source is
    /// masked.
    first: Box<[SetNumber]>,
    turns: Box<[Turns]>,
    /// For each source: one past the newest set of which a packet was refused during its mask.
    refused: Box<[SetNumber]>,
    /// The last turn of any source.
    latest: SetNumber,
    /// Sources with turns.
    mentioned: Vec<u16>,
    /// Number of sources that are masked now.
    masked: u16,
    /// Number of turns of all sources.
    said: usize,
}

impl Masking {
    /// Creates the state in which all sources participate.
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

    /// Masks or unmasks a source from the set `next` on, which is newer than any that was seen, or soon after it. No
    /// effect if the source is in that state already, if no source would be left, or if the turn could not be recorded.
    pub(super) fn say(&mut self, source: u16, is_masked: bool, next: SetNumber) {
        let index = usize::from(source);
        let others = self.first.len() - usize::from(self.masked);
        let Some(turns) = self.turns.get_mut(index) else { return };
        match (is_masked, turns.len() % 2 == 1) {
            // Keeps room for the end of the mask.
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

    /// Records a refused packet of a masked source, of a set that the others will reach soon.
    pub(super) fn refuse(&mut self, source: u16, set: SetNumber) {
        let refused = &mut self.refused[usize::from(source)];
        *refused = (set + 1).max(*refused);
    }

    /// Whether a source does not participate in a set.
    #[inline]
    pub(super) fn covers(&self, set: SetNumber, source: u16) -> bool {
        let index = usize::from(source);
        set >= self.first[index] && self.turns[index].iter().take_while(|&&turn| turn <= set).count() % 2 == 1
    }

    /// Returns the sources that do not participate in a set.
    pub(super) fn left_out(&self, set: SetNumber) -> impl Iterator<Item = u16> + '_ {
        self.mentioned.iter().copied().filter(move |&source| self.covers(set, source))
    }

    /// Returns the number of sources that are masked now.
    pub(super) const fn masked(&self) -> u16 {
        self.masked
    }

    /// Returns the number of turns of all sources; if it is unchanged, so is everything else.
    pub const fn said(&self) -> usize {
        self.said
    }

    /// Returns the sources that were ever masked, by their index in the configuration, with the events at which each
    /// was masked and unmasked, alternately.
    pub fn turns(&self) -> impl Iterator<Item = (u16, impl Iterator<Item = EventKey> + '_)> + '_ {
        self.mentioned.iter().map(|&source| {
            let turns = self.turns[usize::from(source)].iter();
            (source, turns.map(|set| EventKey::new(0, self.first_event + set * self.packing)))
        })
    }
}

/// The configured histograms of one source.
///
/// A packet is counted once it is placed. Refused packets and packets of masked sources are in no histogram. The cost
/// is one scan of the fragments of each packet of a source with a histogram.
#[derive(Debug)]
pub(super) struct SourceHistograms {
    histograms: Box<[Histogram]>,
    /// When the previous packet arrived.
    came: Option<Instant>,
}

impl SourceHistograms {
    /// Creates the histograms of these sources in their order; empty if there are none.
    pub(super) fn of(configs: &[HistogramConfig], sources: impl Iterator<Item = SourceId>) -> Box<[Self]> {
        let new = |source| Self { histograms: Histogram::all_of(configs, source), came: None };
        let all: Vec<Self> = sources.map(new).collect();
        if all.iter().all(|source| source.histograms.is_empty()) { Box::default() } else { all.into_boxed_slice() }
    }

    /// Returns the histograms of the source.
    pub(super) const fn all(&self) -> &[Histogram] {
        &self.histograms
    }

    /// Counts a checked packet. Fragments of size 0 do not count, since they are not part of their events either.
    pub(super) fn fill(&mut self, packet: &Payload, now: Instant) {
        let before = self.came.replace(now);
        for histogram in &mut self.histograms {
            match histogram.of() {
                Histogrammed::Interval => {
                    before.into_iter().for_each(|before| histogram.count_interval(now.since(before)));
                }
                Histogrammed::Size => fragments(packet).for_each(|(_, length)| histogram.count(length as u64)),
                Histogrammed::Field(field) => fragments(packet).for_each(|(start, length)| {
                    let mut fragment = Range::new(packet, start, length);
                    histogram.count_field(field.read(core::iter::from_fn(|| fragment.take_piece())));
                }),
            }
        }
    }
}

/// Returns offset and size of the fragments of a packet, without those of size 0.
fn fragments(packet: &Payload) -> impl Iterator<Item = (usize, usize)> {
    let mut at = MEP_HEADER_BYTES;
    let all = core::iter::from_fn(move || {
        let FragmentHeader { length, .. } = FragmentHeader::from_bytes(packet.read_array(at)?);
        let start = at + FRAGMENT_HEADER_BYTES;
        at = start + usize::from(length);
        Some((start, usize::from(length)))
    });
    all.filter(|&(_, length)| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::PacketSource;
    use ropewalk_terms::SourceId;

    fn table(addresses: &[Address]) -> SourceTable {
        let source = |(index, &address)| PacketSource { id: SourceId(index as u32), address };
        SourceTable::new(&FlowConfig::new(addresses.iter().enumerate().map(source).collect(), 1))
    }

    #[test]
    fn every_source_is_found_and_no_other_address() {
        let addresses: Vec<_> = (0..323).map(|index| Address::of(Ipv4Addr::from_bits(0x0A00_0001 + index))).collect();
        let table = table(&addresses);
        for (index, address) in addresses.iter().enumerate() {
            assert_eq!(table.find(*address), Ok(index as u16));
            assert_eq!(table.find(Address { port: 77, ..*address }), Ok(index as u16), "the port does not matter");
        }
        assert_eq!(table.find(Address::of(Ipv4Addr::new(10, 0, 2, 0))), Err(Cause::UnknownSource));
        assert_eq!(table.find(Address::of(Ipv4Addr::BROADCAST)), Err(Cause::UnknownSource));
    }

    #[test]
    fn ports_tell_sources_of_one_host_apart() {
        let addresses: Vec<_> = (1..=9).map(|port| Address { ip: Ipv4Addr::LOCALHOST, port }).collect();
        let table = table(&addresses);
        assert!((1..=9).all(|port| table.find(Address { ip: Ipv4Addr::LOCALHOST, port }) == Ok(port - 1)));
        assert_eq!(table.find(Address::of(Ipv4Addr::LOCALHOST)), Err(Cause::UnknownSource));
    }

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
