//! The sending half of an input queue: events out, decisions in, accepted events to files, other decisions to the trigger.

use super::config::{GatewayDriveConfig, Gathering};
use super::event::GatewayEvent;
use super::link::Link;
use super::message::{contiguous, send_bytes, send_over};
use super::order_board::{Order, Read};
use super::readers::DecisionReaders;
use super::report::GatewayReport;
use super::watching::Watching;
use crate::drive::{EventSink, Filed, Progress, SinkEvent};
use crate::tap::Tap;
use ropewalk_flow::filter::Streams;
use ropewalk_flow::gateway as machine;
use ropewalk_flow::gateway::{EventSet, FlowConfig, Outgoing};
use ropewalk_io::packet::{Packet, Refusal, Sender, over_v4};
use ropewalk_memory::{Payload, Slice, Staging};
use ropewalk_terms::{Instant, NodeId, SourceId, StreamAccount, StreamSet, TriggerBits};
use ropewalk_wire::gateway::{Frame, Message};
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What the sending half of an input queue works with.
pub struct SendingParts<L, S> {
    /// To and from nodes.
    pub farm: L,
    /// Where decisions leave in the order of events.
    pub triggers: S,
    /// Who else reads a flow's decisions.
    pub readers: Vec<Option<Box<dyn DecisionReaders + Send>>>,
    /// Where accepted events are written, if they are.
    pub sink: Option<Box<dyn EventSink>>,
    /// The streams of these events.
    pub streams: Streams,
    /// Memory for heads of events that the kernel gathers.
    pub heads: Staging,
    /// Where copies of events are asked for, and whose they are then.
    pub tap: Option<(NodeId, Tap)>,
}

/// Who a message is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum To {
    Node(SocketAddrV4),
    Trigger(SocketAddrV4),
}

/// The sending half: see the module's first line.
pub(super) struct Sending<L, S> {
    config: Arc<GatewayDriveConfig>,
    machine: machine::Sender,
    farm: L,
    triggers: S,
    readers: Vec<Option<Box<dyn DecisionReaders + Send>>>,
    /// Where each node was heard last.
    nodes: Vec<Option<SocketAddrV4>>,
    sink: Option<Box<dyn EventSink>>,
    streams: Streams,
    /// How far the orders were read.
    read: Read,
    /// The streams of the next event, if the sink had no room for it when they were selected.
    selected: Option<StreamSet>,
    staging: Staging,
    packets: Vec<Packet>,
    slices: Vec<Slice>,
    /// An encoded message, and to whom it still has to go.
    message: Vec<u8>,
    unsent: Option<To>,
    scratch: Vec<u8>,
    /// Accepted events in files, in all their streams.
    written: u64,
    /// Accepted events that could not be written.
    not_written: u64,
    /// Accepted events that no stream takes.
    left_out: u64,
    /// Events that the sink has taken and not reported yet, by stream.
    in_flight: Vec<u64>,
    /// The ids of each flow's sources.
    sources: Vec<Vec<SourceId>>,
    watching: Option<Watching>,
    progress: Vec<(u32, Progress)>,
}

/// Pushes of one turn, so that packets are received again before their socket is full.
const PUSHES: usize = 256;
/// Messages of one turn.
const MESSAGES: usize = 64;
/// Events to storage of one turn.
const STORED: usize = 64;

impl<L: Link, S: Sender> Sending<L, S> {
    pub(super) fn new(config: Arc<GatewayDriveConfig>, machine: machine::Sender, parts: SendingParts<L, S>) -> Self {
        let ids = |flow: &FlowConfig| flow.sources.iter().map(|source| source.id).collect();
        let sources: Vec<Vec<_>> = config.machine.flows.iter().map(ids).collect();
        let nodes = vec![None; usize::from(config.machine.farm.nodes)];
        let SendingParts { farm, triggers, readers, sink, streams, heads, tap } = parts;
        let most_sources = sources.iter().map(Vec::len).max().unwrap_or_default();
        let in_flight = vec![0; streams.names().count()];
        let watching = tap.map(|(unit, tap)| Watching::new(unit, tap, most_sources));
        Self {
            config,
            machine,
            farm,
            triggers,
            readers,
            nodes,
            sink,
            streams,
            read: Read::default(),
            selected: None,
            staging: heads,
            packets: Vec::with_capacity(1024),
            slices: Vec::with_capacity(1024),
            message: Vec::with_capacity(2048),
            unsent: None,
            scratch: Vec::with_capacity(2048),
            written: 0,
            not_written: 0,
            left_out: 0,
            in_flight,
            sources,
            watching,
            progress: Vec::with_capacity(1024),
        }
    }

    /// When to tell of itself again.
    pub(super) fn renews(&self, now: Instant) -> Instant {
        now.after(self.config.orders.interval())
    }

    /// The machine.
    pub(super) const fn machine(&self) -> &machine::Sender {
        &self.machine
    }

    /// The run's directory is entered.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(sink) = &mut self.sink {
            sink.begin(now, self.config.run, self.config.machine.incarnation);
        }
    }

    /// What nodes say.
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
    }

    /// Whether a node is there.
    pub(super) fn has_nodes(&mut self) -> bool {
        self.machine.farm().has_nodes()
    }

    /// A finished set comes.
    pub(super) fn on_set(&mut self, set: EventSet, now: Instant) {
        let Self { machine, watching, sources, .. } = self;
        if let (Some(set), Some(watching)) = (machine.on_set(set, now), watching) {
            watching.look(set, sources, now);
        }
    }

    /// The next set whose events have all left.
    pub(super) fn take_empty(&mut self) -> Option<EventSet> {
        self.machine.take_empty()
    }

    /// Events to nodes.
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
        match self.config.gathering {
            Gathering::Copy(copying) => {
                let mut fill = |room: &mut [u8]| view.copy_to(room, copying).unwrap_or(0);
                self.farm.send_with(to, view.length(), &mut fill)
            }
            Gathering::Iovec => {
                self.slices.clear();
                if !view.append_slices(&mut self.staging, &mut self.slices) {
                    return Err(Refusal::Full);
                }
                self.farm.send(to, &mut self.slices)
            }
        }
    }

    /// Says what is to be said to nodes and triggers.
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

    /// Encodes the next message; false where there is none.
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
            // The other half's.
            Outgoing::Throttle(_) => {}
        }
        true
    }

    /// Applies changed prescales.
    #[cold]
    fn read_orders(&mut self) {
        let Self { config, streams, read, .. } = self;
        config.orders.read(read, |order| match order {
            Order::SetPrescale(stream, prescale) => streams.set_prescale(stream, prescale),
            // The other half's.
            Order::Mask(..) | Order::SetTimeout(..) => {}
        });
    }

    /// Accepted events to the sink.
    pub(super) fn store(&mut self, now: Instant) -> usize {
        if self.config.orders.has_news(&self.read) {
            self.read_orders();
        }
        let farm = self.machine.farm();
        let Some(sink) = &mut self.sink else {
            // Nothing is written: the events are counted and let go.
            while farm.next_stored().is_some() {
                farm.stored();
            }
            return 0;
        };
        let mut work = sink.poll(now, &mut self.progress);
        for (streams, progress) in self.progress.drain(..) {
            let streams = StreamSet::from_bits(streams);
            streams.iter().for_each(|stream| self.in_flight[usize::from(stream.0)] -= 1);
            if progress == Progress::Failed {
                self.not_written += 1;
                self.streams.failed(streams);
            } else {
                self.written += 1;
                self.streams.written(streams);
            }
        }
        for _ in 0..STORED {
            if farm.next_stored().is_none() {
                break;
            }
            let Some(event) = farm.stored_view() else { break };
            let word = event.word();
            let select = || self.streams.select(TriggerBits(word.into()), word as u16);
            // Select once per event: each selection advances the prescale counters.
            let streams = self.selected.take().unwrap_or_else(select);
            let event = SinkEvent::Gathered(GatewayEvent::new(event, &self.sources));
            if streams.is_empty() {
                self.left_out += 1;
            } else {
                // The slot carries the set of streams, so that progress reports update the right stream accounts.
                match sink.add_event(now, streams.to_bits(), &event, streams) {
                    Filed::Taken => streams.iter().for_each(|stream| self.in_flight[usize::from(stream.0)] += 1),
                    Filed::NoRoom => {
                        self.selected = Some(streams);
                        break;
                    }
                    Filed::Refused(_) => {
                        self.not_written += 1;
                        self.streams.failed(streams);
                    }
                }
            }
            farm.stored();
            work += 1;
        }
        sink.flush(now);
        work
    }

    pub(super) fn flush(&mut self, now: Instant) -> usize {
        let mut work = self.farm.flush(now) + self.triggers.flush(now);
        for readers in self.readers.iter_mut().flatten() {
            work += readers.receive(now, &mut self.packets) + readers.flush(now);
            // They have nothing to say.
            self.packets.clear();
        }
        work
    }

    /// No packet comes any more: a disk that refuses everything is not waited for without an end.
    pub(super) fn drain(&mut self, now: Instant) {
        if let Some(sink) = &mut self.sink {
            sink.drain(now);
        }
    }

    /// Ends, once no set is held any more: files are closed, and what is queued leaves, if somebody takes it until then.
    /// Whether all of that is done.
    pub(super) fn finish(&mut self, until: Instant, now: Instant) -> bool {
        if !self.machine.farm().is_empty() {
            return false;
        }
        let is_closed = self.sink.as_mut().is_none_or(|sink| {
            sink.finish(now);
            sink.is_closed() || sink.has_given_up()
        });
        let is_queued = self.unsent.is_some()
            || self.farm.is_queued()
            || self.triggers.queued() > 0
            || self.readers.iter().flatten().any(|readers| readers.is_queued());
        is_closed && (!is_queued || now >= until)
    }

    /// Its part of the report.
    pub(super) fn report(&self, report: &mut GatewayReport) {
        for (flow, known) in (0..).zip(&mut report.flows) {
            known.events = self.machine.account(flow);
        }
        report.sent = self.farm.sent();
        report.storage = self.sink.as_ref().map(|sink| sink.counts());
        (report.written, report.not_written, report.left_out) = (self.written, self.not_written, self.left_out);
        report.streams.clear();
        let waits = |stream| self.selected.is_some_and(|streams| streams.contains(stream));
        let accounts = self.streams.accounts().zip(&self.in_flight);
        report.streams.extend(accounts.map(|((stream, account), &in_flight)| {
            let in_flight = in_flight + u64::from(waits(stream));
            StreamAccount { in_flight, ..account }
        }));
        report.cut_off = self.readers.iter().flatten().map(|readers| readers.cut_off()).sum();
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let sink = self.sink.as_ref().and_then(|sink| sink.next_deadline());
        let readers = self.readers.iter().flatten().filter_map(|readers| readers.next_deadline());
        let others = sink.into_iter().chain(self.farm.next_deadline()).chain(readers);
        others.chain([self.machine.next_deadline()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    pub(super) fn prepare_wait(&mut self) -> bool {
        let mut may_sleep = self.unsent.is_none() && self.triggers.queued() == 0 && self.farm.prepare_wait();
        for readers in self.readers.iter_mut().flatten() {
            may_sleep &= readers.prepare_wait();
        }
        self.sink.as_mut().is_none_or(|sink| sink.prepare_wait()) && may_sleep
    }

    pub(super) fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.farm.wait_descriptor());
        into.extend(self.readers.iter().flatten().filter_map(|readers| readers.wait_descriptor()));
        into.extend(self.sink.as_ref().and_then(|sink| sink.wait_descriptor()));
    }
}

/// A message in a datagram; none where it is no whole message of a kind that gateways hear.
fn decoded(payload: &Payload, scratch: &mut Vec<u8>) -> Option<Message> {
    let bytes = contiguous(payload, scratch);
    let (kind, body, _) = Frame::split(bytes).ok()?;
    Message::decode(kind, body).ok()
}
