//! Link cards in the place of front ends: what they are, and what goes wrong with them.

use super::draw::Draw;
use super::fault::{Fault, Scheduled};
use super::scenario::{Managers, SECOND_CALL, Scenario};
use super::schedule::{LONGEST, SHORTEST, moment};
use super::trouble::{Damage, Trouble};
use ropewalk_flow::readout::felix::EventRule;
use ropewalk_wire::felix::{BlockFormat, Status};
use std::time::Duration;

/// Which stream of the seed decides on cards.
const CARDS_STREAM: u64 = 404;
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
}

impl CardSetting {
    /// A card of moderate size, all of whose readout unit's sources are e-links.
    pub const fn usual(readout: u16) -> Self {
        Self {
            readout,
            streams: 0,
            format: BlockFormat::WIDE,
            rule: EventRule::USUAL,
            page_bytes: 4 << 10,
            pages: 32,
            waits: true,
            flush_after: Duration::from_millis(1),
            blocks_per_batch: 8,
        }
    }

    fn draw(draw: &mut Draw, readout: u16, sources: usize) -> Self {
        let kibibytes = BlockFormat::sized(draw.between(1, 4) as u16).expect("blocks have up to 64 KiB");
        let format = draw.of(&[BlockFormat::NARROW, BlockFormat::WIDE, kibibytes]);
        let rule = |offset, bytes, is_big_endian, mask| EventRule { offset, bytes, is_big_endian, mask };
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
        let faults = std::mem::take(&mut self.faults).into_iter();
        self.faults = faults.filter(|one| one.fault.places().iter().all(|&place| !self.is_on_card(place))).collect();
        let span = self.pace * self.events as u32;
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
