//! Assembles the packets of one flow into sets of events.
//!
//! ```text
//!  sender's address --> source        first event --> number of the set --> place in the window --> slot
//!                                                                           new | open | finished | past
//!  slots: sets in assembly, oldest first       full | timed out | one too many  -->  finished sets, taken one by one
//! ```
//! All memory is allocated before the run: the maximum number of sets, a window over set numbers, and the queue of
//! finished sets. Sources send their packets of a set at about the same time, so the last set is tried first.

use super::account::{FlowAccount, SourceAccount};
use super::config::{FlowConfig, Incomplete, Output};
use super::set::{Ending, EventSet, Known, SetNumber, Window};
use super::sources::{Address, Masking, SourceHistograms, SourceNumbers, SourceTable};
use arrayvec::ArrayVec;
use core::time::Duration;
use ropewalk_memory::{Payload, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant};
use ropewalk_wire::mep::{MEP_HEADER_BYTES, MepError, MepHeader, check_fragments};
use std::collections::VecDeque;

/// The set of the previous packet, in most cases also that of the next one.
#[derive(Copy, Clone, Debug)]
struct Last {
    first_event: u32,
    slot: u16,
    set: SetNumber,
    /// Whether at least one source does not participate in it.
    is_partial: bool,
}

/// Why a packet cannot be placed.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Misplaced {
    /// It is refused for this cause.
    For(Cause),
    /// All sets are in use; some of them will be free soon.
    NoSet,
    /// Its set is implausibly far away.
    Far { set: SetNumber, source: u16 },
}

impl From<Cause> for Misplaced {
    fn from(cause: Cause) -> Self {
        Self::For(cause)
    }
}

/// Maximum jump beyond the newest set that one packet alone can cause, in events. Fragments repeat the lower 16 bits of
/// their event numbers, so damage in these bits is detected; damage in the upper bits moves a packet by 2^16 events or
/// more.
const LONGEST_JUMP: i64 = 1 << 15;

/// Number of packets that must agree on a longer jump.
const PROOF: usize = 3;

/// A packet of a set that is too far away for one packet alone.
#[derive(Debug)]
struct Far {
    set: SetNumber,
    source: u16,
    packet: Payload,
}

/// Assembles the sets of one flow.
#[derive(Debug)]
pub struct Assembly {
    sources: SourceTable,
    source_count: u16,
    packing: u16,
    partition: u32,
    first_event: u64,
    timeout: Duration,
    policy: Incomplete,
    /// The last event of the run, if known.
    last_event: Option<u64>,
    masking: Masking,
    window: Window,
    /// Packets of far sets, held until [`PROOF`] packets agree or the run continues elsewhere.
    far: ArrayVec<Far, { PROOF - 1 }>,
    /// Whether enough packets agreed and the held ones are being placed.
    is_far: bool,
    /// Set, source and cause of the last malformed packet whose set was not open yet.
    wrong: Option<(SetNumber, u16, Cause)>,
    slots: Box<[Option<EventSet>]>,
    vacant: Vec<u16>,
    ages: Ages,
    last: Option<Last>,
    /// Number of sets.
    sets: usize,
    empty: Vec<EventSet>,
    finished: VecDeque<EventSet>,
    /// All packets that arrived before this time were processed. Zero at the start: packets may have waited before this
    /// incarnation.
    heard: Instant,
    /// Whether a packet waits for a free set, and all later packets wait behind it.
    is_blocked: bool,
    /// Additional waiting time of a set for packets that are here but cannot be processed; `None`: no limit.
    patience: Option<Duration>,
    /// The cause for which no further set is opened.
    closed: Option<Cause>,
    account: FlowAccount,
    by_source: Box<[SourceAccount]>,
    numbers: Box<[SourceNumbers]>,
    /// The configured histograms by source; empty if there are none.
    histograms: Box<[SourceHistograms]>,
}

impl Assembly {
    /// Creates an empty table for the flow with this index; the configuration must have been checked.
    pub fn new(flow: u8, config: &FlowConfig) -> Self {
        let (sets, assembling) = (usize::from(config.sets), usize::from(config.assembling));
        let mut finished = VecDeque::new();
        finished.reserve_exact(sets);
        Self {
            sources: SourceTable::new(config),
            source_count: config.sources.len() as u16,
            packing: config.packing,
            partition: config.partition,
            first_event: config.first_event,
            timeout: config.timeout,
            policy: config.incomplete,
            last_event: None,
            masking: Masking::new(config),
            window: Window::new(config.window, config.sources.len()),
            far: ArrayVec::new(),
            is_far: false,
            wrong: None,
            slots: core::iter::repeat_with(|| None).take(assembling).collect(),
            vacant: (0..config.assembling).rev().collect(),
            ages: Ages::new(assembling),
            last: None,
            sets,
            empty: core::iter::repeat_with(|| EventSet::new(flow, config)).take(sets).collect(),
            finished,
            heard: Instant::ZERO,
            is_blocked: false,
            // By then all events are decided, and only the order of decisions holds sets, which waits for this set
            // itself.
            patience: (config.output == Output::Stream).then_some(config.decision_timeout),
            closed: None,
            account: FlowAccount::default(),
            by_source: vec![SourceAccount::default(); config.sources.len()].into_boxed_slice(),
            numbers: vec![SourceNumbers::default(); config.sources.len()].into_boxed_slice(),
            histograms: SourceHistograms::of(&config.histograms, config.sources.iter().map(|source| source.id)),
        }
    }

    /// Processes a packet from this address. It is kept, or refused, counted and dropped. If no set is free, it is
    /// returned uncounted, and can be offered again after a set was given back.
    #[inline]
    #[must_use = "a packet that comes back is in no account"]
    pub fn on_packet(&mut self, from: Address, packet: Payload, now: Instant) -> Option<Payload> {
        let bytes = packet.len() as u64;
        match self.place_of(from, &packet, now) {
            Ok((slot, source)) => self.place(slot, source, packet, now),
            Err(Misplaced::For(cause)) => self.count_refused(cause),
            Err(Misplaced::Far { set, source }) => self.far.push(Far { set, source, packet }),
            Err(Misplaced::NoSet) => {
                self.is_blocked = true;
                return Some(packet);
            }
        }
        self.account.packets.received += 1;
        self.account.bytes += bytes;
        None
    }

    #[cold]
    fn count_refused(&mut self, cause: Cause) {
        let packets = &mut self.account.packets;
        match cause {
            Cause::Duplicate => packets.duplicate += 1,
            Cause::Late => packets.late += 1,
            Cause::Stale => packets.stale += 1,
            Cause::AfterStop => packets.after_stop += 1,
            cause => packets.dropped.add(cause, 1),
        }
    }

    #[inline]
    fn place_of(&mut self, from: Address, packet: &Payload, now: Instant) -> Result<(u16, u16), Misplaced> {
        let source = self.sources.find(from)?;
        let Some(header) = packet.read_array::<MEP_HEADER_BYTES>(0) else {
            self.by_source[usize::from(source)].corrupt += 1;
            return Err(Cause::ShortPacket.into());
        };
        let header = MepHeader::from_bytes(&header);
        if let Err(cause) = self.check(&header, packet) {
            self.by_source[usize::from(source)].corrupt += 1;
            self.note_absent(header.first_event, source, cause);
            return Err(cause.into());
        }
        let run = self.newest_event() as u32;
        if self.numbers[usize::from(source)].is_out_of_sync(header.first_event, run)
            && !self.is_masked(header.first_event, source)
        {
            return Err(self.misplaced(source, header.first_event, Cause::OutOfSync.into()));
        }
        let slot = match self.slot_for(header.first_event, source, now) {
            Ok(slot) => slot,
            Err(misplaced) => return Err(self.misplaced(source, header.first_event, misplaced)),
        };
        let set = self.slots[usize::from(slot)].as_ref().expect("a set that is open has a slot");
        if !set.packets[usize::from(source)].is_empty() {
            return Err(self.misplaced(source, header.first_event, Cause::Duplicate.into()));
        }
        Ok((slot, source))
    }

    /// Checks the header, and that the fragments fill the packet and belong to the events in the header.
    #[inline]
    fn check(&self, header: &MepHeader, packet: &Payload) -> Result<(), Cause> {
        if header.partition != self.partition {
            return Err(Cause::WrongPartition);
        }
        if header.packing != self.packing {
            return Err(Cause::WrongPacking);
        }
        if usize::from(header.length) != packet.len() {
            return Err(MepError::Length.cause());
        }
        let fragments = match packet.contiguous() {
            Some(bytes) => check_fragments(header, |at| bytes.get(at..)?.first_chunk().copied()),
            None => check_fragments(header, |at| packet.read_array(at)),
        };
        fragments.map_err(|error| error.cause())
    }

    /// Records why a source is missing from a set after a malformed packet, which opens no set.
    #[cold]
    fn note_absent(&mut self, first_event: u32, source: u16, cause: Cause) {
        let Ok((set, _)) = self.number_of(first_event) else { return };
        match self.window.get(set) {
            _ if cause == Cause::WrongPartition || self.masking.covers(set, source) => {}
            Known::Open(slot) => {
                let set = self.slots[usize::from(slot)].as_mut().expect("a set that is open has a slot");
                if set.packets[usize::from(source)].is_empty() {
                    set.absent[usize::from(source)] = Some(cause);
                }
            }
            Known::New => self.wrong = Some((set, source, cause)),
            _ => {}
        }
    }

    #[cold]
    fn is_masked(&self, first_event: u32, source: u16) -> bool {
        self.number_of(first_event).is_ok_and(|(set, _)| self.masking.covers(set, source))
    }

    #[cold]
    fn misplaced(&mut self, source: u16, first_event: u32, misplaced: Misplaced) -> Misplaced {
        let run = self.newest_event() as u32;
        let account = &mut self.by_source[usize::from(source)];
        match misplaced {
            Misplaced::For(Cause::Masked) => account.masked += 1,
            Misplaced::For(Cause::OutOfSync) => account.out_of_sync += 1,
            Misplaced::For(Cause::Duplicate | Cause::Late | Cause::Stale) => {
                if let Some(restart) = self.numbers[usize::from(source)].refused(first_event, run) {
                    (account.restarts, account.last_restart) = (account.restarts + 1, restart);
                }
            }
            _ => {}
        }
        misplaced
    }

    /// Returns the first event of the newest set.
    fn newest_event(&self) -> u64 {
        self.first_event + self.window.end().saturating_sub(1) * u64::from(self.packing)
    }

    #[inline]
    fn place(&mut self, slot: u16, source: u16, packet: Payload, now: Instant) {
        let set = self.slots[usize::from(slot)].as_mut().expect("a set that is open has a slot");
        self.numbers[usize::from(source)].placed(set.first.number() as u32);
        let account = &mut self.by_source[usize::from(source)];
        account.packets += 1;
        account.bytes += packet.len() as u64;
        if let Some(histograms) = self.histograms.get_mut(usize::from(source)) {
            histograms.fill(&packet, now);
        }
        set.place(source, packet);
        if set.is_whole() {
            self.close(slot, Cause::TimedOut);
        }
    }

    /// Returns the slot of the set of a packet; opens the set for its first packet.
    #[inline]
    fn slot_for(&mut self, first_event: u32, source: u16, now: Instant) -> Result<u16, Misplaced> {
        match self.last {
            Some(last) if last.first_event == first_event => {
                let takes_part = !last.is_partial || !self.masking.covers(last.set, source);
                takes_part.then_some(last.slot).ok_or(Misplaced::For(Cause::Masked))
            }
            _ => self.search(first_event, source, now),
        }
    }

    fn search(&mut self, first_event: u32, source: u16, now: Instant) -> Result<u16, Misplaced> {
        if self.is_far {
            self.place_far(now)?;
        }
        let (set, ahead) = self.number_of(first_event)?;
        if ahead > LONGEST_JUMP && !self.masking.covers(set, source) {
            self.confirm(set, source)?;
            self.is_far = true;
            self.place_far(now)?;
        }
        let slot = self.find(set, source, now)?;
        if let Some(set) = &self.slots[usize::from(slot)] {
            let (number, is_partial) = (self.number(set.first), set.is_partial());
            self.last = Some(Last { first_event, slot, set: number, is_partial });
        }
        Ok(slot)
    }

    /// Returns the slot of a set; opens the set if it is new.
    fn find(&mut self, set: SetNumber, source: u16, now: Instant) -> Result<u16, Misplaced> {
        if self.masking.covers(set, source) {
            // Numbers of masked sources are not checked, so a far one proves nothing.
            let is_near = set < self.window.end() + self.window.places();
            if is_near && !is_planted(Flaw::GatewayForgetsRefused) {
                self.masking.refuse(source, set);
            }
            return Err(Cause::Masked.into());
        }
        match self.window.get(set) {
            Known::Open(slot) => Ok(slot),
            Known::Complete => Err(Cause::Duplicate.into()),
            Known::Incomplete if self.window.had_come(set, source) => Err(Cause::Duplicate.into()),
            Known::Incomplete | Known::Past => Err(Cause::Late.into()),
            Known::Refused(cause) => Err(cause.into()),
            Known::New => self.open(set, now),
        }
    }

    /// Returns the number of the set with this first event.
    const fn number(&self, first: EventKey) -> SetNumber {
        (first.number() - self.first_event) / self.packing as u64
    }

    /// Returns the number of the set with this first event, of which the lower 32 bits are known, and how many events
    /// it lies ahead of the newest set.
    fn number_of(&self, first_event: u32) -> Result<(SetNumber, i64), Cause> {
        let newest = self.newest_event();
        let ahead = i64::from(first_event.wrapping_sub(newest as u32) as i32);
        let event = newest.checked_add_signed(ahead).ok_or(Cause::Stale)?;
        let since = event.checked_sub(self.first_event).ok_or(Cause::Stale)?;
        if self.last_event.is_some_and(|last| event > last) {
            return Err(Cause::AfterStop);
        }
        if since % u64::from(self.packing) != 0 {
            return Err(Cause::Misaligned);
        }
        Ok((since / u64::from(self.packing), ahead))
    }

    /// Accepts a jump to a far set if [`PROOF`] packets agree, because one damaged number would make all good packets
    /// late. They must come from two sources, unless only one participates or no packet has arrived yet.
    #[cold]
    fn confirm(&mut self, set: SetNumber, source: u16) -> Result<(), Misplaced> {
        if self.closed.is_some() {
            // No packet that could confirm the jump is accepted any more.
            return Err(Cause::ImplausibleJump.into());
        }
        let nearest = LONGEST_JUMP as u64 / u64::from(self.packing);
        if self.far.iter().any(|far| far.set == set && far.source == source) {
            return Err(Cause::Duplicate.into());
        }
        if self.far.iter().any(|far| far.set.abs_diff(set) > nearest) {
            self.drop_far();
        }
        let is_alone = self.source_count - self.masking.masked() == 1 || self.window.end() == 0;
        if self.far.is_full() {
            if is_alone || self.far.iter().any(|far| far.source != source) {
                return Ok(());
            }
            self.far.remove(0);
            self.count_refused(Cause::ImplausibleJump);
        }
        Err(Misplaced::Far { set, source })
    }

    /// Places the held packets after enough packets confirmed the jump.
    fn place_far(&mut self, now: Instant) -> Result<(), Misplaced> {
        while let Some(&Far { set, source, .. }) = self.far.first() {
            match self.find(set, source, now) {
                Ok(slot) => {
                    let packet = self.far.remove(0).packet;
                    self.place(slot, source, packet, now);
                }
                Err(Misplaced::For(cause)) => {
                    self.far.remove(0);
                    let first_event = self.first_event + set * u64::from(self.packing);
                    self.misplaced(source, first_event as u32, cause.into());
                    self.count_refused(cause);
                }
                Err(misplaced) => return Err(misplaced),
            }
        }
        self.is_far = false;
        Ok(())
    }

    /// Drops the held packets because the run continued elsewhere.
    fn drop_far(&mut self) {
        for _ in self.far.take() {
            self.count_refused(Cause::ImplausibleJump);
        }
        self.is_far = false;
    }

    /// Opens a set. If too many sets are in assembly, the oldest is closed. If no empty set is left, the packet waits,
    /// except if all sets are in assembly: then the oldest is closed. After [`Assembly::close_all`] no set is opened,
    /// because nothing would end it.
    fn open(&mut self, set: SetNumber, now: Instant) -> Result<u16, Misplaced> {
        if let Some(cause) = self.closed {
            self.window.set(set, Known::Refused(cause));
            self.account.refused.add(cause, 1);
            return Err(cause.into());
        }
        if self.empty.is_empty() {
            let are_all_open = self.slots.len() - self.vacant.len() == self.sets;
            if let Some(oldest) = self.ages.oldest().filter(|_| are_all_open) {
                self.close(oldest, Cause::CrowdedOut);
            }
            return Err(Misplaced::NoSet);
        }
        if let Some(slot) = self.window.open_before(set) {
            self.close(slot, Cause::CrowdedOut);
        }
        if self.vacant.is_empty()
            && let Some(oldest) = self.ages.oldest()
        {
            self.close(oldest, Cause::CrowdedOut);
        }
        if !self.is_far {
            self.drop_far();
        }
        let mut empty = self.empty.pop().expect("there was one above");
        let slot = self.vacant.pop().expect("one was closed if all were taken");
        self.account.opened += 1;
        let left_out =
            if is_planted(Flaw::GatewayAwaitsMasked) { 0 } else { self.masking.left_out(set).count() as u16 };
        let first = EventKey::new(0, self.first_event + set * u64::from(self.packing));
        empty.begin(first, self.source_count - left_out, now, self.timeout);
        if let Some((_, source, cause)) = self.wrong.take_if(|wrong| wrong.0 == set)
            && !self.masking.covers(set, source)
        {
            empty.absent[usize::from(source)] = Some(cause);
        }
        self.slots[usize::from(slot)] = Some(empty);
        self.ages.push(slot);
        self.window.set(set, Known::Open(slot));
        Ok(slot)
    }

    /// Finishes an open set; missing sources without a known cause get this one.
    fn close(&mut self, slot: u16, cause: Cause) {
        let mut set = self.slots[usize::from(slot)].take().expect("only open sets are closed");
        self.ages.remove(slot);
        self.vacant.push(slot);
        self.last = None;
        let number = self.number(set.first);
        if set.is_whole() {
            self.window.set(number, Known::Complete);
            self.account.complete += 1;
            self.account.packets.in_complete_events += u64::from(set.received);
            if set.is_partial() {
                let Self { masking, by_source, .. } = self;
                masking.left_out(number).for_each(|source| by_source[usize::from(source)].left_out_of_complete += 1);
            }
        } else {
            set.end(cause, |source| !self.masking.covers(number, source));
            self.window.set_incomplete(number, set.packets.iter().map(|packet| !packet.is_empty()));
            self.count_incomplete(&mut set);
        }
        set.open_from = self.oldest_open();
        self.finished.push_back(set);
    }

    #[cold]
    fn count_incomplete(&mut self, set: &mut EventSet) {
        for (source, cause) in set.missing() {
            self.account.missing.add(cause, 1);
            if let Some(account) = self.by_source.get_mut(usize::from(source)) {
                account.missing += 1;
            }
        }
        let number = self.number(set.first);
        let Self { masking, by_source, .. } = self;
        masking.left_out(number).for_each(|source| by_source[usize::from(source)].left_out_of_incomplete += 1);
        let event = set.first.number();
        let received = u64::from(set.received);
        let dropped = match self.policy {
            _ if self.last_event.is_some_and(|last| event > last) => Some(Cause::AfterStop),
            Incomplete::Drop => Some(Cause::IncompletePolicy),
            Incomplete::Emit => None,
        };
        let Some(cause) = dropped else {
            self.account.incomplete += 1;
            self.account.packets.in_incomplete_events += received;
            return;
        };
        self.account.dropped.add(cause, 1);
        self.account.packets.dropped.add(cause, received);
        set.ending = Ending::Dropped(cause);
        set.let_go();
    }

    /// Masks or unmasks a source, by its index in the configuration, from the set after the newest one on. Earlier
    /// sets, also those in assembly, are not affected. Masking the last participating source has no effect.
    pub fn mask(&mut self, source: u16, is_masked: bool) {
        let too_early = u64::from(is_planted(Flaw::GatewayMasksTooEarly));
        self.masking.say(source, is_masked, self.window.end().saturating_sub(too_early));
    }

    /// Returns which sources were masked, from which event to which.
    pub const fn masking(&self) -> &Masking {
        &self.masking
    }

    /// Returns the first event of the oldest set in assembly.
    fn oldest_open(&self) -> EventKey {
        let open = self.ages.iter().filter_map(|slot| self.slots[usize::from(slot)].as_ref());
        open.map(|set| set.first).min().unwrap_or(EventKey::MAX)
    }

    /// Records that all packets that arrived until now were processed. Must be called regularly: a set does not time
    /// out while unprocessed packets may exist.
    pub const fn on_drained(&mut self, now: Instant) {
        (self.heard, self.is_blocked) = (now, false);
    }

    /// Records that packets wait unprocessed behind one for which no set is free: no set times out before
    /// [`Assembly::on_drained`], so no thread must wake up for a time-out.
    pub const fn on_blocked(&mut self) {
        self.is_blocked = true;
    }

    /// Copies packets to `room`, as far as it has space, because too much of the receive memory is held: those of the
    /// set that has waited longest among the sets with packets there. Returns the number of copied packets.
    pub fn evacuate(&mut self, room: &mut Staging) -> u64 {
        let Self { ages, slots, far, .. } = self;
        for far in far {
            if !far.packet.lies_in(room.pool())
                && let Some(copy) = far.packet.evacuate(room)
            {
                far.packet = copy;
                return 1;
            }
        }
        let mut moved = ages.iter().map(|slot| slots[usize::from(slot)].as_mut().map_or(0, |set| set.evacuate(room)));
        moved.find(|count| *count > 0).unwrap_or(0)
    }

    /// Finishes sets that have timed out.
    pub fn on_time(&mut self, now: Instant) {
        let heard = self.heard.min(now);
        while let Some((slot, deadline)) = self.oldest() {
            let is_due = deadline <= heard || self.patience.is_some_and(|patience| deadline.after(patience) <= now);
            if !is_due {
                return;
            }
            self.close(slot, Cause::TimedOut);
        }
    }

    /// Returns the oldest set in assembly and its time-out.
    fn oldest(&self) -> Option<(u16, Instant)> {
        let slot = self.ages.oldest()?;
        let set = self.slots[usize::from(slot)].as_ref()?;
        Some((slot, set.waits_until))
    }

    /// Changes the time-out of sets that are opened from now on. Sets in assembly keep theirs, but wait no longer than
    /// a set that is opened now: no set overtakes another, and shortening an excessive time-out takes effect at once.
    pub fn set_timeout(&mut self, timeout: Duration, now: Instant) {
        self.timeout = timeout;
        for set in self.slots.iter_mut().flatten() {
            set.waits_until = set.waits_until.min(now.after(timeout));
        }
    }

    /// Returns when the oldest set times out.
    pub fn next_deadline(&self) -> Instant {
        let Some((_, deadline)) = self.oldest() else { return Instant::FAR_FUTURE };
        if self.is_blocked {
            self.patience.map_or(Instant::FAR_FUTURE, |patience| deadline.after(patience))
        } else {
            deadline
        }
    }

    /// Sets the last event of the run. Open sets behind it are closed.
    pub fn stop_after(&mut self, last_event: u64) {
        self.last_event = Some(last_event);
        while let Some(slot) = self.first_behind(last_event) {
            self.close(slot, Cause::AfterStop);
        }
    }

    fn first_behind(&self, event: u64) -> Option<u16> {
        let is_behind = |set: &EventSet| set.first.number() > event;
        self.ages.iter().find(|&slot| self.slots[usize::from(slot)].as_ref().is_some_and(is_behind))
    }

    /// Finishes all open sets because nothing more will be received, and opens no further set.
    pub fn close_all(&mut self, cause: Cause) {
        self.closed = Some(cause);
        self.drop_far();
        while let Some(slot) = self.ages.oldest() {
            self.close(slot, cause);
        }
    }

    /// Takes the next finished set, in the order of completion; dropped sets too, without packets.
    pub fn take_finished(&mut self) -> Option<EventSet> {
        self.finished.pop_front()
    }

    /// Takes back a set of this flow.
    pub fn give_back(&mut self, mut set: EventSet) {
        set.clear();
        self.empty.push(set);
    }

    /// Returns the number of events in a set.
    pub(super) const fn packing(&self) -> u16 {
        self.packing
    }

    /// Returns the number of packets with implausible numbers.
    pub(super) const fn jumps(&self) -> u64 {
        self.account.packets.dropped.get(Cause::ImplausibleJump)
    }

    /// Returns the number of sets of which at least one packet arrived.
    pub(super) fn sets_seen(&self) -> u64 {
        self.account.opened + self.account.refused.total()
    }

    /// Returns the number of unused sets.
    pub const fn empty_sets(&self) -> usize {
        self.empty.len()
    }

    /// Returns the number of finished sets that were not taken yet.
    pub fn finished_sets(&self) -> usize {
        self.finished.len()
    }

    /// Returns the account of each source, in the order of the configuration.
    pub const fn by_source(&self) -> &[SourceAccount] {
        &self.by_source
    }

    /// Returns the contents of the configured histograms: for each source, by its index, its histograms with their
    /// indices in the configuration and all cells.
    pub fn histograms(&self) -> impl Iterator<Item = (u16, u8, &[u64])> {
        let sources = (0..).zip(&self.histograms);
        sources.flat_map(|(source, known)| known.all().iter().map(move |one| (source, one.index(), one.counts())))
    }

    /// Returns the account; packets in flight are counted from the table.
    pub fn account(&self) -> FlowAccount {
        let mut account = self.account;
        let held = |set: &EventSet| set.packets.iter().filter(|packet| !packet.is_empty()).count() as u64;
        let open = self.slots.iter().flatten();
        (account.open, account.packets.in_flight) =
            open.fold((0, 0), |(sets, packets), set| (sets + 1, packets + held(set)));
        account.packets.in_flight += self.far.len() as u64;
        account
    }
}

const NONE: u16 = u16::MAX;

/// A list of slots, oldest first, with removal from any place. Its capacity is fixed.
#[derive(Debug)]
pub(super) struct Ages {
    /// For each slot the older and the younger neighbour.
    links: Box<[(u16, u16)]>,
    oldest: u16,
    youngest: u16,
}

impl Ages {
    /// Creates a list for this many slots, fewer than 65,535.
    pub(super) fn new(slots: usize) -> Self {
        Self { links: vec![(NONE, NONE); slots].into_boxed_slice(), oldest: NONE, youngest: NONE }
    }

    /// Returns the oldest slot.
    fn oldest(&self) -> Option<u16> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Returns all slots, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        core::iter::successors(self.oldest(), |&slot| {
            Some(self.links[usize::from(slot)].1).filter(|&next| next != NONE)
        })
    }

    /// Appends a slot that is not in the list.
    pub(super) fn push(&mut self, slot: u16) {
        self.links[usize::from(slot)] = (self.youngest, NONE);
        match self.youngest {
            NONE => self.oldest = slot,
            before => self.links[usize::from(before)].1 = slot,
        }
        self.youngest = slot;
    }

    /// Removes a slot that is in the list.
    pub(super) fn remove(&mut self, slot: u16) {
        let (before, behind) = self.links[usize::from(slot)];
        match before {
            NONE => self.oldest = behind,
            before => self.links[usize::from(before)].1 = behind,
        }
        match behind {
            NONE => self.youngest = before,
            behind => self.links[usize::from(behind)].0 = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_list(choices in prop::collection::vec(0_u16..8, 0..60)) {
            let (mut ages, mut twin) = (Ages::new(8), Vec::new());
            for slot in choices {
                match twin.iter().position(|&other| other == slot) {
                    Some(place) => {
                        ages.remove(slot);
                        twin.remove(place);
                    }
                    None => {
                        ages.push(slot);
                        twin.push(slot);
                    }
                }
                prop_assert_eq!(ages.iter().collect::<Vec<_>>(), twin.clone());
                prop_assert_eq!(ages.oldest(), twin.first().copied());
            }
        }
    }
}
