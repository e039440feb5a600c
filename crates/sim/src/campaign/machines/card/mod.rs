//! A link card in place of front ends: it writes blocks into its readout unit's ring, and keeps a record of its own of
//! every chunk: which blocks it lies in, and whether they reached the ring whole.
//!
//! ```text
//!  event due --> Link: chunk, troubles --> wire's Encoder --> blocks --> lost, damaged or good --> RingWriter
//!                  |                                            |
//!                  +-- Record: what became of each event <------+
//! ```
//! It is hardware: it outlives its readout unit, whose next life brings another ring.

mod link;

pub(in super::super) use self::link::Said;

use self::link::{Fate, Link};
use super::super::cards::CardSetting;
use super::super::endpoints::Surroundings;
use super::super::fault::{Fault, FaultKind};
use super::super::node::Machine;
use super::super::recorder::Inlet;
use super::super::scenario::Scenario;
use super::front_end::Record;
use super::subscriber::server;
use super::{ReadoutMachine, Site};
use ropewalk_engine::Drive;
use ropewalk_flow::readout::felix::{CardConfig, ChunkConfig, EventRules};
use ropewalk_io::wait::Bell;
use ropewalk_memory::PoolConfig;
use ropewalk_memory::ring::{RingWriter, ring};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::felix::ELink;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

/// The most bytes of a chunk: as many as always may be.
const MOST_CHUNK_BYTES: u64 = 64 << 10;
/// Pieces of open chunks that a readout unit has room for: more than all troubles of a run leave open at once.
const OPEN_PIECES: usize = 2048;

/// A card.
pub(in super::super) struct Card {
    pub(in super::super) setting: CardSetting,
    links: Vec<Link>,
    ring: Option<RingWriter>,
    /// Which ring it is, from 1.
    life: u64,
    /// Blocks that are full, whose they are, and the time until which none is written.
    waiting: VecDeque<(usize, Vec<u8>)>,
    stalled_until: Instant,
    is_closed: bool,
    /// Events up to this one are brought at once.
    burst: u64,
    /// Up to where the readout unit has taken the present ring's blocks; when it did, for all e-links.
    pub(in super::super) handed_on: u64,
    pub(in super::super) inlet: Inlet,
    /// Up to where it had written when the world looked last.
    pub(in super::super) seen: u64,
    /// Since when something waits in the ring that the readout unit could take.
    pub(in super::super) stands_since: Option<Instant>,
}

impl Card {
    /// A card that has said nothing, and has no ring yet.
    pub(in super::super) fn new(scenario: &Scenario, setting: &CardSetting) -> Self {
        let sources = scenario.sources_of(setting);
        let links = sources.enumerate().map(|(link, source)| Link::new(scenario, setting, link as u16, source));
        Self {
            links: links.collect(),
            setting: setting.clone(),
            ring: None,
            life: 0,
            waiting: VecDeque::new(),
            stalled_until: Instant::ZERO,
            is_closed: false,
            burst: 0,
            handed_on: 0,
            inlet: Inlet::default(),
            seen: 0,
            stands_since: None,
        }
    }

    /// A life of its readout unit begins: it has a new ring.
    /// Returns where its subscribers connect to, where it has any.
    pub(in super::super) fn attach(
        &mut self,
        site: &Site<'_>,
        around: &Surroundings,
        readout: &mut ReadoutMachine,
    ) -> Option<u32> {
        let CardSetting { format, page_bytes, pages, blocks_per_batch, .. } = self.setting;
        let memory = PoolConfig::heap("ring", page_bytes, pages);
        let (writer, reader) = ring(memory).expect("there is memory for a small ring");
        let chunks = ChunkConfig {
            blocks_per_batch,
            most_chunk_bytes: MOST_CHUNK_BYTES,
            open_pieces: OPEN_PIECES,
            ..ChunkConfig::new(format)
        };
        let links = self.links.iter().map(|link| (link.elink(), link.id)).collect();
        let bell = Bell::new().expect("there is a descriptor for a bell");
        let rules = self.links.iter().enumerate().fold(EventRules::from(self.setting.rule), |rules, (index, link)| {
            rules.with(link.elink(), self.setting.rule_of(index))
        });
        let config = CardConfig { chunks, rules, links };
        let host = if self.setting.subscribers.is_empty() {
            readout.add_card(&config, reader, Some(bell));
            None
        } else {
            let (server, host) = server(site, around, &self.setting);
            readout.add_served_card(&config, reader, Some(bell), server);
            Some(host)
        };
        self.ring = Some(writer);
        self.life += 1;
        (self.is_closed, self.handed_on, self.seen, self.stands_since) = (false, 0, 0, None);
        self.links.iter_mut().for_each(|link| link.tally = Default::default());
        host
    }

    /// What it did with each event of the source that is its e-link number `link`.
    pub(in super::super) fn record(&self, link: usize) -> &Record {
        &self.links[link].record
    }

    /// The e-link's place among the card's, if it is one.
    pub(in super::super) fn link_of(&self, elink: ELink) -> Option<usize> {
        self.links.iter().position(|link| link.elink() == elink)
    }

    /// A whole chunk, by its e-link and its number among those of the e-link.
    pub(in super::super) fn said(&self, (link, number): (usize, usize)) -> &Said {
        &self.links[link].said[number]
    }

    /// How many whole chunks an e-link said.
    pub(in super::super) fn said_by(&self, link: usize) -> usize {
        self.links[link].said.len()
    }

    /// The whole chunks of these e-links in one ring.
    pub(in super::super) fn places(
        &self,
        ring: u64,
        links: RangeInclusive<usize>,
    ) -> impl Iterator<Item = (usize, usize)> {
        links.flat_map(move |link| {
            let said = self.links[link].said.iter().enumerate();
            said.filter(move |(_, said)| said.ring == ring).map(move |(number, _)| (link, number))
        })
    }

    /// Which ring it writes, from 1.
    pub(in super::super) const fn life(&self) -> u64 {
        self.life
    }

    /// Bytes that it has written into the present ring.
    pub(in super::super) fn written(&self) -> u64 {
        self.ring.as_ref().map_or(0, RingWriter::written)
    }

    /// Bytes of the ring.
    pub(in super::super) const fn capacity(&self) -> u64 {
        (self.setting.page_bytes * self.setting.pages) as u64
    }

    /// Whether the ring has room for no block.
    pub(in super::super) fn is_full(&mut self) -> bool {
        self.ring.as_mut().is_some_and(|ring| ring.space().is_empty())
    }

    /// Where the oldest chunk of this ring begins that is open for who has read up to a position.
    pub(in super::super) fn oldest_open(&self, position: u64) -> Option<u64> {
        self.links.iter().filter_map(|link| link.oldest_open(self.life, position)).min()
    }

    /// The next event of the e-link that is furthest behind.
    pub(in super::super) fn next(&self) -> u64 {
        self.links.iter().map(|link| link.next).min().unwrap_or(u64::MAX)
    }

    /// It has said everything, into the present ring.
    pub(in super::super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Each e-link's source, the fewest and the most fragments that may count as received of the present ring, and the
    /// fewest when everything was taken.
    pub(in super::super) fn tallies(&self) -> impl Iterator<Item = (SourceId, u64, u64, u64)> {
        // A batch's faults are told when it is decoded, before its chunks are handed on.
        let decoded = self.handed_on + (self.setting.blocks_per_batch * self.setting.format.block_bytes()) as u64;
        self.links.iter().map(move |link| {
            let (least, most, whole) = link.tally.bounds(self.handed_on, decoded);
            (link.id, least, most, whole)
        })
    }

    /// Something is to go wrong with it, or with its e-link number `link`.
    pub(in super::super) fn order(&mut self, link: usize, until: Instant, fault: &Fault) {
        match fault.kind {
            FaultKind::CardStalls => self.stalled_until = self.stalled_until.max(until),
            FaultKind::CardBurst => {
                self.burst = self.links.iter().map(|link| link.next).max().unwrap_or(0) + fault.count();
            }
            _ => self.links[link].order(until, fault),
        }
    }

    /// Blocks leave as long as there is room; says how many.
    fn write_out(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some((link, _)) = self.waiting.front() {
            let (link, bytes) = (*link, self.setting.format.block_bytes());
            if self.ring.as_ref().is_some_and(RingWriter::is_abandoned) {
                self.ring = None;
            }
            let fate = self.links[link].next_fate(self.life);
            let room = self.ring.as_mut().map_or(0, |ring| ring.space().len());
            if room < bytes && fate != Fate::Lost && self.setting.waits {
                return count;
            }
            let fate = if room < bytes { Fate::Lost } else { fate };
            let Some((_, mut block)) = self.waiting.pop_front() else { return count };
            let start = self.written();
            if let Fate::Damaged(damage) = fate {
                damage.strike(&mut block, self.setting.format);
            }
            if let (Some(ring), false) = (&mut self.ring, fate == Fate::Lost) {
                ring.space()[..bytes].copy_from_slice(&block);
                // The world asks sleeping readers at each of its steps.
                let _ = ring.commit(bytes);
            }
            let most_open = self.capacity() - self.setting.page_bytes as u64;
            self.links[link].left(now, (self.life, start, start + bytes as u64), fate, most_open);
            count += 1;
        }
        count
    }

    /// The e-link that is due first speaks; false where none is.
    fn speak(&mut self, now: Instant) -> bool {
        let burst = self.burst;
        let due = |(index, link): (usize, &Link)| Some((link.due(burst)?, link.next, index));
        let due = self.links.iter().enumerate().filter_map(due).min();
        let Some((_, _, index)) = due.filter(|&(due, ..)| due <= now) else { return false };
        let mut out = Vec::new();
        self.links[index].speak(now, &mut out);
        if self.links[index].has_said_enough() {
            self.links[index].flush(&mut out);
        }
        self.queue(index, &out);
        true
    }

    /// Blocks that have waited for long enough go as they are, in the end all; false where none do.
    fn flush(&mut self, now: Instant) -> bool {
        let mut any = false;
        for index in 0..self.links.len() {
            if self.links[index].flush_due(self.setting.flush_after).is_some_and(|due| due <= now) {
                let mut out = Vec::new();
                self.links[index].flush(&mut out);
                self.queue(index, &out);
                any = true;
            }
        }
        any
    }

    fn queue(&mut self, link: usize, blocks: &[u8]) {
        let blocks = blocks.chunks(self.setting.format.block_bytes());
        self.waiting.extend(blocks.map(|block| (link, block.to_vec())));
    }

    fn close_at_the_end(&mut self) {
        let is_over = self.waiting.is_empty() && self.links.iter().all(Link::is_over);
        if let (Some(ring), true, false) = (&mut self.ring, is_over, self.is_closed) {
            let _ = ring.close();
            self.is_closed = true;
        }
    }
}

impl Drive for Card {
    fn turn(&mut self, now: Instant) -> usize {
        let mut work = self.write_out(now);
        while self.waiting.is_empty() && now >= self.stalled_until && (self.speak(now) || self.flush(now)) {
            work += 1 + self.write_out(now);
        }
        self.close_at_the_end();
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        if !self.waiting.is_empty() {
            return None;
        }
        let flush_after = self.setting.flush_after;
        let speak = self.links.iter().filter_map(|link| link.due(self.burst));
        let flush = self.links.iter().filter_map(|link| link.flush_due(flush_after));
        Some(speak.chain(flush).min()?.max(self.stalled_until))
    }

    fn prepare_wait(&mut self) -> bool {
        let has_room = |ring: &mut RingWriter| !ring.space().is_empty();
        self.waiting.is_empty() || !self.ring.as_mut().is_some_and(has_room)
    }

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        false
    }
}

impl Machine for Card {}
