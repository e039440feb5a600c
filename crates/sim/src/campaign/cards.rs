//! Link cards in the place of front ends: what they are, and what goes wrong with them.

use super::draw::Draw;
use super::fault::{Fault, Scheduled};
use super::place::Place;
use super::scenario::{Managers, SECOND_CALL, Scenario};
use super::schedule::{LONGEST, SHORTEST, moment};
use super::trouble::{Damage, Trouble};
use ropewalk_flow::readout::felix::{EventRule, NumberField};
use ropewalk_wire::felix::{BlockFormat, Status};
use ropewalk_wire::stream::{Balance, Policy, Share};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Which stream of the seed decides on cards.
const CARDS_STREAM: u64 = 407;
/// Which one on its subscribers, and which one on the hard cases of those.
const AUDIENCE_STREAM: u64 = 405;
const HARD_STREAM: u64 = 409;
/// Which one on e-links with heads of their own.
const HEADS_STREAM: u64 = 411;
/// The most faults of subscribers.
const MOST_OF_AUDIENCE: u64 = 10;
/// The most faults of a card.
const MOST: u64 = 14;

/// The card of a readout unit.
#[derive(Clone, PartialEq, Debug)]
pub struct CardSetting {
    /// Whose it is.
    pub readout: u16,
    /// How many of its sources, the first ones, are no e-links.
    pub streams: usize,
    /// The kind of its blocks.
    pub format: BlockFormat,
    /// Where its chunks say to which event they belong.
    pub rule: EventRule,
    /// The e-links from this one on, counted from 0, begin their chunks as ROD fragments instead.
    pub rods_from: usize,
    /// Bytes of a page of its ring.
    pub page_bytes: usize,
    /// Pages of its ring.
    pub pages: usize,
    /// Where the ring is full it waits; otherwise it loses blocks.
    pub waits: bool,
    /// A block that is not full leaves after this time.
    pub flush_after: Duration,
    /// Blocks that the readout unit decodes at once.
    pub blocks_per_batch: usize,
    /// Who subscribes to its chunks.
    pub subscribers: Vec<SubscriberSetting>,
    /// Bytes, and chunks, that wait for a subscriber.
    pub queue_bytes: u64,
    /// See above.
    pub queue_chunks: usize,
    /// Bytes in a subscriber's transport.
    pub transport_bytes: usize,
}

/// A subscriber of a card's chunks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SubscriberSetting {
    /// The first and the last of the card's e-links that it wants, counted from 0.
    pub first: u16,
    /// See above.
    pub last: u16,
    /// What becomes of what it is too slow for.
    pub policy: Policy,
    /// With whom it shares.
    pub share: Share,
    /// It gets one chunk in so many.
    pub one_in: u32,
    /// When it comes.
    pub comes: Duration,
}

impl SubscriberSetting {
    /// Wants all chunks of so many e-links, and must miss none.
    pub const fn usual(links: u16) -> Self {
        let (policy, share) = (Policy::BackPressure, Share::Alone);
        Self { first: 0, last: links - 1, policy, share, one_in: 1, comes: Duration::ZERO }
    }

    /// The e-links that it wants.
    pub(super) const fn links(&self) -> RangeInclusive<usize> {
        self.first as usize..=self.last as usize
    }
}

impl CardSetting {
    /// A card of moderate size, all of whose readout unit's sources are e-links.
    pub fn usual(readout: u16) -> Self {
        Self {
            readout,
            streams: 0,
            format: BlockFormat::WIDE,
            rule: EventRule::USUAL,
            rods_from: usize::MAX,
            page_bytes: 4 << 10,
            pages: 32,
            waits: true,
            flush_after: Duration::from_millis(1),
            blocks_per_batch: 8,
            subscribers: Vec::new(),
            queue_bytes: 64 << 10,
            queue_chunks: 1000,
            transport_bytes: 128 << 10,
        }
    }

    /// Where the chunks of its e-link number `link` say to which event they belong.
    pub const fn rule_of(&self, link: usize) -> EventRule {
        if link < self.rods_from { self.rule } else { EventRule::Rod }
    }

    /// Whether all who subscribe may lose chunks: then nobody of them ever keeps the card waiting.
    pub(super) fn has_monitors_alone(&self) -> bool {
        self.subscribers.iter().all(|one| one.policy == Policy::Drop)
    }

    /// Who subscribes, and how much room there is for that. A stream of its own.
    fn draw_subscribers(&mut self, draw: &mut Draw, links: u16, span: Duration) {
        let are_monitors = draw.one_in(2);
        let balance = draw.of(&[Balance::RoundRobin, Balance::ByEvent]);
        for _ in 0..draw.between(1, 4) {
            let first = draw.below(links.into()) as u16;
            let last = first + draw.below(u64::from(links - first)) as u16;
            let policy = if are_monitors || draw.one_in(3) { Policy::Drop } else { Policy::BackPressure };
            let is_member = draw.one_in(2);
            let all = SubscriberSetting::usual(links);
            let one_in = if draw.one_in(6) { 3 } else { 1 };
            let comes = if draw.one_in(3) { draw.time(Duration::from_micros(10), span) } else { Duration::ZERO };
            self.subscribers.push(if is_member {
                SubscriberSetting { policy, share: Share::Group(1, balance), comes, ..all }
            } else {
                SubscriberSetting { first, last, policy, one_in, comes, ..all }
            });
        }
        self.queue_bytes = draw.of(&[1 << 10, 8 << 10, 64 << 10]);
        self.queue_chunks = draw.of(&[4, 32, 1000]);
        self.transport_bytes = draw.of(&[16 << 10, 128 << 10]);
    }

    /// Nobody must miss anything, or nobody needs to; as many wait for everything at once as there is room for.
    fn set_all(&mut self, policy: Policy, share: Share, links: u16) {
        for one in &mut self.subscribers {
            *one = SubscriberSetting { policy, share, comes: one.comes, ..SubscriberSetting::usual(links) };
        }
    }

    /// Now and then a case that chance alone hardly ever makes. Returns what goes wrong in it, where the card's first
    /// subscriber is number `first`.
    fn draw_hard_case(&mut self, draw: &mut Draw, links: u16, first: u16, span: Duration) -> Vec<Scheduled> {
        let case = draw.below(8);
        if self.subscribers.is_empty() {
            return Vec::new();
        }
        let at = |draw: &mut Draw, least, most| span.mul_f64(draw.between(least, most) as f64 / 100.0);
        let slow = |subscriber, rate| Fault::SubscriberSlow { subscriber, rate: 1_u64 << rate };
        match case {
            // A monitor hardly reads for long, and all that the card has room for is little.
            0 | 1 => {
                self.set_all(Policy::Drop, Share::Alone, links);
                (self.page_bytes, self.pages) = ((4_usize << 10).next_multiple_of(self.format.block_bytes()), 4);
                self.transport_bytes = 1 << 10;
                let lasts = Duration::from_millis(draw.between(2000, 4000));
                let fault = slow(first, draw.between(4, 8));
                vec![Scheduled { at: at(draw, 0, 30), lasts, fault }]
            }
            // A member of a group becomes slow and dies, while another one stays.
            2 | 3 => {
                let share = Share::Group(1, draw.of(&[Balance::RoundRobin, Balance::ByEvent]));
                self.subscribers.resize(2, SubscriberSetting::usual(links));
                self.set_all(Policy::BackPressure, share, links);
                self.subscribers[0].comes = Duration::ZERO;
                (self.queue_bytes, self.queue_chunks, self.transport_bytes) = (8 << 10, 32, 512);
                let (begin, lasts) = (at(draw, 0, 20), Duration::from_secs(3));
                let dies = begin + at(draw, 20, 70);
                let fault = slow(first + 1, draw.between(6, 10));
                let killed = Fault::SubscriberKilled(first + 1);
                vec![
                    Scheduled { at: begin, lasts, fault },
                    Scheduled { at: dies, lasts: Duration::from_millis(draw.between(1, 500)), fault: killed },
                ]
            }
            // Who must miss nothing is slow when the run ends, and much comes at once.
            4 => {
                self.set_all(Policy::BackPressure, Share::Alone, links);
                (self.queue_bytes, self.queue_chunks, self.transport_bytes) = (1 << 10, 4, 1 << 10);
                (self.blocks_per_batch, self.pages) = (64, 64);
                let lasts = Duration::from_millis(draw.between(500, 2000));
                let fault = slow(first, draw.between(12, 16));
                vec![Scheduled { at: at(draw, 60, 100), lasts, fault }]
            }
            _ => Vec::new(),
        }
    }

    fn draw(draw: &mut Draw, readout: u16, sources: usize) -> Self {
        let kibibytes = BlockFormat::sized(draw.between(1, 4) as u16).expect("blocks have up to 64 KiB");
        let format = draw.of(&[BlockFormat::NARROW, BlockFormat::WIDE, kibibytes]);
        let rule =
            |offset, bytes, is_big_endian, mask| EventRule::Field(NumberField { offset, bytes, is_big_endian, mask });
        Self {
            streams: if draw.one_in(4) { draw.below(sources as u64) as usize } else { 0 },
            format,
            rule: draw.of(&[
                EventRule::USUAL,
                rule(4, 4, true, 0xffff_ffff),
                rule(1, 6, false, 0x00ff_ffff_ff00),
                rule(2, 4, true, 0x0fff_ffff),
            ]),
            page_bytes: draw.of(&[4_usize << 10, 16 << 10]).next_multiple_of(format.block_bytes()),
            pages: draw.of(&[4, 16, 64]),
            waits: !draw.one_in(3),
            flush_after: draw.time(Duration::from_micros(50), Duration::from_millis(20)),
            blocks_per_batch: draw.of(&[1, 8, 64]),
            ..Self::usual(readout)
        }
    }
}

impl Scenario {
    /// Whether some readout units have cards, and what goes wrong with those. A stream of its own. Not where a
    /// resynchronisation is declared: a chunk has no word for that.
    pub(super) fn draw_cards(&mut self) {
        let mut draw = Draw::new(self.seed, CARDS_STREAM);
        if self.trigger.is_some() || !draw.one_in(3) {
            return;
        }
        let certain = draw.below(self.readouts.into()) as u16;
        for readout in 0..self.readouts {
            if readout == certain || draw.one_in(3) {
                self.cards.push(CardSetting::draw(&mut draw, readout, self.sources_each()));
            }
        }
        // What a front end does wrong an e-link cannot; it has troubles of its own.
        // Its line to the readout unit is none: a builder unit's has the trouble in its place.
        let faults = std::mem::take(&mut self.faults).into_iter();
        let faults = faults.map(|one| {
            let fault = one.fault.redirected(|place| if self.is_on_card(place) { Place::Builder(0) } else { place });
            Scheduled { fault, ..one }
        });
        self.faults = faults.filter(|one| one.fault.places().iter().all(|&place| !self.is_on_card(place))).collect();
        let (mut heads, each) = (Draw::new(self.seed, HEADS_STREAM), self.sources_each());
        for card in &mut self.cards {
            if heads.one_in(4) {
                card.rods_from = heads.below(each as u64) as usize;
            }
        }
        let span = self.pace * self.events as u32;
        self.draw_audience(span);
        let begin = if let Managers::Standby(_) = self.managers { SECOND_CALL } else { Duration::ZERO };
        let mut before = Duration::ZERO;
        for _ in 0..draw.between(1, MOST) {
            let at = match draw.below(4) {
                // As the last events come, or shortly after.
                0 => span + draw.time(Duration::from_micros(10), Duration::from_millis(30)),
                _ => moment(&mut draw, span, before),
            };
            before = at;
            let (fault, is_lasting) = self.draw_fault_of_card(&mut draw);
            let lasts = if is_lasting { draw.time(SHORTEST, LONGEST) } else { Duration::ZERO };
            let begin = if draw.one_in(4) { Duration::ZERO } else { begin };
            self.faults.push(Scheduled { at: at + begin, lasts, fault });
        }
        self.faults.sort_by_key(|scheduled| scheduled.at);
    }

    /// Who subscribes to cards' chunks, and what becomes of them.
    fn draw_audience(&mut self, span: Duration) {
        let mut draw = Draw::new(self.seed, AUDIENCE_STREAM);
        let each = self.sources_each();
        for card in &mut self.cards {
            let links = each - card.streams.min(each);
            if draw.one_in(2) {
                card.draw_subscribers(&mut draw, links as u16, span);
            }
        }
        let (mut hard, mut first) = (Draw::new(self.seed, HARD_STREAM), 0);
        for card in &mut self.cards {
            let links = each - card.streams.min(each);
            self.faults.extend(card.draw_hard_case(&mut hard, links as u16, first, span));
            first += card.subscribers.len() as u16;
        }
        let count = self.cards.iter().map(|card| card.subscribers.len() as u64).sum::<u64>();
        let mut before = Duration::ZERO;
        for _ in 0..if count > 0 { draw.between(0, MOST_OF_AUDIENCE) } else { 0 } {
            let at = match draw.below(4) {
                0 => span + draw.time(Duration::from_micros(10), Duration::from_millis(30)),
                _ => moment(&mut draw, span, before),
            };
            before = at;
            let subscriber = draw.below(count) as u16;
            let fault = match draw.below(5) {
                0 => Fault::SubscriberKilled(subscriber),
                1 => Fault::SubscriberSleeps(subscriber),
                2 => Fault::SubscriberCutOff(subscriber),
                3 => Fault::SubscriberReset(subscriber),
                _ => Fault::SubscriberSlow { subscriber, rate: 1 << draw.between(12, 18) },
            };
            let lasts = draw.time(SHORTEST, LONGEST);
            let lasts = if matches!(fault, Fault::SubscriberReset(_)) { Duration::ZERO } else { lasts };
            self.faults.push(Scheduled { at, lasts, fault });
        }
    }

    fn draw_fault_of_card(&self, draw: &mut Draw) -> (Fault, bool) {
        let setting = &self.cards[draw.below(self.cards.len() as u64) as usize];
        let sources = self.sources_of(setting);
        let source = (sources.start as u64 + draw.below(sources.len() as u64)) as u16;
        let count = draw.between(1, 12);
        let flag = draw.of(&[Status::BUSY, Status::CRC, Status::ERROR, Status::TRUNCATED, Status::TIMED_OUT]);
        let trouble = match draw.below(20) {
            0 | 1 => Trouble::Dies,
            2 | 3 => Trouble::Stalls,
            4 => Trouble::LosesBlocks(draw.of(&[1, 2, 5, 31, 32, 70])),
            5 => Trouble::DamagesBlock(draw.of(&Damage::ALL)),
            6..12 => Trouble::Flags(flag),
            12 => Trouble::NeverEnds,
            13 | 14 => Trouble::NeverBegins,
            15 => Trouble::Oversize,
            16 => return (Fault::CardStalls(setting.readout), true),
            17 => return (Fault::CardBurst { card: setting.readout, count: draw.of(&[3, 20, 100]) }, false),
            18 => return (Fault::Slow(source), true),
            _ => {
                return (
                    draw.of(&[Fault::SendTwice { source, count }, Fault::Skip { source, count }, Fault::Jump(source)]),
                    false,
                );
            }
        };
        (Fault::Link { source, trouble }, trouble.is_lasting())
    }
}
