//! A layout, ready to be used.

use super::checksum::Check;
use super::compile;
use super::extent::Extents;
use super::front::Cut;
use super::number::{Constant, Field, Joined};
use super::pieces::PieceFields;
use super::quick::Quick;
use super::{Layout, LayoutError};
use crate::framing::{Fields, Framing, Front, PieceHead, Search, Tick, Widths, Window};
use crate::message::FragmentFlags;
use crate::zeros;
use ropewalk_terms::Cause;

/// A layout, compiled once: see the module's text.
#[derive(Debug)]
pub struct Plan {
    pub(super) layout: Layout,
    pub(super) cut: Cut,
    /// What the begin of a frame is known by, and the cause of what is skipped until it is found.
    pub(super) mark: Option<(Constant, Cause)>,
    /// What frames must have besides.
    pub(super) matches: Option<Constant>,
    /// The shortest and the longest frame.
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) event: Option<Joined>,
    pub(super) ticks: Option<Joined>,
    pub(super) seconds: Option<Field>,
    pub(super) tick: Tick,
    pub(super) source: Option<Field>,
    pub(super) demux: Option<Field>,
    pub(super) trigger_type: Option<Field>,
    pub(super) sequence: Option<Field>,
    pub(super) status: Option<Field>,
    pub(super) check: Option<Check>,
    pub(super) pieces: Option<PieceFields>,
    pub(super) quick: Option<Quick>,
    pub(super) extents: Extents,
}

impl Plan {
    /// Checks a layout and prepares everything.
    ///
    /// # Errors
    /// What is wrong with it, by key.
    pub fn compile(layout: &Layout) -> Result<Self, LayoutError> {
        compile::compile(layout)
    }

    /// What it was made of.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The shortest frame that has room for all fields, in bytes.
    pub const fn least(&self) -> usize {
        self.least
    }

    /// Whether frames come in datagrams, and not in a stream.
    pub const fn is_of_datagrams(&self) -> bool {
        self.layout.frame.is_of_datagrams()
    }

    /// How many bits of each frame in a stream are known before.
    pub fn mark_bits(&self) -> u32 {
        let bits = |constant: &Constant| constant.field().largest().count_ones();
        // An end that leads back to a begin says as much as a word.
        let trailer = if matches!(self.cut, Cut::Trailer { .. }) { u16::BITS } else { 0 };
        trailer + self.mark.as_ref().map_or(0, |(mark, _)| bits(mark)) + self.matches.as_ref().map_or(0, bits)
    }

    /// Whether frames of a stream end with bytes that are in no frame otherwise.
    pub const fn is_delimited(&self) -> bool {
        matches!(self.cut, Cut::Delimiter(_))
    }

    /// Whether frames say to which event they belong.
    pub const fn has_event(&self) -> bool {
        self.event.is_some()
    }

    /// Which of several boards a frame comes from, by the field that tells them apart; none where the layout has none.
    pub fn board_of(&self, frame: &(impl Window + ?Sized)) -> Option<u64> {
        self.demux.as_ref()?.read(frame)
    }

    /// The clock in ticks, or in nanoseconds where it has seconds as well.
    fn time(&self, ticks: u64, seconds: Option<u64>) -> u64 {
        let Some(seconds) = seconds else { return ticks };
        seconds.wrapping_mul(1_000_000_000).wrapping_add(self.tick.nanoseconds_of(ticks))
    }

    pub(super) fn flags(&self, bits: u64) -> FragmentFlags {
        let Some(status) = &self.layout.status else { return FragmentFlags::default() };
        let error = if bits & status.error == 0 { FragmentFlags::default() } else { FragmentFlags::STATUS_ERROR };
        if bits & status.busy == 0 { error } else { error.with(FragmentFlags::BUSY) }
    }

    /// What bytes say that are shorter than any frame: as far as it stands there.
    #[cold]
    fn fields_of_less(&self, bytes: &(impl Window + ?Sized)) -> Fields {
        let number = |field: &Option<Field>| field.as_ref()?.read(bytes);
        let joined = |joined: &Option<Joined>| joined.as_ref()?.read(bytes);
        Fields {
            event: joined(&self.event),
            time: joined(&self.ticks).map(|ticks| self.time(ticks, number(&self.seconds))),
            source: number(&self.source).map(|source| source as u32),
            trigger_type: number(&self.trigger_type).map(|kind| kind as u16),
            sequence: number(&self.sequence),
            flags: self.flags(number(&self.status).unwrap_or(0)),
            ..Fields::default()
        }
    }
}

impl Framing for Plan {
    #[inline]
    fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
        self.find_front(window, search)
    }

    fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
        let has_length = matches!(self.cut, Cut::Length(_) | Cut::Fixed);
        if has_length && self.is_like_zeros() {
            zeros::front_at_end(self, window, search)
        } else {
            self.trailed_at_end(window, search)
        }
    }

    #[inline]
    fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
        // Every frame that is as long as the shortest has all of them.
        if frame.len() < self.least {
            return self.fields_of_less(frame);
        }
        let number = |field: &Option<Field>| field.as_ref().map(|field| field.of(frame));
        let ticks = self.ticks.as_ref().map(|ticks| ticks.of(frame));
        Fields {
            event: self.event.as_ref().map(|event| event.of(frame)),
            time: ticks.map(|ticks| self.time(ticks, number(&self.seconds))),
            source: number(&self.source).map(|source| source as u32),
            trigger_type: number(&self.trigger_type).map(|kind| kind as u16),
            sequence: number(&self.sequence),
            flags: number(&self.status).map_or(FragmentFlags::default(), |bits| self.flags(bits)),
            ..Fields::default()
        }
    }

    fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
        self.check.as_ref().map(|check| check.is_right(frame))
    }

    #[inline(always)]
    fn plain(&self, bytes: &[u8]) -> Option<(usize, Fields)> {
        self.look_quickly(bytes)
    }

    #[inline]
    fn is_matched(&self, frame: &(impl Window + ?Sized)) -> bool {
        self.matches.as_ref().is_none_or(|matches| matches.is_in(frame))
    }

    fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
        self.pieces.as_ref()?.read(datagram)
    }

    fn comes_in_pieces(&self) -> bool {
        self.pieces.is_some()
    }

    fn most(&self) -> usize {
        self.most
    }

    fn board(&self) -> Option<u32> {
        self.layout.source.and_then(|source| source.is)
    }

    fn widths(&self) -> Widths {
        let width = |bits: Option<u32>| bits.map_or(64, |bits| bits as u8);
        let time = if self.seconds.is_some() { None } else { self.ticks.as_ref().map(Joined::bits) };
        Widths {
            event: width(self.event.as_ref().map(Joined::bits)),
            time: width(time),
            sequence: width(self.sequence.as_ref().map(Field::bits)),
        }
    }

    fn tick(&self) -> Tick {
        if self.seconds.is_some() { Tick::NANOSECOND } else { self.tick }
    }
}
