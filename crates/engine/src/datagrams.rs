//! Sources whose frames come in datagrams: over UDP, straight over IP, or from a capture in the place of both.
//!
//! ```text
//!  receiver --datagram from an address--> whose? --> the source's DatagramFramer --> fragments -> flow::Readout
//!                                           |
//!                                           +-> of no source: counted
//! ```
//! Senders of datagrams cannot be held back. If the machine has no room, datagrams stay in the kernel as long as it has
//! some; the datagrams that it drops are counted. Datagrams from before the run are received and counted as stale, so
//! that no old data waits there.

use super::black_box::BlackBox;
use super::splitter::SourceSplitter;
use ropewalk_flow::messages::{Received, ReportEntry};
use ropewalk_flow::readout::{
    Boards, DatagramFramer, DatagramLimits, FrameCounts, FramerLimits, Readout, SourceConfig,
};
use ropewalk_io::packet::{Packet, Receiver};
use ropewalk_terms::{ByCause, Counter, Instant, SourceId};
use ropewalk_wire::description::Description;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// How to tell the sources of one receiver apart.
#[derive(Clone, Debug)]
pub enum Demux {
    /// There is one.
    Single,
    /// By the address that a datagram comes from.
    Address(Boards),
    /// By what its frame says ([`Description::board_of`]).
    Field(Boards),
}

/// The configuration of a receiver for a readout unit.
pub struct DatagramInputConfig {
    /// What receives.
    pub receiver: Box<dyn Receiver + Send>,
    /// Who sends there, in the order of `demux`: each source, and what its datagrams are waited for.
    pub sources: Vec<(SourceId, Description, DatagramLimits)>,
    /// How to tell them apart.
    pub demux: Demux,
    /// They send whether a run is taken or not; a capture waits.
    pub is_live: bool,
}

/// One source of a receiver.
struct Route {
    /// Its index in the machine.
    source: usize,
    framer: DatagramFramer<Description>,
    /// What divides its frames, where they hold several events.
    splitter: Option<Box<SourceSplitter>>,
    has_come: bool,
    /// When the last one of a recording came, by that recording's clock; `None` for live datagrams.
    came: Option<Instant>,
    /// What came last, where that is kept.
    black_box: Option<Box<BlackBox>>,
}

/// One receiver with its sources.
struct Input {
    receiver: Box<dyn Receiver + Send>,
    demux: Demux,
    routes: Vec<Route>,
    is_live: bool,
    packets: Vec<Packet>,
    /// Datagrams for which there was no room yet, in their order.
    waiting: VecDeque<Packet>,
    /// It is not read, because this source of it, a route, has no room.
    blocked_by: Option<usize>,
    /// Everything that would ever come was taken.
    has_ended: bool,
    nobodys: u64,
    /// What was lost before the run began, which is no loss of the run; `None` before it begins.
    lost_before: Option<ByCause>,
    /// What was lost since, as it was asked for last.
    lost: ByCause,
    /// How often its multicast group was lost with the network card, as it was asked for last.
    groups_lost: u64,
}

/// All receivers of a readout unit.
#[derive(Default)]
pub(super) struct Datagrams {
    inputs: Vec<Input>,
    received: Vec<Received>,
}

/// Datagrams of one receiver in one turn, about.
const AT_ONCE: usize = 512;
/// Frames of one source that are handed on at a time: fewer than there is room for, since one may bring others that waited for it.
const MOST_FRAMES: usize = 96;
/// How often a receiver is asked at the end for datagrams that were not read.
const MOST_UNREAD: usize = 1 << 14;
/// Datagrams for which there is room from the start.
const ROOM: usize = 2048;
/// So much of a receiver's memory may be held before what is oldest moves, in percent.
const EVACUATE_ABOVE: usize = 50;

impl Datagrams {
    /// Another receiver; sources that the readout unit does not have are left out.
    pub(super) fn add(&mut self, config: DatagramInputConfig, sources: &[SourceConfig]) {
        let DatagramInputConfig { receiver, sources: own, demux, is_live } = config;
        let routes = own.into_iter().filter_map(|(id, description, waits)| {
            let source = sources.iter().position(|source| source.id == id)?;
            let SourceConfig { max_fragment, check_crc, gather, .. } = sources[source];
            let limits = FramerLimits { max_fragment, check_crc, gather };
            let splitter = SourceSplitter::of(id, &description);
            let framer = DatagramFramer::new(id, description, limits, waits).counting_from(sources[source].first);
            Some(Route { source, framer, splitter, has_come: false, came: None, black_box: None })
        });
        self.inputs.push(Input {
            receiver,
            demux,
            routes: routes.collect(),
            is_live,
            packets: Vec::with_capacity(ROOM),
            waiting: VecDeque::with_capacity(ROOM),
            blocked_by: None,
            has_ended: false,
            nobodys: 0,
            lost_before: None,
            lost: ByCause::default(),
            groups_lost: 0,
        });
        self.received.reserve(ROOM);
    }

    /// From now on the frames of a source, by its index, are divided so. Gives the division back where the source sends no
    /// datagrams.
    pub(super) fn set_splitter(&mut self, source: usize, splitter: Box<SourceSplitter>) -> Option<Box<SourceSplitter>> {
        let mut routes = self.inputs.iter_mut().flat_map(|input| &mut input.routes);
        match routes.find(|route| route.source == source) {
            Some(route) => {
                route.splitter = Some(splitter);
                None
            }
            None => Some(splitter),
        }
    }

    /// What is counted of sources whose frames are divided, cumulative.
    pub(super) fn divided(&self) -> impl Iterator<Item = (SourceId, Counter, u64)> {
        self.splitters().flat_map(|splitter| splitter.counters())
    }

    fn splitters(&self) -> impl Iterator<Item = &SourceSplitter> {
        self.inputs.iter().flat_map(|input| &input.routes).filter_map(|route| route.splitter.as_deref())
    }

    /// From now on what comes last of a source, by its index, is kept. Gives the black box back where the source sends no
    /// datagrams.
    pub(super) fn add_black_box(&mut self, source: usize, black_box: BlackBox) -> Option<BlackBox> {
        let mut routes = self.inputs.iter_mut().flat_map(|input| &mut input.routes);
        match routes.find(|route| route.source == source) {
            Some(route) => {
                route.black_box = Some(Box::new(black_box));
                None
            }
            None => Some(black_box),
        }
    }

    /// Takes what has come. Returns how much happened.
    pub(super) fn turn(&mut self, now: Instant, readout: &mut Readout) -> usize {
        self.inputs.iter_mut().map(|input| input.turn(now, readout, &mut self.received)).sum()
    }

    /// The run is over: what is divided or gathered and waits will not be taken any more, nor what waits at a port that was not
    /// read.
    pub(super) fn abandon_waiting(&mut self, now: Instant, readout: &mut Readout) {
        self.inputs.iter_mut().for_each(|input| input.abandon_unread(now, readout));
        for route in self.inputs.iter_mut().flat_map(|input| &mut input.routes) {
            let fragments = route.splitter.as_mut().map_or(0, |splitter| splitter.abandon());
            readout.abandon(route.source, fragments + route.framer.abandon());
        }
    }

    /// Whether so much of a receiver's memory is held that fragments should move.
    pub(super) fn want_evacuation(&mut self) -> bool {
        self.inputs.iter_mut().any(|input| input.receiver.memory_in_use().is_above(EVACUATE_ABOVE))
    }

    /// Asks the receivers what they lost: what they lost last may be the last that comes.
    pub(super) fn ask_what_was_lost(&mut self) {
        self.inputs.iter_mut().for_each(Input::ask_what_was_lost);
    }

    /// What is counted here, cumulative; of losses what was asked for last.
    pub(super) fn report(&self) -> impl Iterator<Item = ReportEntry> + '_ {
        // At a port of several sources it is unknown whose datagram was lost.
        let mut shared = ByCause::default();
        let of_several = self.inputs.iter().filter(|input| input.only_source().is_none());
        of_several.for_each(|input| shared.merge(&input.lost));
        let lost = self.inputs.iter().map(|input| input.lost.total()).sum();
        let nobodys = self.inputs.iter().map(|input| input.nobodys).sum();
        let counters = [(Counter::DatagramsLost, lost), (Counter::DatagramsNobodys, nobodys)];
        let counters = counters.map(|(counter, value)| ReportEntry { source: None, what: counter as u16, value });
        let own = self.inputs.iter().filter_map(|input| Some((Some(input.only_source()?), input.lost)));
        let lost = own.chain([(None, shared)]).flat_map(|(source, lost)| {
            let entry = move |(cause, value)| ReportEntry { source, what: ReportEntry::lost(cause), value };
            ropewalk_terms::CAUSES
                .iter()
                .map(move |&cause| (cause, lost.get(cause)))
                .filter(|&(_, lost)| lost > 0)
                .map(entry)
        });
        let groups = self.inputs.iter().filter(|input| input.groups_lost > 0).map(|input| {
            let (source, value) = (input.only_source(), input.groups_lost);
            ReportEntry { source, what: Counter::GroupsLost as u16, value }
        });
        counters.into_iter().chain(lost).chain(groups)
    }

    /// When the next turn is due even if nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let of = |input: &Input| {
            let live = input.routes.iter().filter(|route| route.came.is_none());
            let framers = live.filter_map(|route| route.framer.next_deadline());
            framers.chain(input.receiver.next_deadline().filter(|_| input.is_heard())).min()
        };
        let splitters = self.splitters().filter_map(|splitter| splitter.next_deadline());
        self.inputs.iter().filter_map(of).chain(splitters).min()
    }

    /// Before the thread sleeps: false if there is something to do right now.
    pub(super) fn prepare_wait(&mut self) -> bool {
        // All are asked, so that all are armed. One that is blocked waits for the machine.
        let mut may_sleep = true;
        for input in self.inputs.iter_mut().filter(|input| input.is_heard()) {
            may_sleep &= input.receiver.prepare_wait();
        }
        may_sleep
    }

    /// Appends what becomes readable when something comes.
    pub(super) fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        let heard = self.inputs.iter().filter(|input| input.is_heard());
        into.extend(heard.filter_map(|input| input.receiver.wait_descriptor()));
        self.splitters().for_each(|splitter| splitter.descriptors(into));
    }
}

impl Input {
    /// Whether something may come that can be taken.
    const fn is_heard(&self) -> bool {
        self.blocked_by.is_none() && !self.has_ended
    }

    /// Counts datagrams that came while their source had no room, and those behind them, and drops them.
    fn abandon_unread(&mut self, now: Instant, readout: &mut Readout) {
        if self.blocked_by.is_none() {
            return;
        }
        // Senders go on: what comes meanwhile is not of the run.
        for _ in 0..MOST_UNREAD {
            for packet in self.waiting.drain(..) {
                match self.demux.route_of(&packet, &self.routes) {
                    Some(index) => readout.abandon(self.routes[index].source, 1),
                    None => self.nobodys += 1,
                }
            }
            if !self.is_live || self.receiver.receive(now, &mut self.packets) == 0 {
                break;
            }
            self.waiting.extend(self.packets.drain(..));
        }
    }

    /// Asks what was lost since the run began.
    fn ask_what_was_lost(&mut self) {
        let Some(before) = self.lost_before else { return };
        let counters = self.receiver.counters();
        self.groups_lost = counters.groups_lost;
        for (cause, count) in counters.lost.iter() {
            self.lost.set(cause, count - before.get(cause));
        }
    }

    /// Whose all datagrams are, where that is known of each.
    fn only_source(&self) -> Option<SourceId> {
        match &self.routes[..] {
            [route] if matches!(self.demux, Demux::Single) => Some(route.framer.source()),
            _ => None,
        }
    }

    fn turn(&mut self, now: Instant, readout: &mut Readout, received: &mut Vec<Received>) -> usize {
        if self.lost_before.is_none() && readout.has_started() {
            self.lost_before = Some(self.receiver.counters().lost);
        }
        let divided: usize = self.routes.iter_mut().map(|route| route.look_after(now)).sum();
        let (mut work, mut blocked_by) = self.take_waiting(now, readout, received);
        work += divided;
        while self.waiting.is_empty() && blocked_by.is_none() && work < AT_ONCE {
            let count = self.receiver.receive(now, &mut self.packets);
            if count == 0 {
                break;
            }
            work += count;
            self.waiting.extend(self.packets.drain(..));
            blocked_by = self.take_waiting(now, readout, received).1;
        }
        self.set_blocked(now, blocked_by, readout);
        // What waits may be what is waited for.
        let all_was_taken = self.waiting.is_empty() && blocked_by.is_none() && work < AT_ONCE;
        for route in &mut self.routes {
            if all_was_taken {
                route.framer.advance(route.time(now), received);
                route.hand_on(now, readout, received);
            }
            route.black_box.iter_mut().for_each(|black_box| black_box.hand_over(now));
        }
        if self.waiting.is_empty() && blocked_by.is_none() && !self.has_ended && self.receiver.is_over() {
            self.has_ended = true;
            self.end(now, readout, received);
        }
        work
    }

    /// Nothing comes any more.
    fn end(&mut self, now: Instant, readout: &mut Readout, received: &mut Vec<Received>) {
        for route in &mut self.routes {
            route.connect(now, readout);
            route.framer.end(route.time(now), received);
            route.hand_on(now, readout, received);
            readout.source_disconnected(now, route.source, false);
        }
    }

    /// Frames what has come, as long as the machine has room for whose it is. Returns how many datagrams were taken, and for
    /// whose next one there was no room.
    fn take_waiting(
        &mut self,
        now: Instant,
        readout: &mut Readout,
        received: &mut Vec<Received>,
    ) -> (usize, Option<usize>) {
        let before = self.waiting.len();
        let mut blocked_by = (0..self.routes.len()).find(|&index| !self.give_divided(index, now, readout, received));
        if blocked_by.is_some() {
            return (0, blocked_by);
        }
        // Whose fragments are in `received`, and for how many more there is room.
        let (mut current, mut room) = (None, 0);
        while let Some(packet) = self.waiting.front() {
            let Some(index) = self.demux.route_of(packet, &self.routes) else {
                self.nobodys += 1;
                self.waiting.pop_front();
                continue;
            };
            if current != Some(index) || room == 0 {
                if let Some(before) = current {
                    self.routes[before].deliver(now, readout, received);
                }
                (current, room) = (Some(index), self.room(index, readout));
                if room == 0 {
                    blocked_by = current;
                    break;
                }
            }
            let packet = self.waiting.pop_front().expect("it was looked at");
            self.routes[index].take(now, packet, readout, received);
            room -= 1;
            if !self.routes[index].gathers(now, received) && !self.give_divided(index, now, readout, received) {
                blocked_by = current;
                break;
            }
        }
        if let Some(current) = current {
            self.routes[current].deliver(now, readout, received);
        }
        blocked_by = blocked_by
            .or_else(|| (0..self.routes.len()).find(|&index| !self.give_divided(index, now, readout, received)));
        (before - self.waiting.len(), blocked_by)
    }

    /// Gives the machine the fragments into which a source's frames fell apart, as long as it has room for them; false where
    /// some are left.
    fn give_divided(
        &mut self,
        route: usize,
        now: Instant,
        readout: &mut Readout,
        received: &mut Vec<Received>,
    ) -> bool {
        if self.routes[route].splitter.is_none() {
            return true;
        }
        self.routes[route].hand_on(now, readout, received);
        while !self.routes[route].is_divided() {
            let room = self.room(route, readout);
            let route = &mut self.routes[route];
            route.splitter.iter_mut().for_each(|splitter| splitter.take(now, received, room));
            if received.is_empty() && !route.is_divided() {
                return false;
            }
            route.deliver(now, readout, received);
        }
        true
    }

    /// For how many frames of a source there is room. Frames that come before the run are read, and are stale.
    fn room(&self, route: usize, readout: &Readout) -> usize {
        if !readout.has_started() && self.is_live {
            AT_ONCE
        } else {
            readout.room(self.routes[route].source).min(MOST_FRAMES)
        }
    }

    /// A source without room is not read, and not missed. The timeouts of the sources behind it keep running: it is as
    /// far ahead as it may be because another source is missed. If that is one of these, only its timeout can end the
    /// wait.
    fn set_blocked(&mut self, now: Instant, blocked_by: Option<usize>, readout: &mut Readout) {
        let before = std::mem::replace(&mut self.blocked_by, blocked_by);
        if before != blocked_by {
            for (index, is_read) in
                before.map(|index| (index, true)).into_iter().chain(blocked_by.map(|index| (index, false)))
            {
                readout.set_being_read(now, self.routes[index].source, is_read);
            }
        }
    }
}

impl Demux {
    /// The source of a datagram; `None` if it belongs to no source.
    fn route_of(&mut self, packet: &Packet, routes: &[Route]) -> Option<usize> {
        let index = match self {
            Self::Single => 0,
            Self::Address(boards) => boards.index_of(Boards::of_address(packet.from.ip()))?,
            Self::Field(boards) => {
                let framing = routes.first()?.framer.framing();
                let board = framing.board_of(packet.payload.contiguous()?)?;
                boards.index_of(board.into())?
            }
        };
        (index < routes.len()).then_some(index)
    }
}

impl Route {
    /// Reports the source as connected, at its first datagram.
    fn connect(&mut self, now: Instant, readout: &mut Readout) {
        if !std::mem::replace(&mut self.has_come, true) {
            readout.source_connected(now, self.source);
            readout.set_being_read(now, self.source, true);
        }
    }

    /// When what came last came, as far as its framer is concerned.
    fn time(&self, now: Instant) -> Instant {
        self.came.unwrap_or(now)
    }

    /// Frames a datagram.
    fn take(&mut self, now: Instant, packet: Packet, readout: &mut Readout, received: &mut Vec<Received>) {
        self.connect(now, readout);
        self.came = packet.came.map(|came| self.came.map_or(came, |last| last.max(came)));
        let time = self.time(now);
        if self.came.is_some() {
            // A recording lacks nothing that came before.
            self.framer.end_waits(time, received);
        }
        if packet.payload.is_empty() {
            self.framer.push_empty(received);
        }
        // Sockets hand on what lies in one piece, and what is cut they do not hand on at all.
        for slice in packet.payload.into_slices() {
            if let Some(black_box) = &mut self.black_box {
                black_box.record(now, packet.from, &slice);
            }
            self.framer.push(time, slice, false, received);
        }
    }

    /// Hands on what was framed: to the machine, or to what divides it.
    fn hand_on(&mut self, now: Instant, readout: &mut Readout, received: &mut Vec<Received>) {
        match &mut self.splitter {
            Some(splitter) => splitter.put(now, received),
            None => self.deliver(now, readout, received),
        }
    }

    /// Looks after the process that divides its frames, if there is one. Returns how much happened.
    fn look_after(&mut self, now: Instant) -> usize {
        self.splitter.as_mut().map_or(0, |splitter| splitter.turn(now))
    }

    /// Puts a frame where frames are gathered before they are divided, and says whether more are wanted.
    fn gathers(&mut self, now: Instant, received: &mut Vec<Received>) -> bool {
        let Some(splitter) = &mut self.splitter else { return false };
        splitter.put(now, received);
        splitter.gathers()
    }

    /// Whether none of its frames waits to be divided, or for room for what it fell apart into.
    fn is_divided(&self) -> bool {
        self.splitter.as_ref().is_none_or(|splitter| splitter.is_empty())
    }

    /// Gives the machine what was framed.
    fn deliver(&mut self, now: Instant, readout: &mut Readout, received: &mut Vec<Received>) {
        // Counts beside the frames are reported even without a frame.
        let beside = if received.is_empty() { self.framer.take_counts() } else { FrameCounts::NONE };
        if beside != FrameCounts::NONE {
            self.note(now, beside, readout, received);
        }
        if !received.is_empty() {
            let divided = self.splitter.as_mut().map_or(0, |splitter| splitter.take_divided());
            let counts = FrameCounts { divided, ..self.framer.take_counts() };
            self.note(now, counts, readout, received);
            readout.receive(now, self.source, received);
        }
    }

    /// Tells what was seen beside the frames.
    fn note(&mut self, now: Instant, counts: FrameCounts, readout: &mut Readout, received: &[Received]) {
        if let Some(black_box) = &mut self.black_box {
            black_box.look(now, received, &counts);
        }
        // Datagrams from before the run are not missed.
        let unseen = FrameCounts { missing: 0, found: 0, out_of_order: 0, forgiven: 0, ..counts };
        readout.note_frames(now, self.source, if readout.has_started() { counts } else { unseen });
    }
}
