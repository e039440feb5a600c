//! Sources whose frames arrive in datagrams: over UDP, directly over IP, or from a capture instead of either.
//!
//! ```text
//!  receiver --datagram from an address--> whose? --> the source's DatagramFramer --> fragments -> flow::Readout
//!                                           |
//!                                           +-> of no source: counted
//! ```
//! Senders of datagrams cannot be held back. If the machine has no room, datagrams stay in the kernel as long as it has
//! room; the datagrams that it drops are counted. Datagrams from before the run are received and counted as stale, so
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

/// How to assign datagrams to the sources of one receiver.
#[derive(Clone, Debug)]
pub enum Demux {
    /// There is only one source.
    Single,
    /// By the address of the sender.
    Address(Boards),
    /// By a field of the frame ([`Description::board_of`]).
    Field(Boards),
}

/// The configuration of a receiver for a readout unit.
pub struct DatagramInputConfig {
    /// The receiver.
    pub receiver: Box<dyn Receiver + Send>,
    /// The sources in the order of `demux`, each with its description and time limits.
    pub sources: Vec<(SourceId, Description, DatagramLimits)>,
    /// How to assign datagrams to the sources.
    pub demux: Demux,
    /// Whether the sources send independently of a run. A capture waits for the run.
    pub is_live: bool,
}

/// One source of a receiver.
struct Route {
    /// Its index in the machine.
    source: usize,
    framer: DatagramFramer<Description>,
    /// Divides its frames, if they hold several events.
    splitter: Option<Box<SourceSplitter>>,
    has_come: bool,
    /// Arrival time of the last datagram of a recording, by that recording's clock; `None` for live datagrams.
    came: Option<Instant>,
    /// Records its latest input, if configured.
    black_box: Option<Box<BlackBox>>,
}

/// One receiver with its sources.
struct Input {
    receiver: Box<dyn Receiver + Send>,
    demux: Demux,
    routes: Vec<Route>,
    is_live: bool,
    packets: Vec<Packet>,
    /// Datagrams for which there was no room yet, in order.
    waiting: VecDeque<Packet>,
    /// The route whose source has no room. Until it has, the receiver is not read.
    blocked_by: Option<usize>,
    /// Whether all datagrams that will ever arrive were taken.
    has_ended: bool,
    nobodys: u64,
    /// Losses before the run began, which do not count as losses of the run; `None` before the run.
    lost_before: Option<ByCause>,
    /// Losses since then, as of the last query.
    lost: ByCause,
    /// Number of times its multicast group was lost with the network card, as of the last query.
    groups_lost: u64,
}

/// All receivers of a readout unit.
#[derive(Default)]
pub(super) struct Datagrams {
    inputs: Vec<Input>,
    received: Vec<Received>,
}

/// Approximate number of datagrams of one receiver in one turn.
const AT_ONCE: usize = 512;
/// Frames of one source that are handed on at a time. Fewer than there is room for, because one frame may release
/// others that waited for it.
const MOST_FRAMES: usize = 96;
/// Maximum number of attempts at the end of the run to read remaining datagrams of a receiver.
const MOST_UNREAD: usize = 1 << 14;
/// Initial capacity, in datagrams.
const ROOM: usize = 2048;
/// Share of a receiver's memory, in percent, above which the oldest data is moved out.
const EVACUATE_ABOVE: usize = 50;

impl Datagrams {
    /// Adds a receiver. Sources that the readout unit does not have are left out.
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

    /// Sets the splitter of a source, by its index. Returns the splitter if the source sends no datagrams.
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

    /// Returns the cumulative counters of sources whose frames are divided.
    pub(super) fn divided(&self) -> impl Iterator<Item = (SourceId, Counter, u64)> {
        self.splitters().flat_map(|splitter| splitter.counters())
    }

    fn splitters(&self) -> impl Iterator<Item = &SourceSplitter> {
        self.inputs.iter().flat_map(|input| &input.routes).filter_map(|route| route.splitter.as_deref())
    }

    /// Adds a black box to a source, by its index. Returns the black box if the source sends no datagrams.
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

    /// Processes the available datagrams. Returns the amount of work done.
    pub(super) fn turn(&mut self, now: Instant, readout: &mut Readout) -> usize {
        self.inputs.iter_mut().map(|input| input.turn(now, readout, &mut self.received)).sum()
    }

    /// Drops, at the end of the run, frames that wait to be gathered or divided, and unread datagrams at the ports.
    pub(super) fn abandon_waiting(&mut self, now: Instant, readout: &mut Readout) {
        self.inputs.iter_mut().for_each(|input| input.abandon_unread(now, readout));
        for route in self.inputs.iter_mut().flat_map(|input| &mut input.routes) {
            let fragments = route.splitter.as_mut().map_or(0, |splitter| splitter.abandon());
            readout.abandon(route.source, fragments + route.framer.abandon());
        }
    }

    /// Returns whether a receiver's memory is so full that fragments should be moved out.
    pub(super) fn want_evacuation(&mut self) -> bool {
        self.inputs.iter_mut().any(|input| input.receiver.memory_in_use().is_above(EVACUATE_ABOVE))
    }

    /// Queries the losses of the receivers. To be done at the end, because the last datagrams may have been lost.
    pub(super) fn ask_what_was_lost(&mut self) {
        self.inputs.iter_mut().for_each(Input::ask_what_was_lost);
    }

    /// Returns the cumulative counters; losses as of the last query.
    pub(super) fn report(&self) -> impl Iterator<Item = ReportEntry> + '_ {
        // At a port of several sources the source of a lost datagram is unknown.
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

    /// Returns when the next turn is due even if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let of = |input: &Input| {
            let live = input.routes.iter().filter(|route| route.came.is_none());
            let framers = live.filter_map(|route| route.framer.next_deadline());
            framers.chain(input.receiver.next_deadline().filter(|_| input.is_heard())).min()
        };
        let splitters = self.splitters().filter_map(|splitter| splitter.next_deadline());
        self.inputs.iter().filter_map(of).chain(splitters).min()
    }

    /// Prepares the thread's sleep. Returns false if there is work to do immediately.
    pub(super) fn prepare_wait(&mut self) -> bool {
        // Every receiver is asked, so that every one is armed. A blocked one waits for the machine.
        let mut may_sleep = true;
        for input in self.inputs.iter_mut().filter(|input| input.is_heard()) {
            may_sleep &= input.receiver.prepare_wait();
        }
        may_sleep
    }

    /// Appends the descriptors that become readable when datagrams arrive.
    pub(super) fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        let heard = self.inputs.iter().filter(|input| input.is_heard());
        into.extend(heard.filter_map(|input| input.receiver.wait_descriptor()));
        self.splitters().for_each(|splitter| splitter.descriptors(into));
    }
}

impl Input {
    /// Returns whether datagrams may arrive that can be taken.
    const fn is_heard(&self) -> bool {
        self.blocked_by.is_none() && !self.has_ended
    }

    /// Counts and drops datagrams that arrived while their source had no room, and those behind them.
    fn abandon_unread(&mut self, now: Instant, readout: &mut Readout) {
        if self.blocked_by.is_none() {
            return;
        }
        // Senders continue. Datagrams that arrive meanwhile are not part of the run.
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

    /// Queries the losses since the run began.
    fn ask_what_was_lost(&mut self) {
        let Some(before) = self.lost_before else { return };
        let counters = self.receiver.counters();
        self.groups_lost = counters.groups_lost;
        for (cause, count) in counters.lost.iter() {
            self.lost.set(cause, count - before.get(cause));
        }
    }

    /// Returns the source of all datagrams, if there is only one.
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
        // A waiting datagram may be the one that is awaited.
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

    /// Handles the end of the input.
    fn end(&mut self, now: Instant, readout: &mut Readout, received: &mut Vec<Received>) {
        for route in &mut self.routes {
            route.connect(now, readout);
            route.framer.end(route.time(now), received);
            route.hand_on(now, readout, received);
            readout.source_disconnected(now, route.source, false);
        }
    }

    /// Frames the waiting datagrams, as long as the machine has room for their source. Returns the number of datagrams
    /// taken, and the source that had no room for its next one.
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
        // The route whose fragments are in `received`, and the number of further fragments that it has room for.
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

    /// Gives the machine the fragments of divided frames, as long as it has room. Returns false if some are left.
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

    /// Returns the number of frames for which a source has room. Frames from before the run are read, and are stale.
    fn room(&self, route: usize, readout: &Readout) -> usize {
        if !readout.has_started() && self.is_live {
            AT_ONCE
        } else {
            readout.room(self.routes[route].source).min(MOST_FRAMES)
        }
    }

    /// Sets the blocked route. A source without room is neither read nor reported missing. The time-outs of the sources
    /// behind it keep running: it is at its maximum lead because another source is missing. If that is one of these,
    /// only its time-out can end the wait.
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
    /// Returns the source of a datagram; `None` if it belongs to no source.
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

    /// Returns the arrival time of the last datagram, by the clock of its framer.
    fn time(&self, now: Instant) -> Instant {
        self.came.unwrap_or(now)
    }

    /// Frames a datagram.
    fn take(&mut self, now: Instant, packet: Packet, readout: &mut Readout, received: &mut Vec<Received>) {
        self.connect(now, readout);
        self.came = packet.came.map(|came| self.came.map_or(came, |last| last.max(came)));
        let time = self.time(now);
        if self.came.is_some() {
            // In a recording nothing from before its beginning is missing.
            self.framer.end_waits(time, received);
        }
        if packet.payload.is_empty() {
            self.framer.push_empty(received);
        }
        // Sockets deliver a datagram in one piece; a truncated one they do not deliver at all.
        for slice in packet.payload.into_slices() {
            if let Some(black_box) = &mut self.black_box {
                black_box.record(now, packet.from, &slice);
            }
            self.framer.push(time, slice, false, received);
        }
    }

    /// Hands framed data on to the machine, or to the splitter.
    fn hand_on(&mut self, now: Instant, readout: &mut Readout, received: &mut Vec<Received>) {
        match &mut self.splitter {
            Some(splitter) => splitter.put(now, received),
            None => self.deliver(now, readout, received),
        }
    }

    /// Looks after the process that divides the frames, if there is one. Returns the amount of work done.
    fn look_after(&mut self, now: Instant) -> usize {
        self.splitter.as_mut().map_or(0, |splitter| splitter.turn(now))
    }

    /// Gathers frames before they are divided. Returns whether more are wanted.
    fn gathers(&mut self, now: Instant, received: &mut Vec<Received>) -> bool {
        let Some(splitter) = &mut self.splitter else { return false };
        splitter.put(now, received);
        splitter.gathers()
    }

    /// Returns whether no frame waits to be divided, and no divided fragment waits for room.
    fn is_divided(&self) -> bool {
        self.splitter.as_ref().is_none_or(|splitter| splitter.is_empty())
    }

    /// Gives the framed data to the machine.
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

    /// Reports the counts beside the frames.
    fn note(&mut self, now: Instant, counts: FrameCounts, readout: &mut Readout, received: &[Received]) {
        if let Some(black_box) = &mut self.black_box {
            black_box.look(now, received, &counts);
        }
        // Datagrams from before the run do not count as missing.
        let unseen = FrameCounts { missing: 0, found: 0, out_of_order: 0, forgiven: 0, ..counts };
        readout.note_frames(now, self.source, if readout.has_started() { counts } else { unseen });
    }
}
