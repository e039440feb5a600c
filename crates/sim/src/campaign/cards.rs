//! Link cards instead of front ends: what they are, what goes wrong with them, and what the referee knows of their
//! rings: what was taken from them, and when.

use super::fault::{Fault, FaultKind, LASTS, Place, Scheduled, moment, scheduled};
use super::machines::{Card, ReadoutMachine, Record};
use super::node::Node;
use super::recorder::{Inlet, Recorder};
use super::runner::{Broken, ensure};
use super::scenario::{Managers, SECOND_CALL, Scenario};
use super::world::World;
use ropewalk_engine::Drive;
use ropewalk_flow::readout::felix::{EventRule, NumberField};
use ropewalk_flow::source::Random;
use ropewalk_wire::felix::{BlockFormat, HEADER_BYTES, Status, SubChunkType, Trailer};
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

    /// Draws the subscribers, and how much room there is for them. A stream of its own.
    fn draw_subscribers(&mut self, draw: &mut Random, links: u16, span: Duration) {
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

    /// Gives all subscribers this policy and this share: as many wait for everything at once as there is room for.
    fn set_all(&mut self, policy: Policy, share: Share, links: u16) {
        for one in &mut self.subscribers {
            *one = SubscriberSetting { policy, share, comes: one.comes, ..SubscriberSetting::usual(links) };
        }
    }

    /// Now and then a case that chance alone hardly ever makes. Returns what goes wrong in it, where the card's first
    /// subscriber is number `first`.
    fn draw_hard_case(&mut self, draw: &mut Random, links: u16, first: u16, span: Duration) -> Vec<Scheduled> {
        let case = draw.below(8);
        if self.subscribers.is_empty() {
            return Vec::new();
        }
        let at = |draw: &mut Random, least, most| span.mul_f64(draw.between(least, most) as f64 / 100.0);
        let slow = |one, rate: u64| Fault::at(FaultKind::SubscriberSlow, Place::Subscriber(one)).with_number(1 << rate);
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
                let killed = Fault::at(FaultKind::SubscriberKilled, Place::Subscriber(first + 1));
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

    fn draw(draw: &mut Random, readout: u16, sources: usize) -> Self {
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
        let mut draw = Random::new(self.seed, CARDS_STREAM);
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
        let mut faults = std::mem::take(&mut self.faults);
        for fault in faults.iter_mut().map(|one| &mut one.fault).filter(|fault| fault.places.len() == 2) {
            let on_card = fault.places.iter_mut().filter(|place| self.is_on_card(**place));
            on_card.for_each(|place| *place = Place::Builder(0));
        }
        faults.retain(|one| !one.fault.places.iter().any(|&place| self.is_on_card(place)));
        self.faults = faults;
        let (mut heads, each) = (Random::new(self.seed, HEADS_STREAM), self.sources_each());
        for card in &mut self.cards {
            if heads.one_in(4) {
                card.rods_from = heads.below(each as u64) as usize;
            }
        }
        let span = self.pace * self.events as u32;
        self.draw_subscribers(span);
        let begin = if let Managers::Standby(_) = self.managers { SECOND_CALL } else { Duration::ZERO };
        let mut before = Duration::ZERO;
        for _ in 0..draw.between(1, MOST) {
            before = near_the_end(&mut draw, span, before);
            let fault = self.draw_fault_of_card(&mut draw);
            let mut fault = scheduled(&mut draw, before, fault, LASTS);
            fault.at += if draw.one_in(4) { Duration::ZERO } else { begin };
            self.faults.push(fault);
        }
        self.faults.sort_by_key(|scheduled| scheduled.at);
    }

    /// Who subscribes to cards' chunks, and what becomes of them.
    fn draw_subscribers(&mut self, span: Duration) {
        let mut draw = Random::new(self.seed, AUDIENCE_STREAM);
        let each = self.sources_each();
        for card in &mut self.cards {
            let links = each - card.streams.min(each);
            if draw.one_in(2) {
                card.draw_subscribers(&mut draw, links as u16, span);
            }
        }
        let (mut hard, mut first) = (Random::new(self.seed, HARD_STREAM), 0);
        for card in &mut self.cards {
            let links = each - card.streams.min(each);
            self.faults.extend(card.draw_hard_case(&mut hard, links as u16, first, span));
            first += card.subscribers.len() as u16;
        }
        let count = self.cards.iter().map(|card| card.subscribers.len() as u64).sum::<u64>();
        let mut before = Duration::ZERO;
        for _ in 0..if count > 0 { draw.between(0, MOST_OF_AUDIENCE) } else { 0 } {
            before = near_the_end(&mut draw, span, before);
            let subscriber = Place::Subscriber(draw.below(count) as u16);
            // All of the kinds that strike subscribers.
            let first = FaultKind::SubscriberKilled as usize;
            let kind = draw.of(&FaultKind::ALL[first..=FaultKind::SubscriberSlow as usize]);
            let rate = if kind == FaultKind::SubscriberSlow { 1 << draw.between(12, 18) } else { 0 };
            let lasts = draw.time(*LASTS.start(), *LASTS.end());
            let lasts = if kind.is_lasting() { lasts } else { Duration::ZERO };
            self.faults.push(Scheduled { at: before, lasts, fault: Fault::at(kind, subscriber).with_number(rate) });
        }
    }

    fn draw_fault_of_card(&self, draw: &mut Random) -> Fault {
        use FaultKind::*;
        let setting = &self.cards[draw.below(self.cards.len() as u64) as usize];
        let sources = self.sources_of(setting);
        let source = Place::Source((sources.start as u64 + draw.below(sources.len() as u64)) as u16);
        let count = draw.between(1, 12).cast_signed();
        let flagged = draw.of(&[ChunkBusy, ChunkCrc, ChunkError, ChunkTruncated, ChunkTimedOut]);
        let card = Place::Card(setting.readout);
        match draw.below(20) {
            0 | 1 => Fault::at(LinkDies, source),
            2 | 3 => Fault::at(LinkStalls, source),
            4 => Fault::at(BlockLost, source).with_number(draw.of(&[1, 2, 5, 31, 32, 70])),
            5 => Fault::at(BlockDamaged, source).with_number(draw.of(&[0, 1, 2, 3])),
            6..12 => Fault::at(flagged, source),
            12 => Fault::at(ChunkNeverEnds, source),
            13 | 14 => Fault::at(ChunkNeverBegins, source),
            15 => Fault::at(ChunkOversize, source),
            16 => Fault::at(CardStalls, card),
            17 => Fault::at(CardBurst, card).with_number(draw.of(&[3, 20, 100])),
            18 => Fault::at(Slow, source),
            _ => Fault::at(draw.of(&[SendTwice, Skip, Jump]), source).with_number(count),
        }
    }
}

/// When something goes wrong with a card or a subscriber; often as the last events come, or shortly after.
fn near_the_end(draw: &mut Random, span: Duration, before: Duration) -> Duration {
    match draw.below(4) {
        0 => span + draw.time(Duration::from_micros(10), Duration::from_millis(30)),
        _ => moment(draw, span, before),
    }
}

/// What is wrong with a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Damage {
    /// It does not begin with its symbol.
    StartOfBlock,
    /// Its last trailer has the type that no card writes.
    Undefined,
    /// Its last trailer's length ends inside the header.
    Padding,
    /// Its last trailer's length ends before the header.
    PastHeader,
}

impl Damage {
    /// All of them, by the number of [`FaultKind::BlockDamaged`].
    pub(super) const ALL: [Self; 4] = [Self::StartOfBlock, Self::Undefined, Self::Padding, Self::PastHeader];

    /// Damages a whole block.
    pub(super) fn strike(self, block: &mut [u8], format: BlockFormat) {
        let length = |bytes: usize| Trailer::new(SubChunkType::Both, bytes.min(0xffff) as u16, Status::GOOD);
        let trailer = match self {
            Self::StartOfBlock => return block[..HEADER_BYTES].iter_mut().for_each(|byte| *byte ^= 0xff),
            Self::Undefined => Trailer::new(SubChunkType::Undefined, 0, Status::GOOD),
            Self::Padding => length(format.block_bytes() - HEADER_BYTES),
            Self::PastHeader => length(if format.trailer_bytes() == 2 { 0x3ff } else { 0xffff }),
        };
        let word = trailer.to_word(format).to_le_bytes();
        let bytes = &word[word.len() - format.trailer_bytes()..];
        let end = block.len();
        block[end - bytes.len()..].copy_from_slice(bytes);
    }
}

/// A readout unit that can take what waits in a ring does so within this time: at the latest when it reports.
const SOON: Duration = Duration::from_millis(1100);

impl World {
    /// A life of a readout unit begins: its card gets a new ring.
    /// Returns the host that the subscribers of this card connect to.
    pub(super) fn attach_card(&mut self, readout: u16, machine: &mut ReadoutMachine) -> Option<u32> {
        let index = self.scenario.cards.iter().position(|card| card.readout == readout)?;
        let mut card = self.cards[index].machine.take()?;
        let host = card.attach(&self.site(), &self.readouts[usize::from(readout)].around, machine);
        let (first, count) = (self.first_of(&card.setting), card.setting.subscribers.len());
        for subscriber in &mut self.subscribers[first..first + count] {
            subscriber.machine.iter_mut().for_each(|machine| machine.ring = card.life());
        }
        // It has room now.
        self.cards[index].machine = Some(card);
        self.cards[index].wake();
        host
    }

    /// The ring that a card of this subscriber writes.
    pub(super) fn ring_of(&self, subscriber: usize) -> u64 {
        let cards = self.cards.iter().filter_map(Node::machine);
        let mut of = cards.filter(|card| {
            let first = self.first_of(&card.setting);
            (first..first + card.setting.subscribers.len()).contains(&subscriber)
        });
        of.next().map_or(0, Card::life)
    }

    /// What a source did with each event, by the source's own record.
    pub(super) fn record(&self, source: usize) -> Option<&Record> {
        match self.scenario.card_of(source) {
            Some((card, link)) => self.cards[card].machine().map(|card| card.record(link)),
            None => self.front_ends[source].machine().map(|front_end| &front_end.record),
        }
    }

    /// What arrived from a source.
    pub(super) fn inlet<'a>(&'a self, source: usize, recorder: &'a Recorder) -> Option<&'a Inlet> {
        match self.scenario.card_of(source) {
            Some((card, _)) => self.cards[card].machine().map(|card| &card.inlet),
            None => self.front_ends[source].hosts.first().and_then(|host| recorder.inlets.get(host)),
        }
    }

    /// Whether what a source wrote into this ring can still be taken from it.
    pub(super) fn is_present_ring(&self, source: usize, ring: u64) -> bool {
        let Some((card, _)) = self.scenario.card_of(source) else { return false };
        let readout = &self.readouts[usize::from(self.scenario.cards[card].readout)];
        readout.machine().is_some() && self.cards[card].machine().is_some_and(|card| card.life() == ring)
    }

    /// Notes how far readout units have read their cards' rings, and whether reading waits only for settled
    /// events to be released: a source's silence does not count then.
    pub(super) fn look_at_cards(&mut self) {
        let now = self.core.now();
        for node in &mut self.cards {
            let Some(card) = &mut node.machine else { continue };
            let readout = &mut self.readouts[usize::from(card.setting.readout)];
            // Wake a reader that has just looked in vain.
            let written = card.written();
            if written > std::mem::replace(&mut card.seen, written) {
                readout.wake();
            }
            let Some((input, machine)) = readout.machine().and_then(|one| Some((one.cards().next()?, one.machine())))
            else {
                continue;
            };
            let taken = input.handed_on() - card.handed_on;
            if taken > 0 {
                card.inlet.deliver(now, card.life(), taken);
                card.handed_on += taken;
            }
            let is_held_up = card.handed_on < card.written() || card.is_full();
            card.inlet.set_read(now, card.life(), !is_held_up || !machine.holds_settled());
            let each = self.scenario.sources_each();
            let sources = self.scenario.sources_of(&card.setting);
            let may_take = sources.clone().all(|source| machine.room(source % each) > 0);
            // A subscriber that must miss nothing may hold up everything; one that may lose chunks holds up nothing.
            let are_monitors = card.setting.subscribers.iter().all(|one| one.policy == Policy::Drop);
            let may_stand = !readout.is_up() || !are_monitors;
            let waits = card.handed_on < card.written() && may_take;
            let is_kept = card.is_full() && card.handed_on == card.written() && machine.held() == 0;
            let stands = !may_stand && (waits || is_kept && card.oldest_open(card.handed_on).is_none());
            card.stands_since = if stands { card.stands_since.or(Some(now)) } else { None };
            if !card.prepare_wait() {
                node.wake();
            }
        }
    }

    /// Checks that a readout unit with room takes what lies in its ring, and that each chunk counts as one.
    pub(super) fn watch_cards(&self) -> Result<(), Broken> {
        for card in self.cards.iter().filter_map(Node::machine) {
            let readout = &self.readouts[usize::from(card.setting.readout)];
            let Some(machine) = readout.machine() else { continue };
            let stands = card.stands_since.is_some_and(|since| self.core.now().since(since) > SOON);
            ensure!(Liveness, !stands;
                "{} does not take or keeps what its card wrote since {:?}", readout.around.place, card.stands_since)?;
            let is_over = card.is_closed() && card.handed_on == card.written();
            self.watch_tally(card, machine, is_over)?;
        }
        Ok(())
    }

    /// Every chunk that began counts once, as a fragment or as given up, and nothing else does.
    fn watch_tally(&self, card: &Card, readout: &ReadoutMachine, is_over: bool) -> Result<(), Broken> {
        let is_over = is_over && readout.cards().all(|input| input.is_ended());
        for (id, least, most, all) in card.tallies() {
            let Some(source) = readout.machine().source_index(id) else { continue };
            let received = readout.machine().account(source).received;
            let least = if is_over { all } else { least };
            ensure!(Ledger, (least..=most).contains(&received);
                "{received} chunks of source {id} count as received, and {least} to {most} came")?;
        }
        Ok(())
    }

    /// The most pages that may be out after the end: the one that is being written, and those that are still in use.
    pub(super) fn most_pages_out(&self, readout: u16) -> u64 {
        let card = self.scenario.cards.iter().position(|card| card.readout == readout);
        let Some(card) = card.and_then(|card| self.cards[card].machine()) else { return 0 };
        // A forced stop waits for nothing: pages that a builder unit did not take stay out until the process ends
        // (seed 52376).
        let readout = self.readouts[usize::from(readout)].machine();
        if self.scenario.end.is_forced() && readout.is_some_and(ReadoutMachine::has_unsent) {
            return u64::MAX;
        }
        // A subscriber that must miss nothing may have pages in its transport if it did not hear the end in time. For
        // one that may lose chunks, the last pages wait in its queue if its server went before it heard the end.
        let first = self.first_of(&card.setting);
        let is_untold =
            |subscriber: usize| self.journals[subscriber].borrow().last().is_some_and(|one| one.end.is_none());
        let mut subscribers = (first..).zip(&card.setting.subscribers);
        let may_hold = |(index, one): (usize, &SubscriberSetting)| match one.policy {
            Policy::BackPressure => self.has_left(index),
            Policy::Drop => is_untold(index),
        };
        if subscribers.any(may_hold) {
            return u64::MAX;
        }
        // A batch that was taken in part is still in use.
        let batch = (card.setting.blocks_per_batch * card.setting.format.block_bytes()) as u64;
        let begun = if card.handed_on < card.written() { batch } else { 0 };
        // So are chunks that end in it, however long before it they began.
        let done = card.handed_on.saturating_sub(begun);
        let from = card.oldest_open(done).unwrap_or(u64::MAX).min(done);
        let page = card.setting.page_bytes as u64;
        card.written().div_ceil(page) - from / page
    }
}
