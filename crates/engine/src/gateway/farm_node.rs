//! A node of the farm. It receives events of every gateway and decides on them: by the triggers of a `[filter]`, or, if
//! emulated, at random and after a delay.

use super::link::{Link, contiguous, send_over};
use super::report::Notice;
use crate::Drive;
use ropewalk_flow::filter::{BuiltinFilter, Decision, TriggerView};
use ropewalk_flow::gateway::{FarmNode, FarmNodeConfig, ReceivedEvent};
use ropewalk_flow::source::Random;
use ropewalk_flow::source::TimeDistribution;
use ropewalk_io::packet::{Packet, Refusal};
use ropewalk_terms::{EventKey, Instant, SourceId, account};
use ropewalk_wire::gateway::{EventFlags, Frame, Kind, Message, PushView};
use ropewalk_wire::mep::bank_ranges;
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Configuration of a node.
#[derive(Clone, Debug)]
pub struct FarmNodeDriveConfig {
    /// Configuration of its state machine. The gateway's number is set for each gateway.
    pub machine: FarmNodeConfig,
    /// Address of each gateway for nodes.
    pub gateways: Vec<SocketAddrV4>,
    /// How it decides.
    pub filter: NodeFilterConfig,
    /// Its configured outages.
    pub outages: Vec<Outage>,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Set when the node is to end.
    pub is_over: Arc<AtomicBool>,
}

/// A period in which a node is dead: it receives nothing, and returns without any state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Beginning, after its first turn.
    pub from: Duration,
    /// Duration.
    pub lasts: Duration,
}

account! {
    /// What a node has seen, or several.
    #[derive(Serialize, JsonSchema)]
    #[schemars(rename = "FarmNodeSummary")]
    pub struct FarmNodeReport {
        /// Events that they accepted.
        pub accepted: u64,
        /// Bytes of complete events.
        pub bytes: u64,
        /// Configured deaths.
        pub deaths: u64,
        /// Complete events received.
        pub events: u64,
        /// Received events in which a source is missing.
        pub incomplete: u64,
        /// Datagrams that are no message of a gateway.
        pub malformed: u64,
        /// Complete events that another node had received before.
        pub sent_again: u64,
    }
}

/// A node; see the module documentation.
pub struct FarmNodeDrive<L: Link> {
    config: FarmNodeDriveConfig,
    gateways: Vec<(SocketAddrV4, FarmNode)>,
    filter: NodeFilter,
    started: Option<Instant>,
    is_dead: bool,
    link: L,
    packets: Vec<Packet>,
    message: Vec<u8>,
    /// The peer that the encoded message still has to be sent to.
    unsent: Option<SocketAddrV4>,
    scratch: Vec<u8>,
    report: FarmNodeReport,
    notice: Notice<FarmNodeReport>,
}

impl<L: Link> FarmNodeDrive<L> {
    /// Creates a node that receives from gateways and answers over `link`.
    pub fn new(config: FarmNodeDriveConfig, link: L) -> Self {
        Self {
            gateways: machines(&config),
            filter: NodeFilter::new(&config.filter, config.seed),
            started: None,
            is_dead: false,
            link,
            packets: Vec::with_capacity(1024),
            message: Vec::with_capacity(2048),
            unsent: None,
            scratch: Vec::with_capacity(2048),
            report: FarmNodeReport::default(),
            notice: Notice::default(),
            config,
        }
    }

    /// Returns its report.
    pub fn notice(&self) -> Notice<FarmNodeReport> {
        self.notice.clone()
    }

    /// Dies or returns at the configured times. Returns whether it is dead.
    fn live_or_die(&mut self, now: Instant) -> bool {
        let age = now.since(*self.started.get_or_insert(now));
        let is_dead = self.config.outages.iter().any(|outage| outage.from <= age && age < outage.from + outage.lasts);
        if is_dead && !self.is_dead {
            self.report.deaths += 1;
            self.unsent = None;
        } else if self.is_dead && !is_dead {
            self.config.machine.incarnation.0 += 1;
            self.gateways = machines(&self.config);
            self.filter = NodeFilter::new(&self.config.filter, self.config.seed);
        }
        self.is_dead = is_dead;
        if is_dead {
            self.link.receive(now, &mut self.packets);
            self.packets.clear();
        }
        is_dead
    }

    fn hear(&mut self, now: Instant) -> usize {
        let work = self.link.receive(now, &mut self.packets);
        let Self { packets, gateways, scratch, report, .. } = self;
        for Packet { payload, .. } in packets.drain(..) {
            let bytes = contiguous(&payload, scratch);
            let is_good = match Frame::split(bytes) {
                Ok((Kind::Push, body, _)) => PushView::parse(body).is_ok_and(|push| {
                    let gateway = gateways.get_mut(usize::from(push.head().gateway));
                    gateway.is_some_and(|(_, machine)| {
                        machine.on_push(&push, now);
                        true
                    })
                }),
                Ok((kind, body, _)) => Message::decode(kind, body).is_ok_and(|message| {
                    let Message::Progress(progress) = message else { return false };
                    let gateway = gateways.get_mut(usize::from(progress.gateway));
                    gateway.is_some_and(|(_, machine)| {
                        machine.on_progress(&progress, now);
                        true
                    })
                }),
                Err(_) => false,
            };
            report.malformed += u64::from(!is_good);
        }
        work
    }

    /// Passes events to the filter, and takes its decisions.
    fn decide(&mut self, now: Instant) -> usize {
        let Self { gateways, filter, report, .. } = self;
        let mut work = 0;
        for (number, (_, machine)) in (0..).zip(gateways.iter_mut()) {
            machine.on_time(now);
            while let Some(event) = machine.next_event() {
                report.events += 1;
                report.bytes += event.bytes.len() as u64;
                report.incomplete += u64::from(event.head.flags.has(EventFlags::INCOMPLETE));
                report.sent_again += u64::from(event.head.flags.has(EventFlags::SENT_AGAIN));
                filter.begin(number, &event, now);
                work += 1;
            }
        }
        while let Some(NodeDecision { gateway, sequence, accept, word }) = filter.next_decision(now) {
            let Some((_, machine)) = gateways.get_mut(usize::from(gateway)) else { continue };
            report.accepted += u64::from(machine.decide(sequence, accept, word) && accept);
            work += 1;
        }
        work
    }

    fn tell(&mut self, now: Instant) -> usize {
        let mut told = 0;
        loop {
            if let Some(to) = self.unsent {
                match send_over(&mut self.link, to, &self.message, now) {
                    Err(Refusal::Full) => return told,
                    Ok(()) | Err(Refusal::TooLarge) => self.unsent = None,
                }
                told += 1;
            }
            let mut gateways = self.gateways.iter_mut();
            let next = gateways.find_map(|(at, machine)| Some((*at, machine.next_message(now)?)));
            let Some((to, message)) = next else { return told };
            self.message.clear();
            message.encode(&mut self.message);
            self.unsent = Some(to);
        }
    }
}

/// Creates the state machine for each gateway.
fn machines(config: &FarmNodeDriveConfig) -> Vec<(SocketAddrV4, FarmNode)> {
    let machine = |gateway| FarmNode::new(FarmNodeConfig { gateway, ..config.machine });
    (0..).zip(&config.gateways).map(|(number, &at)| (at, machine(number))).collect()
}

impl<L: Link> Drive for FarmNodeDrive<L> {
    fn turn(&mut self, now: Instant) -> usize {
        if self.live_or_die(now) {
            self.notice.renew(|report| *report = self.report);
            return 0;
        }
        let work = self.hear(now) + self.decide(now) + self.tell(now) + self.link.flush(now);
        if work > 0 {
            self.notice.renew(|report| *report = self.report);
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_dead {
            // Datagrams that arrive meanwhile are discarded now and then.
            return None;
        }
        let machines = self.gateways.iter().map(|(_, machine)| machine.next_deadline());
        machines.chain(self.filter.next_deadline()).chain(self.link.next_deadline()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.unsent.is_none() && self.link.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.link.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.config.is_over.load(Ordering::Relaxed)
    }
}

/// How a node decides.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeFilterConfig {
    /// Randomly, after a delay.
    Emulated(EmulatedFilterConfig),
    /// By triggers, immediately.
    Triggers(BuiltinFilter),
}

/// How an emulated node decides.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct EmulatedFilterConfig {
    /// Distribution of the decision times.
    pub times: TimeDistribution,
    /// Number of decisions in progress at the same time.
    pub at_once: usize,
    /// Fraction of events that are accepted.
    pub accept: f64,
}

/// A decision on an event, identified by the gateway's number and its sequence number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct NodeDecision {
    pub(super) gateway: u16,
    pub(super) sequence: u64,
    pub(super) accept: bool,
    /// The trigger word: bit N for trigger N.
    pub(super) word: u32,
}

/// Decides on the events of a node.
#[derive(Debug)]
pub(super) enum NodeFilter {
    Emulated(EmulatedFilter),
    Triggers { filter: BuiltinFilter, decided: VecDeque<NodeDecision> },
}

impl NodeFilter {
    pub(super) fn new(config: &NodeFilterConfig, seed: u64) -> Self {
        match config {
            NodeFilterConfig::Emulated(config) => Self::Emulated(EmulatedFilter::new(*config, seed)),
            NodeFilterConfig::Triggers(filter) => {
                Self::Triggers { filter: filter.clone(), decided: VecDeque::with_capacity(256) }
            }
        }
    }

    /// Adds an event received from a gateway.
    pub(super) fn begin(&mut self, gateway: u16, event: &ReceivedEvent<'_>, now: Instant) {
        let sequence = event.head.sequence;
        match self {
            Self::Emulated(filter) => filter.begin(gateway, sequence, now),
            Self::Triggers { filter, decided } => {
                let Decision { accept, triggers } = filter.decide(&PushedEvent(*event));
                decided.push_back(NodeDecision { gateway, sequence, accept, word: triggers.0 as u32 });
            }
        }
    }

    /// Returns the next due decision.
    pub(super) fn next_decision(&mut self, now: Instant) -> Option<NodeDecision> {
        match self {
            Self::Emulated(filter) => {
                let (gateway, sequence, accept) = filter.next_decision(now)?;
                Some(NodeDecision { gateway, sequence, accept, word: u32::from(accept) })
            }
            Self::Triggers { decided, .. } => decided.pop_front(),
        }
    }

    /// Returns when the next decision is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Emulated(filter) => filter.next_deadline(),
            Self::Triggers { .. } => None,
        }
    }
}

/// A pushed event: raw banks, one after the other. The fragment of a source consists of the banks whose headers have
/// its number (16 bits), including the headers.
struct PushedEvent<'a>(ReceivedEvent<'a>);

impl TriggerView for PushedEvent<'_> {
    fn key(&self) -> EventKey {
        self.0.head.key
    }

    fn payload_bytes(&self) -> u64 {
        self.0.bytes.len() as u64
    }

    fn payload_of(&self, source: SourceId) -> Option<impl Iterator<Item = u8>> {
        let of_source = move |(bank, _): &(u16, _)| u32::from(*bank) == source.0;
        let mut banks = bank_ranges(self.0.bytes).filter(of_source).peekable();
        banks.peek()?;
        let bytes = self.0.bytes;
        Some(banks.flat_map(move |(_, range)| bytes[range].iter().copied()))
    }
}

/// An event in an emulated filter: gateway and sequence number.
type Work = (u16, u64);

/// Decides on events at random, after random times.
#[derive(Debug)]
pub(super) struct EmulatedFilter {
    config: EmulatedFilterConfig,
    random: Random,
    waiting: VecDeque<Work>,
    working: BinaryHeap<Reverse<(Instant, Work)>>,
}

impl EmulatedFilter {
    fn new(config: EmulatedFilterConfig, seed: u64) -> Self {
        let working = BinaryHeap::with_capacity(config.at_once);
        Self { config, random: Random::new(seed, 0xf117), waiting: VecDeque::new(), working }
    }

    /// Adds an event.
    fn begin(&mut self, gateway: u16, sequence: u64, now: Instant) {
        self.waiting.push_back((gateway, sequence));
        self.work(now);
    }

    fn work(&mut self, now: Instant) {
        while self.working.len() < self.config.at_once {
            let Some(work) = self.waiting.pop_front() else { return };
            let until = now.after(self.config.times.next(&mut self.random));
            self.working.push(Reverse((until, work)));
        }
    }

    /// Returns the next due decision: gateway, sequence number, and whether the event is accepted.
    fn next_decision(&mut self, now: Instant) -> Option<(u16, u64, bool)> {
        let &Reverse((until, (gateway, sequence))) = self.working.peek()?;
        if until > now {
            return None;
        }
        self.working.pop();
        // The worker became free at `until`, not at `now`.
        self.work(until);
        Some((gateway, sequence, self.random.unit() < self.config.accept))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.working.peek().map(|Reverse((until, _))| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::filter::{Builtin, Comparison};
    use ropewalk_wire::gateway::PieceHead;
    use ropewalk_wire::mep::{Bank, encode_bank};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn so_many_events_are_worked_on_at_once_and_the_others_wait() {
        let config = EmulatedFilterConfig { times: TimeDistribution::Fixed(SECOND), at_once: 2, accept: 1.0 };
        let mut filter = EmulatedFilter::new(config, 1);
        let begin = Instant::ZERO;
        (0..3).for_each(|sequence| filter.begin(7, sequence, begin));
        assert_eq!(filter.next_decision(begin), None);
        let later = begin.after(SECOND);
        assert_eq!(filter.next_deadline(), Some(later));
        assert_eq!(filter.next_decision(later), Some((7, 0, true)));
        assert_eq!(filter.next_decision(later), Some((7, 1, true)));
        assert_eq!(filter.next_decision(later), None, "the third was begun when the first had ended");
        assert_eq!(filter.next_decision(later.after(SECOND)), Some((7, 2, true)));
        assert_eq!(filter.next_deadline(), None);
    }

    #[test]
    fn triggers_look_at_sizes_sources_and_bytes_of_pushed_banks() {
        let mut bytes = Vec::new();
        for (source, data) in [(7, &b"seven"[..]), (7, b"again"), (40_000_u16.cast_signed(), b"other")] {
            encode_bank(&Bank { kind: 1, version: 2, source, data }, &mut bytes).expect("it is short");
        }
        let head = PieceHead { sequence: 12, key: EventKey::new(0, 30), ..PieceHead::default() };
        let decided = |triggers: Vec<Builtin>, bytes: &[u8]| {
            let config = NodeFilterConfig::Triggers(BuiltinFilter::new(triggers));
            let mut filter = NodeFilter::new(&config, 1);
            filter.begin(3, &ReceivedEvent { head, bytes }, Instant::ZERO);
            let decision = filter.next_decision(Instant::ZERO).expect("it decides at once");
            assert_eq!((decision.gateway, decision.sequence, filter.next_decision(Instant::ZERO)), (3, 12, None));
            (decision.accept, decision.word)
        };
        let present = |source| Builtin::Present(SourceId(source));
        assert_eq!(decided(vec![present(8), Builtin::Every(10), present(7), present(40_000)], &bytes), (true, 0b1110));
        assert_eq!(decided(vec![present(8), Builtin::Every(7)], &bytes), (false, 0));
        let whole = bytes.len() as u64;
        assert_eq!(decided(vec![Builtin::Size { least: whole, most: whole }], &bytes), (true, 1));
        let value = |offset, text: &[u8; 5]| Builtin::Bytes {
            source: SourceId(7),
            offset,
            mask: vec![0xff; 5],
            comparison: Comparison::Is,
            value: text.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)),
        };
        // A header of 8 bytes, and padding to 16: the second bank of the source follows the first.
        assert_eq!(decided(vec![value(8, b"seven"), value(24, b"again")], &bytes), (true, 0b11));
        assert_eq!(decided(vec![present(7)], b"no bank"), (false, 0));
    }

    #[test]
    fn the_configured_share_is_accepted() {
        let config = EmulatedFilterConfig { times: TimeDistribution::Fixed(Duration::ZERO), at_once: 1, accept: 0.25 };
        let mut filter = EmulatedFilter::new(config, 1);
        (0..10_000).for_each(|sequence| filter.begin(0, sequence, Instant::ZERO));
        let accepted = std::iter::from_fn(|| filter.next_decision(Instant::ZERO)).filter(|(_, _, accept)| *accept);
        let accepted = accepted.count();
        assert!((2300..2700).contains(&accepted), "{accepted}");
    }
}
