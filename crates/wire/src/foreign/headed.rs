//! Headers of frames: numbers at fixed places, frames with a marker at their beginning, and frames without one.

use super::{Describe, Inspector, MOST_FRAME_BYTES, Value, alice, artdaq, caen, cms, ess, eudaq, lhcb, midas, nscldaq};
use crate::framing::{Framing, Front, Part, Search, Window};
use crate::zeros::{self, Begin, Headed};
use ropewalk_terms::Cause;

/// A number in a header: its place and its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    name: &'static str,
    at: usize,
    /// Bytes of the word that holds it, 1 to 8.
    bytes: usize,
    is_big_endian: bool,
    /// The lowest of its bits in that word, and their number.
    low: u32,
    bits: u32,
    is_hex: bool,
}

impl Place {
    /// A number of `bytes` (1 to 8), lowest byte first.
    pub const fn little(name: &'static str, at: usize, bytes: usize) -> Self {
        assert!(0 < bytes && bytes <= 8, "a number has one to eight bytes");
        Self { name, at, bytes, is_big_endian: false, low: 0, bits: 8 * bytes as u32, is_hex: false }
    }

    /// A number of `bytes` (1 to 8), highest byte first.
    pub const fn big(name: &'static str, at: usize, bytes: usize) -> Self {
        Self { is_big_endian: true, ..Self::little(name, at, bytes) }
    }

    /// Only the bits `low .. low + bits` of the word.
    pub const fn bits(self, low: u32, bits: u32) -> Self {
        assert!(bits > 0 && low + bits <= 8 * self.bytes as u32, "the bits lie in the word");
        Self { low, bits, ..self }
    }

    /// Shown in hexadecimal: a bit pattern rather than a count.
    pub const fn hex(self) -> Self {
        Self { is_hex: true, ..self }
    }

    /// Its name for people.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Offset of its word from the header's beginning, in bytes.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// The number; `None` if the bytes end before it.
    #[inline]
    pub fn read(&self, window: &(impl Window + ?Sized)) -> Option<u64> {
        let mut bytes = [0; 8];
        let word = if self.is_big_endian {
            window.read(self.at, &mut bytes[8 - self.bytes..]).then(|| u64::from_be_bytes(bytes))?
        } else {
            window.read(self.at, &mut bytes[..self.bytes]).then(|| u64::from_le_bytes(bytes))?
        };
        Some(word >> self.low & self.mask())
    }

    const fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Reports it to an inspector, if present.
    pub(super) fn tell(&self, frame: &[u8], to: &mut dyn Inspector) {
        if let Some(number) = self.read(frame) {
            let value = if self.is_hex { Value::Hex(number) } else { Value::Number(number) };
            to.field(self.name, self.at, self.bytes, value);
        }
    }

    /// The notation of its word in the documentation: bytes, order, bits.
    #[cfg(test)]
    pub(super) fn type_text(&self) -> String {
        let order = match (self.bytes, self.is_big_endian) {
            (1, _) => "",
            (_, true) => "be",
            (_, false) => "le",
        };
        let bits = match (self.bits, self.bits as usize == 8 * self.bytes) {
            (_, true) => String::new(),
            (1, false) => format!(", bit {}", self.low),
            _ => format!(", bits {}-{}", self.low, self.low + self.bits - 1),
        };
        format!("u{}{order}{bits}", 8 * self.bytes)
    }
}

/// A header of `N` bytes as a value, to be encoded.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Header<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Header<N> {
    /// A header of zeros.
    pub const fn new() -> Self {
        Self([0; N])
    }

    /// Returns the header with another number at this place; excess bits are cut off.
    ///
    /// # Panics
    /// If the place lies behind the header.
    #[must_use]
    pub const fn with(mut self, place: Place, number: u64) -> Self {
        let mut index = 0;
        let mask = place.mask() << place.low;
        let number = number << place.low & mask;
        while index < place.bytes {
            let shift = 8 * if place.is_big_endian { place.bytes - 1 - index } else { index };
            let byte = &mut self.0[place.at + index];
            *byte = *byte & !((mask >> shift) as u8) | (number >> shift) as u8;
            index += 1;
        }
        self
    }
}

/// A frame of `bytes` bytes, if they are present and no more than the maximum.
pub(super) fn frame(window: &(impl Window + ?Sized), bytes: u64) -> Front {
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= MOST_FRAME_BYTES && bytes <= window.len() => Front::Frame { bytes },
        Ok(bytes) if bytes <= MOST_FRAME_BYTES => Front::Needs { bytes },
        _ => Front::Lost { cause: Cause::Oversize },
    }
}

/// No frame can begin before a marker: returns the number of bytes before the next one, checking every `step`th byte.
pub(super) fn skip_to<const N: usize>(
    window: &(impl Window + ?Sized),
    search: &mut Search,
    step: usize,
    is_marker: impl Fn([u8; N]) -> bool,
) -> Front {
    let mut at = step;
    while let Some(bytes) = window.array(at) {
        if is_marker(bytes) {
            break;
        }
        at += step;
    }
    // The bytes at `at` are a marker, or may become one.
    if at > window.len() {
        return Front::Needs { bytes: at };
    }
    search.skip(at, Cause::FramingLost)
}

/// A format whose frames begin with a length, and have no marker to search for after damage.
pub(super) trait Unmarked: Framing {
    /// This many zeros begin no frame.
    const ZEROS: usize;
    /// Number of bytes needed to judge a header.
    const HEADER: usize;

    /// The frame at the front of a stream without zeros.
    fn cut(&self, window: &(impl Window + ?Sized)) -> Front;

    /// Judges whether these bytes, at least [`Unmarked::HEADER`], may be the beginning of a frame.
    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged;

    /// Whether the bytes behind a frame confirm it.
    fn may_follow(&self, frame: &(impl Window + ?Sized), rest: &(impl Window + ?Sized)) -> bool {
        let _ = frame;
        zeros::leading(rest, Self::ZEROS) == Self::ZEROS || self.judge(rest) != Judged::No
    }
}

/// The result of judging a header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    /// No header.
    No,
    /// Possibly a header.
    Possible,
    /// Certainly a header: enough of its fields have their fixed values.
    Certain,
    /// A header if the whole frame is valid.
    IfWhole,
}

impl Judged {
    const fn certain_if(is_header: bool) -> Self {
        if is_header { Self::Certain } else { Self::No }
    }

    const fn possible_if(is_header: bool) -> Self {
        if is_header { Self::Possible } else { Self::No }
    }

    const fn whole_if(is_header: bool) -> Self {
        if is_header { Self::IfWhole } else { Self::No }
    }
}

/// Finds the element at the front of a stream. Zeros are skipped, and the next frame behind them must be credible.
#[inline]
pub(super) fn front<F: Unmarked>(format: &F, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
    if search.adrift {
        return zeros::resume(&Found(format), window, search);
    }
    if window.array(0) != Some([0]) {
        return format.cut(window);
    }
    match zeros::leading(window, F::ZEROS) {
        zeros if zeros == F::ZEROS => zeros::skip(window, F::ZEROS - 1, search),
        zeros if zeros == window.len() => Front::Needs { bytes: F::ZEROS },
        _ => format.cut(window),
    }
}

struct Found<'a, F>(&'a F);

impl<F: Unmarked> Headed for Found<'_, F> {
    fn begin(&self, window: &(impl Window + ?Sized)) -> Begin {
        if window.len() < F::HEADER {
            return Begin::Needs(F::HEADER);
        }
        let judged = self.0.judge(window);
        if judged == Judged::No {
            return Begin::No;
        }
        match self.0.cut(window) {
            Front::Needs { bytes } => Begin::Needs(bytes),
            Front::Frame { bytes } => match judged {
                Judged::Certain => Begin::Surely(bytes),
                Judged::IfWhole if is_right(self.0, &Part::new(window, 0, bytes)) => Begin::Surely(bytes),
                Judged::Possible => Begin::Perhaps(bytes),
                Judged::IfWhole | Judged::No => Begin::No,
            },
            Front::Skip { .. } | Front::Lost { .. } => Begin::No,
        }
    }

    fn follows(&self, window: &(impl Window + ?Sized), bytes: usize) -> Result<bool, usize> {
        let rest = Part::new(window, bytes, window.len() - bytes);
        if rest.len() < F::HEADER {
            return Err(bytes + F::HEADER);
        }
        Ok(self.0.may_follow(window, &rest))
    }
}

fn is_right(format: &impl Framing, frame: &(impl Window + ?Sized)) -> bool {
    format.checksum(frame).unwrap_or_else(|| format.fields(frame).flags == Default::default())
}

impl Unmarked for midas::Midas {
    /// An id of 0 whose banks have no header is no event.
    const ZEROS: usize = midas::HEADER_BYTES;
    const HEADER: usize = midas::HEADER_BYTES + 8;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::certain_if(midas::is_header(window))
    }
}

impl Unmarked for eudaq::Eudaq {
    /// The type is the hash of a name, and the version is 1 or more.
    const ZEROS: usize = 8;
    const HEADER: usize = eudaq::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(looks_like(self, window))
    }

    /// A nested event has the header of an event. The next event of a kind has the next number.
    fn may_follow(&self, frame: &(impl Window + ?Sized), rest: &(impl Window + ?Sized)) -> bool {
        let is_same = |place: Place| place.read(frame) == place.read(rest);
        let number = eudaq::EVENT.read(frame).map(|event| event + 1);
        [eudaq::TYPE, eudaq::STREAM, eudaq::EXTEND].into_iter().all(is_same) && eudaq::EVENT.read(rest) == number
    }
}

impl Unmarked for nscldaq::Nscldaq {
    const ZEROS: usize = 8;
    const HEADER: usize = nscldaq::HEADER_BYTES + 4;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(looks_like(self, window))
    }
}

impl Unmarked for artdaq::Artdaq {
    const ZEROS: usize = 8;
    const HEADER: usize = artdaq::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(looks_like(self, window))
    }
}

impl Unmarked for alice::Alice {
    const ZEROS: usize = 8;
    const HEADER: usize = alice::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::certain_if(looks_like(self, window) && alice::is_sound(window))
    }
}

impl Unmarked for ess::Ess {
    const ZEROS: usize = 8;
    const HEADER: usize = ess::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::certain_if(looks_like(self, window) && matches!(window.array(0), Some([0, 0 | 1])))
    }
}

impl Unmarked for super::cms::Frd {
    const ZEROS: usize = 4;
    const HEADER: usize = 40;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        if super::cms::begins_a_file(window) == Some(true) {
            return Judged::certain_if(looks_like(self, window));
        }
        Judged::whole_if(looks_like(self, window))
    }
}

impl Unmarked for cms::FerolBlocks {
    const ZEROS: usize = 8;
    const HEADER: usize = crate::ferol::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(looks_like(self, window))
    }
}

impl Unmarked for caen::Caen {
    /// The marker is in the first word.
    const ZEROS: usize = 4;
    const HEADER: usize = caen::HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::possible_if(caen::is_header(window))
    }

    fn may_follow(&self, frame: &(impl Window + ?Sized), rest: &(impl Window + ?Sized)) -> bool {
        zeros::leading(rest, Self::ZEROS) == Self::ZEROS || caen::may_follow(frame, rest)
    }
}

impl Unmarked for lhcb::Mep {
    const ZEROS: usize = 8;
    const HEADER: usize = crate::mep::MEP_HEADER_BYTES;

    fn cut(&self, window: &(impl Window + ?Sized)) -> Front {
        Self::cut(self, window)
    }

    fn judge(&self, window: &(impl Window + ?Sized)) -> Judged {
        Judged::whole_if(lhcb::has_events(window))
    }
}

/// Whether the format's recognition accepts these bytes.
fn looks_like<F: Unmarked + Describe>(format: &F, window: &(impl Window + ?Sized)) -> bool {
    const MOST: usize = 64;
    let mut bytes = [0; MOST];
    let length = MOST.min(window.len());
    let (first, _) = bytes.split_at_mut(length);
    window.read(0, first) && format.looks_like(first)
}
