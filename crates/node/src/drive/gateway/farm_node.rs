//! A node of the farm: it takes events of every gateway, and decides on them.

use super::filter::{NodeDecision, NodeFilter, NodeFilterConfig};
use super::link::Link;
use super::message::{contiguous, send_over};
use super::report::Notice;
use crate::drive::Drive;
use ropewalk_flow::gateway::{FarmNode, FarmNodeConfig};
use ropewalk_io::packet::{Packet, Refusal};
use ropewalk_terms::Instant;
use ropewalk_wire::gateway::{EventFlags, Frame, Kind, Message, PushView};
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The configuration of a node.
#[derive(Clone, Debug)]
pub struct FarmNodeDriveConfig {
    /// Its machine's part; the gateway's number is set for each gateway.
    pub machine: FarmNodeConfig,
    /// Where each gateway listens for nodes.
    pub gateways: Vec<SocketAddrV4>,
    /// How it decides.
    pub filter: NodeFilterConfig,
    /// When it is dead.
    pub outages: Vec<Outage>,
    /// Where chance begins.
    pub seed: u64,
    /// It ends when this is set.
    pub is_over: Arc<AtomicBool>,
}

/// A time in which a node is dead: it hears nothing, and has forgotten everything when it is back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When, after its first turn.
    pub from: Duration,
    /// For how long.
    pub lasts: Duration,
}

/// What a node has seen.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FarmNodeReport {
    /// Events that came whole.
    pub events: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Those of them that were incomplete.
    pub incomplete: u64,
    /// Those of them that another node had had.
    pub sent_again: u64,
    /// Accepted ones.
    pub accepted: u64,
    /// Datagrams that were no message of a gateway.
    pub malformed: u64,
    /// How often it died.
    pub deaths: u64,
}

/// A node: see the module's first line.
pub struct FarmNodeDrive<L: Link> {
    config: FarmNodeDriveConfig,
    gateways: Vec<(SocketAddrV4, FarmNode)>,
    filter: NodeFilter,
    started: Option<Instant>,
    is_dead: bool,
    link: L,
    packets: Vec<Packet>,
    message: Vec<u8>,
    /// To whom the message still has to go.
    unsent: Option<SocketAddrV4>,
    scratch: Vec<u8>,
    report: FarmNodeReport,
    notice: Notice<FarmNodeReport>,
}

impl<L: Link> FarmNodeDrive<L> {
    /// A node that hears gateways and answers over `link`.
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

    /// What it has seen.
    pub fn notice(&self) -> Notice<FarmNodeReport> {
        self.notice.clone()
    }

    /// Dies and comes back when it is time to. Whether it is dead.
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

    /// Events go into the filter, decisions come out.
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

/// What it is towards each gateway.
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
            // What comes meanwhile is thrown away now and then.
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
