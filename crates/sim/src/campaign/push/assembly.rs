//! Which sets of one flow a gateway must have, derived only from the packets that it took, and which packets it drops of a
//! source that has restarted its numbering.

use super::scenario::FlowSetting;
use crate::campaign::runner::{Broken, ensure};
use ropewalk_flow::gateway::{FlowAccount, Incomplete, Masking, Output, Recount, SourceAccount};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::mep::{MEP_HEADER_BYTES, MepHeader, MepView};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Sets that gateways tell apart.
const TOLD_APART: u64 = 4096;

/// The longest jump of event numbers that one packet alone makes.
const LONGEST_JUMP: i64 = 1 << 15;

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
    /// It names a set that is too far away, and is held.
    Far,
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
    /// Until when it waits for the others, by the same clock.
    pub(super) deadline: Instant,
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
pub(super) struct Assembly {
    setting: FlowSetting,
    pub(super) sets: BTreeMap<u64, Set>,
    /// Those in assembly, in the order in which they were begun.
    open: Vec<u64>,
    /// One past the newest set.
    end: u64,
    /// Packets of sets that are too far away, with the set and the source.
    far: VecDeque<(u64, u16, Vec<u8>)>,
    /// Enough of them agreed.
    is_far: bool,
    /// The set, source and cause of the last packet that was wrong and of a set that had not begun.
    wrong: Option<(u64, u16, Cause)>,
    /// Packets that wait for a set, with their sources.
    waiting: VecDeque<(Option<u16>, Vec<u8>)>,
    /// Everything that had come by then was taken; nothing was before the first look that found the end.
    heard: Instant,
    /// No event behind this one belongs to the run.
    pub(super) last_event: Option<u64>,
    /// By source: the sets from which on it was masked and took part again, in turns.
    turns: Vec<Vec<u64>>,
    /// By source: one past the newest set of which something was refused while it was masked.
    refused: Vec<u64>,
    /// How many sets were begun in this turn, as the gateway says: how many are free depends on storage.
    room: u64,
    account: FlowAccount,
    pub(super) by_source: Vec<SourceAccount>,
    sent: Vec<Sent>,
    /// Those that were finished and not asked for.
    pub(super) finished: Vec<Finished>,
}

impl Assembly {
    pub(super) fn new(setting: &FlowSetting) -> Self {
        Self {
            setting: setting.clone(),
            sets: BTreeMap::new(),
            open: Vec::new(),
            end: 0,
            far: VecDeque::new(),
            is_far: false,
            wrong: None,
            waiting: VecDeque::new(),
            heard: Instant::ZERO,
            last_event: None,
            turns: vec![Vec::new(); setting.wanted().into()],
            refused: vec![0; setting.wanted().into()],
            room: 0,
            account: FlowAccount::default(),
            by_source: vec![SourceAccount::default(); setting.wanted().into()],
            sent: vec![Sent::default(); setting.wanted().into()],
            finished: Vec::new(),
        }
    }

    /// What the gateway's own account must be.
    pub(super) fn account(&self) -> FlowAccount {
        let mut account = self.account;
        account.open = self.open.len() as u64;
        let held = self.far.len() as u64;
        account.packets.in_flight =
            held + self.open.iter().map(|number| self.sets[number].came.len() as u64).sum::<u64>();
        account
    }

    /// A source is out from the next set on that is newer than all that came, or in again: then newer than all of which something of it was
    /// let go, too. Turns never go back.
    pub(super) fn mask(&mut self, source: u16, is_masked: bool) {
        let latest = self.turns.iter().flatten().copied().max().unwrap_or(0);
        let turns = &mut self.turns[usize::from(source)];
        if (turns.len() % 2 == 1) != is_masked {
            turns.push(self.end.max(latest).max(self.refused[usize::from(source)]));
        }
    }

    /// Sets that are begun from now on wait so long, and no other one waits longer.
    pub(super) fn set_timeout(&mut self, timeout: Duration, now: Instant) {
        self.setting.gateway.timeout = timeout;
        for number in &self.open {
            let set = self.sets.get_mut(number).expect("open sets are there");
            set.deadline = set.deadline.min(now.after(timeout));
        }
    }

    fn takes_part(&self, number: u64, source: u16) -> bool {
        let turns = self.turns[usize::from(source)].iter();
        turns.filter(|&&turn| turn <= number).count().is_multiple_of(2)
    }

    /// Who belongs to the events of a set.
    fn due(&self, number: u64) -> BTreeSet<u16> {
        (0..self.setting.wanted()).filter(|&source| self.takes_part(number, source)).collect()
    }

    /// Whether a gateway says of each source from which event on it was masked, and took part again.
    pub(super) fn check_turns(&self, flow: u8, masking: Option<&Masking>) -> Result<(), Broken> {
        let said: BTreeMap<u16, Vec<_>> =
            masking.into_iter().flat_map(Masking::turns).map(|(source, turns)| (source, turns.collect())).collect();
        let mentioned = (0..).zip(&self.turns).filter(|(_, turns)| !turns.is_empty());
        let due: BTreeMap<u16, Vec<_>> = mentioned
            .map(|(source, turns)| (source, turns.iter().map(|&set| self.setting.key_of(set)).collect()))
            .collect();
        ensure!(Keys, said == due;
            "flow {flow}: sources are masked and take part again at {said:?}, and should at {due:?}")
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

    /// Nothing is in flight any more, as the gateway says: the run may be over, and with it the wait for a second far packet.
    pub(super) fn rest(&mut self) {
        if self.open.is_empty() && self.waiting.is_empty() {
            self.drop_far();
        }
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
        if let Err(Misplaced::For(cause)) = result {
            let number = bytes.first_chunk().map_or(0, |number| u32::from_le_bytes(*number));
            self.refuse(source, number, cause);
        }
        true
    }

    fn refuse(&mut self, source: Option<u16>, number: u32, cause: Cause) {
        let run = self.newest() as u32;
        let known = source.map(usize::from).filter(|&source| source < self.sent.len());
        if let Some(source) = known {
            let account = &mut self.by_source[source];
            account.out_of_sync += u64::from(cause == Cause::OutOfSync);
            if matches!(cause, Cause::Duplicate | Cause::Late | Cause::Stale)
                && let Some(restart) = self.sent[source].refuse(number, run)
            {
                (account.restarts, account.last_restart) = (account.restarts + 1, restart);
            }
        }
        let packets = &mut self.account.packets;
        match cause {
            Cause::Masked => {
                packets.dropped.add(Cause::Masked, 1);
                // Of who is masked in the whole run there is no account.
                let known = source.and_then(|source| self.by_source.get_mut(usize::from(source)));
                known.into_iter().for_each(|account| account.masked += 1);
            }
            Cause::Duplicate => packets.duplicate += 1,
            Cause::Late => packets.late += 1,
            Cause::Stale => packets.stale += 1,
            Cause::AfterStop => packets.after_stop += 1,
            cause => packets.dropped.add(cause, 1),
        }
    }

    fn accept(&mut self, source: Option<u16>, bytes: &[u8], now: Instant) -> Result<(), Misplaced> {
        let source = source.filter(|&source| source < self.setting.sources.sources).ok_or(Cause::UnknownSource)?;
        if source >= self.setting.wanted() {
            return Err(Cause::Masked.into());
        }
        let Some(header) = bytes.first_chunk::<MEP_HEADER_BYTES>() else {
            return Err(self.corrupt(source, Cause::ShortPacket));
        };
        let header = MepHeader::from_bytes(header);
        if header.partition != self.setting.sources.partition {
            return Err(self.corrupt(source, Cause::WrongPartition));
        }
        if let Some(cause) = self.what_is_wrong(&header, bytes) {
            self.note_absent(header.first_event, source, cause);
            return Err(self.corrupt(source, cause));
        }
        let run = self.newest() as u32;
        let is_masked = self.number_of(header.first_event).is_ok_and(|(number, _)| !self.takes_part(number, source));
        if self.sent[usize::from(source)].drops(header.first_event, run) && !is_masked {
            return Err(Cause::OutOfSync.into());
        }
        if self.is_far {
            self.put_far(now)?;
        }
        let (number, is_near) = self.number_of(header.first_event)?;
        if !is_near && self.takes_part(number, source) {
            self.confirm(number, source, bytes)?;
            self.is_far = true;
            self.put_far(now)?;
        }
        self.put(number, source, bytes, now)
    }

    fn corrupt(&mut self, source: u16, cause: Cause) -> Misplaced {
        self.by_source[usize::from(source)].corrupt += 1;
        cause.into()
    }

    fn what_is_wrong(&self, header: &MepHeader, bytes: &[u8]) -> Option<Cause> {
        let is_packed = header.packing == self.setting.sources.packing;
        let error = || MepView::parse(bytes).err().map(|error| error.cause());
        if is_packed { error() } else { Some(Cause::WrongPacking) }
    }

    fn note_absent(&mut self, first_event: u32, source: u16, cause: Cause) {
        let Ok((number, _)) = self.number_of(first_event) else { return };
        if !self.takes_part(number, source) {
            return;
        }
        match self.sets.get_mut(&number) {
            Some(set) if set.state == State::Open && !set.came.contains(&source) => {
                set.absent.insert(source, cause);
            }
            Some(_) => {}
            None => self.wrong = Some((number, source, cause)),
        }
    }

    /// Three packets have to agree that the run is far from where it was, of two sources, or of one that is alone or the first.
    fn confirm(&mut self, number: u64, source: u16, bytes: &[u8]) -> Result<(), Misplaced> {
        let most = LONGEST_JUMP as u64 / u64::from(self.setting.sources.packing);
        if self.far.iter().any(|&(far, other, _)| (far, other) == (number, source)) {
            return Err(Cause::Duplicate.into());
        }
        if self.far.iter().any(|&(far, ..)| far.abs_diff(number) > most) {
            self.drop_far();
        }
        let taking_part =
            (0..self.setting.wanted()).filter(|&one| self.turns[usize::from(one)].len().is_multiple_of(2));
        let is_alone = taking_part.count() == 1 || self.end == 0;
        if self.far.len() == 2 {
            if is_alone || self.far.iter().any(|&(_, other, _)| other != source) {
                return Ok(());
            }
            self.far.pop_front();
            self.account.packets.dropped.add(Cause::ImplausibleJump, 1);
        }
        self.far.push_back((number, source, bytes.to_vec()));
        Err(Misplaced::Far)
    }

    fn put_far(&mut self, now: Instant) -> Result<(), Misplaced> {
        while let Some((number, source, packet)) = self.far.pop_front() {
            match self.put(number, source, &packet, now) {
                Err(Misplaced::For(cause)) => self.refuse(Some(source), self.first_of(number) as u32, cause),
                Err(misplaced) => {
                    self.far.push_front((number, source, packet));
                    return Err(misplaced);
                }
                Ok(()) => {}
            }
        }
        self.is_far = false;
        Ok(())
    }

    fn drop_far(&mut self) {
        self.account.packets.dropped.add(Cause::ImplausibleJump, self.far.len() as u64);
        self.far.clear();
        self.is_far = false;
    }

    fn put(&mut self, number: u64, source: u16, bytes: &[u8], now: Instant) -> Result<(), Misplaced> {
        if !self.takes_part(number, source) {
            let refused = &mut self.refused[usize::from(source)];
            if number < self.end + TOLD_APART {
                *refused = (number + 1).max(*refused);
            }
            return Err(Cause::Masked.into());
        }
        if !self.sets.contains_key(&number) {
            self.begin(number, now)?;
        }
        let set = self.sets.get_mut(&number).expect("it was there or was begun");
        match set.state {
            State::Open if !set.came.contains(&source) => {}
            State::Incomplete if !set.came.contains(&source) => return Err(Cause::Late.into()),
            State::Open | State::Complete | State::Incomplete => return Err(Cause::Duplicate.into()),
        }
        set.absent.remove(&source);
        set.came.insert(source);
        let is_whole = set.came.len() == self.due(number).len();
        let first_event = self.first_of(number) as u32;
        self.sent[usize::from(source)].place(first_event);
        let account = &mut self.by_source[usize::from(source)];
        (account.packets, account.bytes) = (account.packets + 1, account.bytes + bytes.len() as u64);
        if is_whole {
            self.finish(number, Cause::TimedOut);
        }
        Ok(())
    }

    /// The first event of a set.
    fn first_of(&self, number: u64) -> u64 {
        self.setting.sources.first_event + number * u64::from(self.setting.sources.packing)
    }

    /// The first event of the newest set.
    fn newest(&self) -> u64 {
        self.first_of(self.end.saturating_sub(1))
    }

    /// The set that begins with an event of which 32 bits are known, seen from the newest one, and whether it is so near that it is believed.
    fn number_of(&self, first_event: u32) -> Result<(u64, bool), Cause> {
        let (first, packing) = (self.setting.sources.first_event, u64::from(self.setting.sources.packing));
        let newest = self.newest();
        let ahead = i64::from(first_event.wrapping_sub(newest as u32) as i32);
        let since = newest.checked_add_signed(ahead).and_then(|event| event.checked_sub(first)).ok_or(Cause::Stale)?;
        if self.last_event.is_some_and(|last| first + since > last) {
            Err(Cause::AfterStop)
        } else if !since.is_multiple_of(packing) {
            Err(Cause::Misaligned)
        } else {
            Ok((since / packing, ahead <= LONGEST_JUMP))
        }
    }

    fn begin(&mut self, number: u64, now: Instant) -> Result<(), Misplaced> {
        if self.room == 0 {
            // Sets that are all in assembly become free only when one of them goes.
            if self.open.len() == usize::from(self.setting.gateway.sets) {
                self.finish(self.open[0], Cause::CrowdedOut);
            }
            return Err(Misplaced::NoSet);
        }
        if !self.is_far {
            self.drop_far();
        }
        self.room -= 1;
        self.end = self.end.max(number + 1);
        self.account.opened += 1;
        if self.open.len() == usize::from(self.setting.gateway.assembling) {
            self.finish(self.open[0], Cause::CrowdedOut);
        }
        let deadline = now.after(self.setting.gateway.timeout);
        let wrong = self.wrong.take_if(|wrong| wrong.0 == number).filter(|wrong| self.takes_part(number, wrong.1));
        let absent = wrong.into_iter().map(|(_, source, cause)| (source, cause)).collect();
        let set = Set { state: State::Open, opened: now, deadline, came: BTreeSet::new(), absent };
        self.sets.insert(number, set);
        self.open.push(number);
        Ok(())
    }

    /// Time passes for sets in assembly: sets that waited too long are finished. A set does not wait in vain for what has come
    /// and was not looked at.
    pub(super) fn pass(&mut self, now: Instant) {
        let heard = self.heard.min(now);
        while let Some(&oldest) = self.open.first() {
            let deadline = self.sets[&oldest].deadline;
            // By then everything else is decided, and waits for this set alone if decisions leave in order.
            let is_ordered = self.setting.gateway.output == Output::Stream;
            let holds_up = is_ordered && deadline.after(self.setting.gateway.decision_timeout) <= now;
            if deadline > heard && !holds_up {
                return;
            }
            self.finish(oldest, Cause::TimedOut);
        }
    }

    fn finish(&mut self, number: u64, cause: Cause) {
        self.open.retain(|&open| open != number);
        let due = self.due(number);
        let set = self.sets.get_mut(&number).expect("only sets that are there are finished");
        let received = set.came.len() as u64;
        let mut dropped = None;
        let out = (0..).zip(&mut self.by_source).filter(|(source, _)| !due.contains(source));
        if set.came.len() == due.len() {
            out.for_each(|(_, account)| account.left_out_of_complete += 1);
            set.state = State::Complete;
            self.account.complete += 1;
            self.account.packets.in_complete_events += received;
        } else {
            out.for_each(|(_, account)| account.left_out_of_incomplete += 1);
            set.state = State::Incomplete;
            for source in due.into_iter().filter(|source| !set.came.contains(source)) {
                self.by_source[usize::from(source)].missing += 1;
                self.account.missing.add(*set.absent.entry(source).or_insert(cause), 1);
            }
            if self.setting.gateway.incomplete == Incomplete::Drop {
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

/// What one source has sent so far, by the first events of its packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    newest: Option<u32>,
    /// Refused packets since the last one that was placed, each behind the newest one and ahead of the one before.
    refused: Vec<u32>,
    /// How far the run was ahead of the newest one when the first of them came.
    lag: i64,
    has_restarted: bool,
}

/// How many events lie from one number to another.
fn from_to(from: u32, to: u32) -> i64 {
    i64::from(to.wrapping_sub(from).cast_signed())
}

impl Sent {
    /// A packet was placed.
    pub(super) fn place(&mut self, number: u32) {
        self.refused.clear();
        match self.newest {
            Some(newest) if from_to(newest, number) <= 0 => {}
            _ => self.newest = Some(number),
        }
    }

    /// A packet came twice or too late. The eighth in a row behind the newest one shows a restart.
    pub(super) fn refuse(&mut self, number: u32, run: u32) -> Option<Recount> {
        let newest = self.newest?;
        if from_to(newest, number) > 0 {
            self.refused.clear();
            return None;
        }
        if self.refused.last().is_none_or(|&last| from_to(last, number) <= 0) {
            self.refused.clear();
            self.lag = from_to(newest, run);
        }
        self.refused.push(number);
        self.has_restarted = self.refused.len() == 8;
        self.has_restarted.then(|| Recount { from: newest, to: self.refused[0] })
    }

    /// Whether a packet is dropped for a restart. It is taken again where it lags behind the run by less than the old lag and half of
    /// what the counter was set back.
    fn drops(&mut self, number: u32, run: u32) -> bool {
        let (Some(newest), Some(&first), true) = (self.newest, self.refused.first(), self.has_restarted) else {
            return false;
        };
        let is_ahead = from_to(newest, number) > 0;
        self.has_restarted = !is_ahead || from_to(number, run) > self.lag + from_to(first, newest) / 2;
        self.has_restarted
    }
}
