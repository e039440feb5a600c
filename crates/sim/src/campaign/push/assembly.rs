//! What sets of one flow there must be in a gateway, told from the packets that it took and from nothing else.

use super::scenario::{FlowSetting, PLAUSIBILITY};
use ropewalk_flow::gateway::{FlowAccount, Incomplete, Output};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::mep::{MEP_HEADER_BYTES, MepHeader, MepView};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How far a set is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Open,
    Complete,
    Incomplete,
}

/// Why a packet does not find its place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Misplaced {
    For(Cause),
    /// No set is free for it: it waits, and so do all behind it.
    NoSet,
}

impl From<Cause> for Misplaced {
    fn from(cause: Cause) -> Self {
        Self::For(cause)
    }
}

/// One set of events.
#[derive(Clone, Debug)]
pub(super) struct Set {
    state: State,
    /// When its first packet was taken, by the gateway's clock.
    pub(super) opened: Instant,
    /// Sources whose packets are there.
    pub(super) came: BTreeSet<u16>,
    /// Why others are not.
    pub(super) absent: BTreeMap<u16, Cause>,
}

/// A set that is not assembled any more.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) number: u64,
    pub(super) set: Set,
    /// Why its events do not exist for anybody, where that is so.
    pub(super) dropped: Option<Cause>,
}

/// The sets of one flow in one gateway.
#[derive(Debug)]
pub(super) struct Assembly {
    setting: FlowSetting,
    sets: BTreeMap<u64, Set>,
    /// Those in assembly, in the order in which they were begun.
    open: Vec<u64>,
    /// One past the newest set.
    end: u64,
    /// Packets that wait for a set, with their sources.
    waiting: VecDeque<(Option<u16>, Vec<u8>)>,
    /// Everything that had come by then was taken; nothing was before the first look that found the end.
    heard: Instant,
    /// No event behind this one belongs to the run.
    last_event: Option<u64>,
    /// How many sets were begun in this turn, as the gateway says: how many are free depends on storage.
    room: u64,
    account: FlowAccount,
    /// Those that were finished and not asked for.
    finished: Vec<Finished>,
}

impl Assembly {
    pub(super) fn new(setting: &FlowSetting) -> Self {
        Self {
            setting: setting.clone(),
            sets: BTreeMap::new(),
            open: Vec::new(),
            end: 0,
            waiting: VecDeque::new(),
            heard: Instant::ZERO,
            last_event: None,
            room: 0,
            account: FlowAccount::default(),
            finished: Vec::new(),
        }
    }

    /// What the gateway's own account must be.
    pub(super) fn account(&self) -> FlowAccount {
        let mut account = self.account;
        account.open = self.open.len() as u64;
        account.packets.in_flight = self.open.iter().map(|number| self.sets[number].came.len() as u64).sum();
        account
    }

    /// The sets that were finished since this was asked last.
    pub(super) fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    /// All sets of which anything was taken.
    pub(super) fn sets(&self) -> &BTreeMap<u64, Set> {
        &self.sets
    }

    /// A turn begins, in which there is room for so many sets more. What waits comes first.
    pub(super) fn begin_turn(&mut self, room: u64, now: Instant) {
        self.room = room;
        while let Some((source, bytes)) = self.waiting.pop_front() {
            if !self.offer(source, &bytes, now) {
                self.waiting.push_front((source, bytes));
                return;
            }
        }
    }

    /// The run's last event is known.
    pub(super) const fn stop_after(&mut self, last_event: u64) {
        self.last_event = Some(last_event);
    }

    /// A packet was taken.
    pub(super) fn take(&mut self, source: Option<u16>, bytes: Vec<u8>, now: Instant) {
        if !self.waiting.is_empty() || !self.offer(source, &bytes, now) {
            self.waiting.push_back((source, bytes));
        }
    }

    /// The gateway looked for packets; `is_all` where it took all that there were.
    pub(super) fn look(&mut self, is_all: bool, now: Instant) {
        if is_all && self.waiting.is_empty() {
            self.heard = now;
        }
    }

    /// False where the packet has to wait.
    fn offer(&mut self, source: Option<u16>, bytes: &[u8], now: Instant) -> bool {
        let result = self.accept(source, bytes, now);
        if result == Err(Misplaced::NoSet) {
            return false;
        }
        self.account.packets.received += 1;
        self.account.bytes += bytes.len() as u64;
        let packets = &mut self.account.packets;
        match result {
            Err(Misplaced::For(Cause::Duplicate)) => packets.duplicate += 1,
            Err(Misplaced::For(Cause::Late)) => packets.late += 1,
            Err(Misplaced::For(Cause::Stale)) => packets.stale += 1,
            Err(Misplaced::For(Cause::AfterStop)) => packets.after_stop += 1,
            Err(Misplaced::For(cause)) => packets.dropped.add(cause, 1),
            Ok(()) | Err(Misplaced::NoSet) => {}
        }
        true
    }

    fn accept(&mut self, source: Option<u16>, bytes: &[u8], now: Instant) -> Result<(), Misplaced> {
        let source = source.filter(|&source| source < self.setting.sources.sources).ok_or(Cause::UnknownSource)?;
        if source >= self.setting.wanted() {
            return Err(Cause::Masked.into());
        }
        let header = bytes.first_chunk::<MEP_HEADER_BYTES>().ok_or(Cause::ShortPacket)?;
        let header = MepHeader::from_bytes(header);
        if header.partition != self.setting.sources.partition {
            return Err(Cause::WrongPartition.into());
        }
        let number = self.number_of(header.first_event);
        if header.packing != self.setting.sources.packing {
            let open = number.ok().and_then(|number| self.sets.get_mut(&number));
            if let Some(set) = open.filter(|set| set.state == State::Open && !set.came.contains(&source)) {
                set.absent.entry(source).or_insert(Cause::WrongPacking);
            }
            return Err(Cause::WrongPacking.into());
        }
        let number = number?;
        if !self.sets.contains_key(&number) {
            self.begin(number, now)?;
        }
        let set = self.sets.get_mut(&number).expect("it was there or was begun");
        match set.state {
            State::Open if !set.came.contains(&source) => {}
            State::Incomplete if !set.came.contains(&source) => return Err(Cause::Late.into()),
            State::Open | State::Complete | State::Incomplete => return Err(Cause::Duplicate.into()),
        }
        if let Err(error) = MepView::parse(bytes) {
            set.absent.insert(source, error.cause());
            return Err(error.cause().into());
        }
        set.absent.remove(&source);
        set.came.insert(source);
        if set.came.len() == usize::from(self.setting.wanted()) {
            self.finish(number, Cause::TimedOut);
        }
        Ok(())
    }

    /// The set that begins with an event of which 32 bits are known, seen from the newest one.
    fn number_of(&self, first_event: u32) -> Result<u64, Cause> {
        let (first, packing) = (self.setting.sources.first_event, u64::from(self.setting.sources.packing));
        let newest = first + self.end.saturating_sub(1) * packing;
        let ahead = i64::from(first_event.wrapping_sub(newest as u32) as i32);
        let since = newest.checked_add_signed(ahead).and_then(|event| event.checked_sub(first)).ok_or(Cause::Stale)?;
        if self.last_event.is_some_and(|last| first + since > last) {
            Err(Cause::AfterStop)
        } else if !since.is_multiple_of(packing) {
            Err(Cause::Misaligned)
        } else if ahead > i64::from(PLAUSIBILITY) {
            Err(Cause::ImplausibleJump)
        } else {
            Ok(since / packing)
        }
    }

    fn begin(&mut self, number: u64, now: Instant) -> Result<(), Misplaced> {
        if self.room == 0 {
            // Sets that are all in assembly become free only when one of them goes.
            if self.open.len() == usize::from(self.setting.capacity) {
                self.finish(self.open[0], Cause::CrowdedOut);
            }
            return Err(Misplaced::NoSet);
        }
        self.room -= 1;
        self.end = self.end.max(number + 1);
        self.account.opened += 1;
        if self.open.len() == usize::from(self.setting.assembling) {
            self.finish(self.open[0], Cause::CrowdedOut);
        }
        let set = Set { state: State::Open, opened: now, came: BTreeSet::new(), absent: BTreeMap::new() };
        self.sets.insert(number, set);
        self.open.push(number);
        Ok(())
    }

    /// Time passes for sets in assembly: whoever waited too long is finished. A set does not wait in vain for what has come
    /// and was not looked at.
    pub(super) fn pass(&mut self, now: Instant) {
        let heard = self.heard.min(now);
        while let Some(&oldest) = self.open.first() {
            let deadline = self.sets[&oldest].opened.after(self.setting.timeout);
            // By then everything else is decided, and waits for this set alone if decisions leave in order.
            let is_ordered = self.setting.output == Output::Stream;
            let holds_up = is_ordered && deadline.after(self.setting.decision_timeout) <= now;
            if deadline > heard && !holds_up {
                return;
            }
            self.finish(oldest, Cause::TimedOut);
        }
    }

    fn finish(&mut self, number: u64, cause: Cause) {
        self.open.retain(|&open| open != number);
        let sources = self.setting.wanted();
        let set = self.sets.get_mut(&number).expect("only sets that are there are finished");
        let received = set.came.len() as u64;
        let mut dropped = None;
        if set.came.len() == usize::from(sources) {
            set.state = State::Complete;
            self.account.complete += 1;
            self.account.packets.in_complete_events += received;
        } else {
            set.state = State::Incomplete;
            for source in (0..sources).filter(|source| !set.came.contains(source)) {
                self.account.missing.add(*set.absent.entry(source).or_insert(cause), 1);
            }
            if self.setting.incomplete == Incomplete::Drop {
                dropped = Some(Cause::IncompletePolicy);
                self.account.dropped.add(Cause::IncompletePolicy, 1);
                self.account.packets.dropped.add(Cause::IncompletePolicy, received);
            } else {
                self.account.incomplete += 1;
                self.account.packets.in_incomplete_events += received;
            }
        }
        let set = set.clone();
        self.finished.push(Finished { number, set, dropped });
    }
}

impl Set {
    /// Whether everything is there.
    pub(super) const fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// Whether it was finished without everything.
    pub(super) const fn is_incomplete(&self) -> bool {
        matches!(self.state, State::Incomplete)
    }
}
