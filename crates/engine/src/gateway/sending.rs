//! The sending half of an input queue: it sends events to nodes, receives decisions, writes accepted events to files,
//! and sends the decisions on the others to the trigger. Viewers get samples of events from finished sets, before the
//! events are sent.

use super::GatewayDriveConfig;
use super::boards::{Order, Read};
use super::link::{DecisionReaders, Link, contiguous, send_bytes, send_over};
use super::lumisections::LumisectionLine;
use super::report::GatewayReport;
use crate::EventOutput;
use crate::sink::GatewayEvent;
use crate::tap::Tap;
use ropewalk_flow::gateway as machine;
use ropewalk_flow::gateway::{Ending, EventSet, FlowConfig, FragmentPlaces, Outgoing, Output};
use ropewalk_io::packet::{Packet, Refusal, Sender, over_v4};
use ropewalk_memory::{Payload, Slice, Staging};
use ropewalk_terms::{Instant, NodeId, SourceId};
use ropewalk_wire::gateway::{Frame, Message};
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The parts of the sending half of an input queue.
pub struct SendingParts<L, S> {
    /// Link to nodes.
    pub farm: L,
    /// Output of decisions in the order of events.
    pub triggers: S,
    /// Further readers of each flow's decisions.
    pub readers: Vec<Option<Box<dyn DecisionReaders + Send>>>,
    /// Memory for heads of events that the kernel gathers.
    pub heads: Staging,
    /// Tap for copies of events, and the node in whose name they are shown.
    pub tap: Option<(NodeId, Tap)>,
    /// The lumisections of all input queues. `None` if the whole run is one lumisection.
    pub lumisections: Option<LumisectionLine>,
    /// Selects accepted events and writes them. Without a farm it also decides.
    pub output: EventOutput,
}

/// Receiver of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum To {
    Node(SocketAddrV4),
    Trigger(SocketAddrV4),
}

/// The sending half; see the module documentation.
pub(super) struct Sending<L, S> {
    config: Arc<GatewayDriveConfig>,
    machine: machine::Sender,
    farm: L,
    triggers: S,
    readers: Vec<Option<Box<dyn DecisionReaders + Send>>>,
    /// Address at which each node was last heard.
    nodes: Vec<Option<SocketAddrV4>>,
    /// Position up to which orders were read.
    read: Read,
    staging: Staging,
    packets: Vec<Packet>,
    slices: Vec<Slice>,
    /// An encoded message, and the peers that it still has to be sent to.
    message: Vec<u8>,
    unsent: Option<To>,
    scratch: Vec<u8>,
    /// The ids of each flow's sources.
    sources: Vec<Vec<SourceId>>,
    watching: Option<Watching>,
    /// `None` if the whole run is one lumisection.
    lumisections: Option<LumisectionLine>,
    output: EventOutput,
    /// Whether the gateway decides itself.
    is_local: bool,
}

/// Maximum number of pushes in one turn, so that packets are received again before their socket is full.
const PUSHES: usize = 256;
/// Maximum number of messages in one turn.
const MESSAGES: usize = 64;
/// Maximum number of events to storage in one turn.
const STORED: usize = 64;

impl<L: Link, S: Sender> Sending<L, S> {
    pub(super) fn new(config: Arc<GatewayDriveConfig>, machine: machine::Sender, parts: SendingParts<L, S>) -> Self {
        let ids = |flow: &FlowConfig| flow.sources.iter().map(|source| source.id).collect();
        let sources: Vec<Vec<_>> = config.machine.flows.iter().map(ids).collect();
        let nodes = vec![None; usize::from(config.machine.farm.nodes)];
        let SendingParts { farm, triggers, readers, heads, tap, lumisections, output } = parts;
        let most_sources = sources.iter().map(Vec::len).max().unwrap_or_default();
        let is_local = config.machine.farm.local_events > 0;
        let watching = tap.map(|(unit, tap)| Watching::new(unit, tap, most_sources));
        Self {
            config,
            machine,
            farm,
            triggers,
            readers,
            nodes,
            read: Read::default(),
            staging: heads,
            packets: Vec::with_capacity(1024),
            slices: Vec::with_capacity(1024),
            message: Vec::with_capacity(2048),
            unsent: None,
            scratch: Vec::with_capacity(2048),
            sources,
            watching,
            lumisections,
            output,
            is_local,
        }
    }

    /// Returns when to report again.
    pub(super) fn renews(&self, now: Instant) -> Instant {
        now.after(self.config.orders.interval())
    }

    /// Returns the state machine.
    pub(super) const fn machine(&self) -> &machine::Sender {
        &self.machine
    }

    /// Begins the run: enters its directory.
    pub(super) fn begin(&mut self, now: Instant) {
        self.output.begin(now, self.config.run, self.config.machine.incarnation);
    }

    /// Handles the messages of nodes.
    pub(super) fn hear(&mut self, now: Instant) -> usize {
        let work = self.farm.receive(now, &mut self.packets);
        for Packet { from, payload, .. } in self.packets.drain(..) {
            let Some(message) = decoded(&payload, &mut self.scratch) else { continue };
            if let Message::Credit(credit) = &message
                && let Some(node) = self.nodes.get_mut(usize::from(credit.node))
            {
                *node = Some(over_v4(from));
            }
            self.machine.on_message(&message, now);
        }
        work
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        self.machine.on_time(now);
        self.end_lumisections(false, now);
    }

    /// Closes lumisections, and tells the output which are finished in all nodes. With `is_end` no further event
    /// will come. Returns whether all are closed.
    fn end_lumisections(&mut self, is_end: bool, now: Instant) -> bool {
        let Some(line) = &mut self.lumisections else { return true };
        let are_closed = line.close(&mut self.machine, is_end, now);
        while let Some((flow, end)) = line.next_over() {
            let flow = self.config.machine.flows.get(usize::from(flow));
            let is_stored = flow.is_some_and(|flow| flow.output == Output::Storage);
            if self.is_local && is_stored {
                self.output.end_lumisection(&end);
            }
        }
        are_closed
    }

    /// Returns whether a node is connected.
    pub(super) fn has_nodes(&mut self) -> bool {
        self.machine.farm().has_nodes()
    }

    /// Takes a finished set.
    pub(super) fn on_set(&mut self, mut set: EventSet, now: Instant) {
        let Self { machine, watching, sources, lumisections, .. } = self;
        if let Some(line) = lumisections {
            set.set_lumisection(line.enter(set.flow(), set.first()));
        }
        if let (Some(set), Some(watching)) = (machine.on_set(set, now), watching) {
            watching.look(set, sources, now);
        }
    }

    /// Returns the next set whose events have all been sent.
    pub(super) fn take_empty(&mut self) -> Option<EventSet> {
        self.machine.take_empty()
    }

    /// Sends events to nodes.
    pub(super) fn push(&mut self, now: Instant) -> usize {
        for pushed in 0..PUSHES {
            let Some(node) = self.machine.farm().next_push() else { return pushed };
            // A node without an address never had credit.
            let Some(to) = self.nodes.get(usize::from(node)).copied().flatten() else { return pushed };
            match self.send_push(to) {
                Ok(()) => self.machine.farm().sent(now),
                Err(Refusal::Full) if self.farm.flush(now) > 0 => {}
                Err(_) => return pushed,
            }
        }
        PUSHES
    }

    fn send_push(&mut self, to: SocketAddrV4) -> Result<(), Refusal> {
        let view = self.machine.farm().push_view();
        match self.config.gathering.copying() {
            Some(copying) => {
                let mut fill = |room: &mut [u8]| view.copy_to(room, copying).unwrap_or(0);
                self.farm.send_with(to, view.length(), &mut fill)
            }
            None => {
                self.slices.clear();
                if !view.append_slices(&mut self.staging, &mut self.slices) {
                    return Err(Refusal::Full);
                }
                self.farm.send(to, &mut self.slices)
            }
        }
    }

    /// Sends messages to nodes and triggers.
    pub(super) fn tell(&mut self, now: Instant) -> usize {
        for told in 0..MESSAGES {
            if let Some(to) = self.unsent {
                let sent = match to {
                    To::Node(to) => send_over(&mut self.farm, to, &self.message, now),
                    To::Trigger(to) => send_bytes(&mut self.triggers, to, &self.message, now),
                };
                match sent {
                    Err(Refusal::Full) => return told,
                    Ok(()) | Err(Refusal::TooLarge) => self.unsent = None,
                }
            }
            self.message.clear();
            if !self.next_message(now) {
                return told;
            }
        }
        MESSAGES
    }

    /// Encodes the next message. Returns false if no message waits.
    fn next_message(&mut self, now: Instant) -> bool {
        let Some(outgoing) = self.machine.next_message(now) else { return false };
        match outgoing {
            Outgoing::Progress(node, progress) => {
                self.unsent = self.nodes.get(usize::from(node)).copied().flatten().map(To::Node);
                Message::Progress(progress).encode(&mut self.message);
            }
            Outgoing::Stream(stream) => {
                let trigger = self.config.triggers.get(usize::from(stream.flow)).copied().flatten();
                self.unsent = trigger.map(To::Trigger);
                let readers = self.readers.get_mut(usize::from(stream.flow));
                Message::Stream(stream).encode(&mut self.message);
                if let Some(Some(readers)) = readers {
                    readers.tell(&self.message);
                }
            }
            // For the other half.
            Outgoing::Throttle(_) => {}
        }
        true
    }

    /// Applies changed prescales.
    #[cold]
    fn read_orders(&mut self) {
        let Self { config, read, output, .. } = self;
        config.orders.read(read, |order| match order {
            Order::SetPrescale(stream, prescale) => output.set_prescale(stream, prescale),
            // For the other half.
            Order::Mask(..) | Order::SetTimeout(..) => {}
        });
    }

    /// Passes accepted events to the sink.
    pub(super) fn store(&mut self, now: Instant) -> usize {
        if self.config.orders.has_news(&self.read) {
            self.read_orders();
        }
        let farm = self.machine.farm();
        if self.is_local {
            self.output.turn(now, farm, STORED)
        } else {
            self.output.store(now, farm, &self.sources, STORED)
        }
    }

    pub(super) fn flush(&mut self, now: Instant) -> usize {
        let mut work = self.farm.flush(now) + self.triggers.flush(now);
        for readers in self.readers.iter_mut().flatten() {
            work += readers.receive(now, &mut self.packets) + readers.flush(now);
            // Readers send no messages.
            self.packets.clear();
        }
        work
    }

    /// Drains the output after every flow has stopped. From now on a disk that is short of space is written all the
    /// same, and a disk that rejects everything is given up some time later: sets that wait for it occupy the room for
    /// packets that are still in the kernel.
    pub(super) fn drain(&mut self, now: Instant) {
        self.output.drain(now);
    }

    /// Ends, once no set is held: closes files, and sends queued data if its receiver takes it until `until`. Returns
    /// whether all of that is done.
    pub(super) fn finish(&mut self, until: Instant, now: Instant) -> bool {
        if !self.machine.farm().is_empty() || !self.end_lumisections(true, now) {
            return false;
        }
        let is_closed = if self.is_local {
            // The output closes lumisections with the events of all queues.
            let are_over = self.lumisections.as_ref().is_none_or(LumisectionLine::are_over);
            if !(are_over || now >= until) || !self.output.is_idle() || !self.output.close(now) {
                return false;
            }
            self.output.end();
            true
        } else {
            self.output.close(now) || self.output.has_given_up()
        };
        let is_queued = self.unsent.is_some()
            || self.farm.is_queued()
            || self.triggers.queued() > 0
            || self.readers.iter().flatten().any(|readers| readers.is_queued());
        is_closed && (!is_queued || now >= until)
    }

    /// Adds this half's part to the report.
    pub(super) fn report(&self, report: &mut GatewayReport) {
        for (flow, known) in (0..).zip(&mut report.flows) {
            known.events = self.machine.account(flow);
        }
        report.sent = self.farm.sent();
        self.report_output(report);
        report.cut_off = self.readers.iter().flatten().map(|readers| readers.cut_off()).sum();
        report.nodes_away = self.machine.nodes_away();
    }

    fn report_output(&self, report: &mut GatewayReport) {
        let counts = if self.is_local { self.machine.local_counts() } else { self.output.accepted() };
        report.storage = self.output.storage();
        (report.written, report.not_written, report.left_out) = (counts.written, counts.failed, counts.left_out);
        report.streams.clear();
        report.streams.extend(self.output.stream_accounts());
        report.filter.clear();
        if self.is_local {
            report.filter.extend(self.output.filter().numbers());
        }
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let readers = self.readers.iter().flatten().filter_map(|readers| readers.next_deadline());
        let others = self.output.next_deadline().into_iter().chain(self.farm.next_deadline()).chain(readers);
        others.chain([self.machine.next_deadline()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    pub(super) fn prepare_wait(&mut self) -> bool {
        let mut may_sleep = self.unsent.is_none() && self.triggers.queued() == 0 && self.farm.prepare_wait();
        for readers in self.readers.iter_mut().flatten() {
            may_sleep &= readers.prepare_wait();
        }
        self.output.prepare_wait() && may_sleep
    }

    pub(super) fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.farm.wait_descriptor());
        into.extend(self.readers.iter().flatten().filter_map(|readers| readers.wait_descriptor()));
        self.output.descriptors(into);
    }
}

/// Decodes a message in a datagram; `None` if it is not a whole message of a kind for gateways.
fn decoded(payload: &Payload, scratch: &mut Vec<u8>) -> Option<Message> {
    let bytes = contiguous(payload, scratch);
    let (kind, body, _) = Frame::split(bytes).ok()?;
    Message::decode(kind, body).ok()
}

/// Pause after a set that did not match every request. A request without a match must not cost an inspection of every
/// packet.
const REST: Duration = Duration::from_millis(1);

/// Shows events to the tap while a viewer asks for one.
pub(super) struct Watching {
    /// The name of the input queue that viewers see.
    unit: NodeId,
    tap: Tap,
    places: FragmentPlaces,
    /// The first event of the next set that is shown. It changes each time; otherwise viewers would only ever see the
    /// first event.
    next: u16,
    rests_until: Instant,
}

impl Watching {
    /// Creates it for sets of this many sources.
    pub(super) fn new(unit: NodeId, tap: Tap, sources: usize) -> Self {
        Self { unit, tap, places: FragmentPlaces::new(sources), next: 0, rests_until: Instant::ZERO }
    }

    /// Shows the events of a set until no request is left. `sources` are the source ids of each flow.
    pub(super) fn look(&mut self, set: &mut EventSet, sources: &[Vec<SourceId>], now: Instant) {
        let is_complete = set.ending() == Ending::Complete;
        if !self.tap.is_open() || now < self.rests_until || !self.tap.may_take(is_complete) {
            return;
        }
        let events = set.keys().len() as u16;
        let first = self.next % events;
        self.next = first + 1;
        for event in (first..events).chain(0..first) {
            self.tap.offer(self.unit, &GatewayEvent::new(set.show(event, &mut self.places), sources));
            if !self.tap.may_take(is_complete) {
                return;
            }
        }
        self.rests_until = now.after(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::{Asked, EventSelection};
    use ropewalk_flow::gateway::{Address, FarmConfig, FlowConfig, Gateway, GatewayConfig, PacketSource};
    use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
    use ropewalk_terms::{Cause, EventKey};
    use ropewalk_wire::mep::encode_mep;
    use std::net::Ipv4Addr;

    const SOURCES: [u32; 3] = [100, 101, 102];

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(milliseconds))
    }

    fn address(source: u32) -> Address {
        Address::of(Ipv4Addr::from_bits(0x0A00_0000 + source))
    }

    /// Returns a set of two events, of which the first is `first`. Source n has (n - 99) times 4 bytes, and twice as
    /// many in the second event. Only the given sources have sent something.
    fn set(first: u64, sources: &[u32]) -> EventSet {
        let source = |id| PacketSource { id: SourceId(id), address: address(id) };
        let config = GatewayConfig::new(0, vec![FlowConfig::new(SOURCES.map(source).to_vec(), 2)], FarmConfig::new(1));
        let (mut receiver, _) = Gateway::new(&config).expect("it can be").split();
        let mut staging = Staging::new(Pool::new(PoolConfig::heap("watching", 4096, 4)).expect("memory"));
        for &id in sources {
            let fragments = [1, 2].map(|times| vec![id as u8; 4 * times * (id as usize - 99)]);
            let mut bytes = Vec::new();
            encode_mep(first as u32, 0, fragments.iter().map(Vec::as_slice), &mut bytes).expect("it is short");
            let packet: Payload = staging.write(&bytes).expect("room").into();
            assert_eq!(receiver.on_packet(0, address(id), packet, at(0)), None);
        }
        receiver.close_all(Cause::TimedOut);
        receiver.take_set().expect("it is finished")
    }

    fn watching() -> (Tap, Watching) {
        let tap = Tap::new(SOURCES.len());
        (tap.clone(), Watching::new(NodeId::builder(3), tap, SOURCES.len()))
    }

    fn asked(tap: &Tap, selection: EventSelection) -> Asked {
        tap.ask(selection, 6).expect("not many have asked")
    }

    #[test]
    fn a_viewer_gets_the_events_of_a_set_that_it_asked_for() {
        let (tap, mut watching) = watching();
        let mut any = asked(&tap, EventSelection::default());
        let mut large = asked(&tap, EventSelection { least_bytes: 48, ..EventSelection::default() });
        let mut incomplete = asked(&tap, EventSelection { is_incomplete: true, ..EventSelection::default() });
        let of_source =
            EventSelection { source: Some(SourceId(102)), is_incomplete: true, ..EventSelection::default() };
        let mut of_source = asked(&tap, of_source);
        let ids = [SOURCES.map(SourceId).to_vec()];
        watching.look(&mut set(8, &SOURCES), &ids, at(1));
        let sample = any.take().expect("it was the first event");
        assert_eq!((sample.builder, sample.key, sample.is_complete()), (NodeId::builder(3), EventKey::new(0, 8), true));
        let known: Vec<_> = sample.fragments.iter().map(|one| (one.entry.source.0, one.entry.length)).collect();
        assert_eq!(known, [(100, 4), (101, 8), (102, 12)]);
        let fronts: Vec<&[u8]> = sample.fragments.iter().map(|fragment| sample.front_of(fragment)).collect();
        assert_eq!(fronts, [&[100; 4][..], &[101; 6], &[102; 6]]);
        assert!(sample.missing.is_empty());
        assert_eq!(large.take().expect("the second one").key, EventKey::new(0, 9));
        assert!(incomplete.take().is_none() && of_source.take().is_none(), "every source was there");

        watching.look(&mut set(10, &[100]), &ids, at(10));
        let sample = incomplete.take().expect("two are missing");
        let missing: Vec<_> = sample.missing.iter().map(|missing| (missing.source.0, missing.cause())).collect();
        assert_eq!(missing, [(101, Some(Cause::TimedOut)), (102, Some(Cause::TimedOut))]);
        assert_eq!((sample.fragments.len(), sample.is_complete()), (1, false));
        assert!(of_source.take().is_none(), "that one is missing itself");
        watching.look(&mut set(12, &[100, 102]), &ids, at(20));
        assert_eq!(of_source.take().expect("it has sent something").key, EventKey::new(0, 12));
    }

    #[test]
    fn a_wish_that_nothing_fulfils_costs_one_set_in_a_while_and_none_that_cannot_do() {
        let (tap, mut watching) = watching();
        let ids = [SOURCES.map(SourceId).to_vec()];
        let mut huge = asked(&tap, EventSelection { least_bytes: 1 << 20, ..EventSelection::default() });
        watching.look(&mut set(0, &SOURCES), &ids, at(1));
        // A second viewer takes any event: not one of the next set, but of the one after that, which begins with
        // another event.
        let mut any = asked(&tap, EventSelection::default());
        watching.look(&mut set(2, &SOURCES), &ids, at(1));
        assert!(any.take().is_none());
        watching.look(&mut set(4, &SOURCES), &ids, at(2));
        assert_eq!(any.take().expect("it has rested").key, EventKey::new(0, 5));
        assert!(huge.take().is_none());
        drop(huge);
        // Complete sets are no reason to pause for a viewer that requests incomplete ones.
        let mut incomplete = asked(&tap, EventSelection { is_incomplete: true, ..EventSelection::default() });
        watching.look(&mut set(6, &SOURCES), &ids, at(10));
        watching.look(&mut set(8, &[100]), &ids, at(10));
        assert_eq!(incomplete.take().expect("it was looked at").key, EventKey::new(0, 8));
        assert!(!tap.is_open());
    }
}
