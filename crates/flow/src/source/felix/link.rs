//! One e-link of an emulated card, and the faults on it.

use super::{CHUNK_HEAD_BYTES, ChunkOrigin, EmulatedCardConfig, EmulatedLinkConfig};
use crate::readout::felix::EventHead;
use crate::source::{Random, Trigger, TriggerSequence};
use core::str::FromStr;
use core::time::Duration;
use ropewalk_terms::SourceId;
use ropewalk_wire::felix::{BlockFormat, Encoder, HEADER_BYTES, LARGEST_BLOCK_BYTES, Status, SubChunkType, Trailer};

/// Counts of a link's output, for external checks of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// Chunks of which something was written, with any flags, including those in blocks that were damaged or lost.
    pub chunks: u64,
    /// Bytes of these chunks.
    pub bytes: u64,
    /// Chunks of which nothing was written: missing ones, and those during an outage.
    pub lost: u64,
    struck: [u64; FAULTS.len()],
}

impl Injected {
    /// Returns how often a fault occurred.
    pub const fn struck(&self, fault: Fault) -> u64 {
        self.struck[fault as usize]
    }

    /// Adds the counts of another link.
    pub fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.struck.iter_mut().zip(other.struck).for_each(|(all, one)| *all += one);
    }
}

/// The state of the card that a link needs.
pub(super) struct Card<'a> {
    pub(super) config: &'a EmulatedCardConfig,
    /// Bytes of all blocks that the card has written.
    pub(super) written: u64,
    /// Whether a link may stall now: not all links do at once.
    pub(super) may_stall: bool,
}

#[derive(Clone, Debug)]
pub(super) struct EmulatedLink {
    config: EmulatedLinkConfig,
    triggers: TriggerSequence,
    next: Trigger,
    encoder: Encoder,
    random: Random,
    chunk: Vec<u8>,
    /// When the link has finished its last chunk.
    busy_until: Duration,
    /// When the block that is being filled got its first contents.
    open_since: Duration,
    /// The number of bytes that the whole card had written by then.
    open_at: u64,
    /// The link stalls until the whole card has written this many bytes.
    stalled_until: u64,
    /// Whether the last chunk was left without its end. A piece without a beginning would be taken for that end.
    is_open: bool,
    injected: Injected,
}

/// Returns the bytes of the longest chunk that a link may write.
pub(super) fn longest_chunk(config: &EmulatedCardConfig, link: &EmulatedLinkConfig) -> usize {
    let longest = link.size.largest().max(config.least_chunk_bytes) as usize;
    if config.faults.of(Fault::Oversize) > 0.0 { longest.max(oversize_bytes(config)) } else { longest }
}

/// Returns a length above what a reader of the card's longest chunks accepts: a chunk that fits into one block is never
/// too long.
fn oversize_bytes(config: &EmulatedCardConfig) -> usize {
    LARGEST_BLOCK_BYTES.max(config.most_chunk_bytes as usize) + 1
}

impl EmulatedLink {
    pub(super) fn new(link: EmulatedLinkConfig, card: &EmulatedCardConfig) -> Self {
        let mut triggers = TriggerSequence::new(card.seed, card.rate);
        Self {
            next: triggers.next_trigger(),
            triggers,
            encoder: Encoder::new(card.format, link.elink),
            random: Random::new(card.seed, u64::from(link.source.0) + 1),
            chunk: vec![0; longest_chunk(card, &link).max(CHUNK_HEAD_BYTES)],
            busy_until: Duration::ZERO,
            open_since: Duration::ZERO,
            open_at: 0,
            stalled_until: 0,
            is_open: false,
            injected: Injected::default(),
            config: link,
        }
    }

    /// Returns the source of its chunks.
    pub(super) const fn source(&self) -> SourceId {
        self.config.source
    }

    /// Returns its counts.
    pub(super) const fn injected(&self) -> &Injected {
        &self.injected
    }

    /// Returns the trigger that it waits for.
    pub(super) const fn next(&self) -> &Trigger {
        &self.next
    }

    /// Returns when its next chunk can come.
    pub(super) fn due(&self) -> Duration {
        self.next.at.max(self.busy_until)
    }

    /// Returns when the block that is being filled got its first contents, if it has any.
    pub(super) fn open_since(&self) -> Option<Duration> {
        (!self.encoder.is_empty()).then_some(self.open_since)
    }

    /// Whether the block that is being filled has had contents while the card wrote `bytes` bytes.
    pub(super) fn is_behind(&self, written: u64, bytes: u64) -> bool {
        !self.encoder.is_empty() && written - self.open_at >= bytes
    }

    /// Returns the position that the card must have reached before the link continues.
    pub(super) const fn stalled_until(&self) -> u64 {
        self.stalled_until
    }

    /// Writes the chunk of the next trigger, with its faults, into as many blocks as it needs.
    pub(super) fn speak(&mut self, card: &Card<'_>, out: &mut Vec<u8>) {
        let (config, from, due, trigger) = (card.config, out.len(), self.due(), self.next);
        let length = self.config.size.next(&mut self.random).max(config.least_chunk_bytes) as usize;
        let fault = config.faults.draw(false, &mut self.random).filter(|&fault| self.may_have(fault, card));
        if let Some(speed) = config.link_bytes_per_second {
            self.busy_until = due + Duration::from_secs_f64(length as f64 / speed);
        }
        self.next = self.triggers.next_trigger();
        let is_silent = card.written < self.stalled_until || self.config.outages.iter().any(|outage| outage.is_at(due));
        if is_silent {
            self.injected.lost += 1;
            return;
        }
        if let Some(fault) = fault {
            self.injected.struck[fault as usize] += 1;
        }
        if fault == Some(Fault::Missing) {
            self.injected.lost += 1;
            return;
        }
        if self.encoder.is_empty() {
            (self.open_since, self.open_at) = (due, card.written);
        }
        self.say(&trigger, length, fault, card, out);
        if out.len() > from {
            (self.open_since, self.open_at) = (due, card.written);
        }
        self.strike_blocks(from, &config.faults, out);
    }

    /// Whether a fault could be distinguished from others now.
    fn may_have(&self, fault: Fault, card: &Card<'_>) -> bool {
        match fault {
            Fault::Stalled => card.may_stall,
            Fault::NoFirst | Fault::TimedOut => !self.is_open,
            _ => true,
        }
    }

    /// Writes a chunk with its fault, if it has one.
    fn say(&mut self, trigger: &Trigger, length: usize, fault: Option<Fault>, card: &Card<'_>, out: &mut Vec<u8>) {
        let length = match fault {
            Some(Fault::Truncated | Fault::TimedOut) => {
                (length / 2).max(card.config.least_chunk_bytes.min(length as u32) as usize)
            }
            Some(Fault::Oversize) => oversize_bytes(card.config),
            Some(Fault::NoFirst | Fault::NoLast | Fault::Stalled) => CHUNK_HEAD_BYTES,
            _ => length,
        };
        let chunk = &mut self.chunk[..length];
        let EmulatedLinkConfig { source, rule, .. } = self.config;
        ChunkOrigin { source, number: trigger.number as u32 }.fill(chunk);
        let bunch_crossing = Some(trigger.bunch_crossing);
        rule.write(EventHead { number: trigger.number, bunch_crossing, trigger_type: 0 }, source.0, chunk);
        let mut piece = |kind| {
            let trailer = Trailer::new(kind, CHUNK_HEAD_BYTES as u16, Status::GOOD);
            self.encoder.sub_chunk(trailer, chunk, out);
        };
        match fault {
            Some(Fault::NoFirst) => piece(SubChunkType::Last),
            Some(Fault::NoLast | Fault::Stalled) => piece(SubChunkType::First),
            _ => self.encoder.chunk(chunk, fault.map_or(Status::GOOD, Fault::status), out),
        }
        self.is_open = matches!(fault, Some(Fault::NoLast | Fault::Stalled));
        self.injected.chunks += 1;
        self.injected.bytes += length as u64;
        match fault {
            Some(Fault::Silence) => self.encoder.time_out(out),
            Some(Fault::OutOfBand) => self.encoder.out_of_band(trigger.number as u32, out),
            Some(Fault::Stalled) => {
                self.encoder.time_out(out);
                self.stalled_until = card.written + card.config.ring_bytes;
            }
            _ => {}
        }
    }

    /// Applies the time-out of a block: the contents are written, with filler behind them.
    pub(super) fn time_out(&mut self, faults: &Faults, out: &mut Vec<u8>) {
        let from = out.len();
        self.encoder.time_out(out);
        self.strike_blocks(from, faults, out);
    }

    /// Applies faults to the blocks from `from` on, and compacts the remaining ones.
    fn strike_blocks(&mut self, from: usize, faults: &Faults, out: &mut Vec<u8>) {
        let format = self.encoder.format();
        let (bytes, mut kept) = (format.block_bytes(), from);
        for block in (from..out.len()).step_by(bytes) {
            out.copy_within(block..block + bytes, kept);
            let fault = faults.draw(true, &mut self.random);
            kept += fault.map_or(bytes, |fault| fault.strike(&mut out[kept..kept + bytes], format));
            if let Some(fault) = fault {
                self.injected.struck[fault as usize] += 1;
            }
            if fault == Some(Fault::SequenceGap) {
                self.encoder.set_sequence(self.encoder.header().sequence + 1);
            }
        }
        out.truncate(kept);
    }
}

macro_rules! faults {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal,)*) => {
        /// A fault of an emulated card.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Fault { $($(#[doc = $help])* $name),* }

        /// All faults: first those of chunks, then those of blocks.
        pub const FAULTS: &[Fault] = &[$(Fault::$name),*];

        impl Fault {
            /// Returns its name, which is stable for users.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Returns its description for users.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => concat!($($help),*)),* }.trim_ascii()
            }
        }
    };
}

faults! {
    /// The chunk is marked: the front end is busy (trailers of 16 bits have no place for that).
    Busy = "busy",
    /// The chunk is marked: the link's checksum is wrong.
    Crc = "crc",
    /// The chunk is marked: the link had an error.
    Error = "error",
    /// The chunk is marked: it was cut off, here to half of its length.
    Truncated = "truncated",
    /// The chunk's end does not come in time: a time-out cuts it to half of its length.
    TimedOut = "timed_out",
    /// The chunk never comes.
    Missing = "missing",
    /// The chunk's first piece is missing.
    NoFirst = "no_first",
    /// The chunk's last piece is missing.
    NoLast = "no_last",
    /// The chunk is longer than its reader allows.
    Oversize = "oversize",
    /// The chunk begins, and then its e-link is silent until the others have filled the card's memory.
    Stalled = "stalled",
    /// The rest of the block behind the chunk is filler with a time-out.
    Silence = "silence",
    /// A signal stands behind the chunk.
    OutOfBand = "out_of_band",
    /// The block is not written.
    LostBlock = "lost_block",
    /// A number is left out behind the block: one seems to be missing.
    SequenceGap = "sequence_gap",
    /// The block does not begin with its symbol.
    StartOfBlock = "start_of_block",
    /// A length in the block has the wrong padding.
    Padding = "padding",
    /// A length in the block reaches before its header.
    PastHeader = "past_header",
    /// A trailer in the block has the type that no card writes.
    UndefinedType = "undefined_type",
    /// The block's end is not written: what follows stands elsewhere than it should (streams alone: in the memory of a
    /// card every block has its place).
    LostBytes = "lost_bytes",
}

impl Fault {
    /// Whether it affects blocks rather than chunks.
    pub const fn strikes_blocks(self) -> bool {
        self as usize >= Self::LostBlock as usize
    }

    /// Whether it requires a stream: in the memory of a card every block has a fixed place.
    pub const fn is_of_streams(self) -> bool {
        matches!(self, Self::LostBytes)
    }

    /// Whether blocks of this format can have it.
    pub const fn is_possible_in(self, format: BlockFormat) -> bool {
        // The flag is a bit that trailers of 16 bits do not have.
        !matches!(self, Self::Busy) || format.trailer_bytes() > 2
    }

    /// Returns the flags of a chunk with this fault.
    pub(super) const fn status(self) -> Status {
        match self {
            Self::Busy => Status::BUSY,
            Self::Crc => Status::CRC,
            Self::Error => Status::ERROR,
            Self::Truncated => Status::TRUNCATED,
            Self::TimedOut => Status::TIMED_OUT.and(Status::TRUNCATED),
            _ => Status::GOOD,
        }
    }

    /// Damages a whole block. Returns how many of its bytes are left.
    fn strike(self, block: &mut [u8], format: BlockFormat) -> usize {
        let length = |bytes: usize| Trailer::new(SubChunkType::Both, bytes.min(0xFFFF) as u16, Status::GOOD);
        let trailer = match self {
            Self::LostBlock => return 0,
            Self::LostBytes => return block.len() / 2,
            Self::StartOfBlock => {
                block[2..HEADER_BYTES].fill(0);
                return block.len();
            }
            // So long that its data would begin in the header.
            Self::Padding => length(format.block_bytes() - HEADER_BYTES),
            Self::PastHeader => length(if format.trailer_bytes() == 2 { 0x3FF } else { 0xFFFF }),
            Self::UndefinedType => Trailer::new(SubChunkType::Undefined, 0, Status::GOOD),
            _ => return block.len(),
        };
        let word = trailer.to_word(format).to_le_bytes();
        let bytes = &word[word.len() - format.trailer_bytes()..];
        let end = block.len();
        block[end - bytes.len()..].copy_from_slice(bytes);
        end
    }
}

/// The reason why a text is not the share of a fault.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum FaultError {
    /// No fault has this name.
    #[error("there is no fault `{0}`; there are {names}", names = names())]
    Unknown(String),
    /// The share is missing.
    #[error("a fault is NAME=SHARE, such as crc=0.001")]
    NoShare,
    /// The share is not a number from 0 to 1.
    #[error("`{}` strikes a share of all {}: a number from 0 to 1, such as 0.001", .0.name(), struck(*.0))]
    Share(Fault),
    /// The blocks cannot have this fault.
    #[error("`{}` is a bit of trailers of 32 bits; these blocks ({}) do not have it: choose `wide` blocks, or a size", .0.name(), .1)]
    Impossible(Fault, BlockFormat),
    /// The sum of the shares is above 1.
    #[error("the shares of all faults of {} are 1 at most together: no two strike the same", struck(*.0))]
    Sum(Fault),
}

fn names() -> String {
    FAULTS.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(", ")
}

const fn struck(fault: Fault) -> &'static str {
    if fault.strikes_blocks() { "blocks" } else { "chunks" }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(name: &str) -> Result<Self, FaultError> {
        let known = FAULTS.iter().find(|fault| fault.name() == name);
        known.copied().ok_or_else(|| FaultError::Unknown(name.to_owned()))
    }
}

/// A fault, and the share of all chunks or blocks that it strikes, as `crc=0.001`.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct FaultShare {
    fault: Fault,
    share: f64,
}

impl FaultShare {
    /// Creates the share of a fault, 0 to 1.
    ///
    /// # Errors
    /// [`FaultError::Share`] if it is another number.
    pub fn new(fault: Fault, share: f64) -> Result<Self, FaultError> {
        if (0.0..=1.0).contains(&share) { Ok(Self { fault, share }) } else { Err(FaultError::Share(fault)) }
    }
}

impl FromStr for FaultShare {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (name, share) = text.split_once('=').ok_or(FaultError::NoShare)?;
        let fault = name.trim().parse()?;
        Self::new(fault, share.trim().parse().map_err(|_| FaultError::Share(fault))?)
    }
}

/// The share of all chunks, or of all blocks, that each fault affects: none by default. At most one fault affects a
/// chunk, and one a block.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Faults([f64; FAULTS.len()]);

impl Faults {
    /// Creates the faults with these shares. If a fault is repeated, the last share counts.
    ///
    /// # Errors
    /// [`FaultError::Sum`] if the shares sum up to more than all chunks, or more than all blocks.
    pub fn new(shares: impl IntoIterator<Item = FaultShare>) -> Result<Self, FaultError> {
        let mut all = Self::default();
        shares.into_iter().for_each(|FaultShare { fault, share }| all.0[fault as usize] = share);
        // The tolerance is for sums of decimals.
        let is_too_much = |of_blocks| all.of_kind(of_blocks).map(|(_, share)| share).sum::<f64>() > 1.0 + 1e-9;
        match [Fault::Missing, Fault::LostBlock].into_iter().find(|fault| is_too_much(fault.strikes_blocks())) {
            Some(fault) => Err(FaultError::Sum(fault)),
            None => Ok(all),
        }
    }

    /// Checks that blocks of this format can have all of the faults.
    ///
    /// # Errors
    /// [`FaultError::Impossible`] with the first fault that they cannot have.
    pub fn check(&self, format: BlockFormat) -> Result<(), FaultError> {
        let is_impossible = |fault: &&Fault| self.of(**fault) > 0.0 && !fault.is_possible_in(format);
        match FAULTS.iter().find(is_impossible) {
            Some(&fault) => Err(FaultError::Impossible(fault, format)),
            None => Ok(()),
        }
    }

    /// Returns the share of a fault.
    pub const fn of(&self, fault: Fault) -> f64 {
        self.0[fault as usize]
    }

    /// Returns the faults with a share above 0, of blocks or of chunks.
    fn of_kind(&self, of_blocks: bool) -> impl Iterator<Item = (Fault, f64)> {
        let all = FAULTS.iter().map(|&fault| (fault, self.of(fault)));
        all.filter(move |&(fault, share)| share > 0.0 && fault.strikes_blocks() == of_blocks)
    }

    /// Draws the fault of the next chunk, or of the next block, if there is one. One random number is drawn for any
    /// shares, so that everything else that follows from the seed stays the same.
    fn draw(&self, of_blocks: bool, random: &mut Random) -> Option<Fault> {
        let mut rest = random.unit();
        self.of_kind(of_blocks).find_map(|(fault, share)| {
            rest -= share;
            (rest <= 0.0).then_some(fault)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(text: &str) -> FaultShare {
        text.parse().expect(text)
    }

    #[test]
    fn a_fault_that_blocks_have_no_place_for_is_refused() {
        for &fault in FAULTS {
            let faults = Faults::new([FaultShare::new(fault, 0.1).expect("a share")]).expect("a tenth");
            assert_eq!(faults.check(BlockFormat::NARROW).is_err(), fault == Fault::Busy, "{}", fault.name());
            assert_eq!(faults.check(BlockFormat::WIDE), Ok(()));
            assert_eq!(faults.check(BlockFormat::sized(1).expect("a size")), Ok(()));
        }
        let error = Faults::new([share("busy=0.1")]).expect("a tenth").check(BlockFormat::NARROW).expect_err("16 bits");
        assert!(
            error.to_string().starts_with("`busy` is a bit of trailers of 32 bits; these blocks (0xABCD: 1 KiB, "),
            "{error}"
        );
    }

    #[test]
    fn faults_are_read_and_unknown_ones_are_refused() {
        let faults = Faults::new(["crc=0.25", "lost_block = 1", "crc=0.5"].map(share)).expect("shares");
        assert_eq!([Fault::Crc, Fault::LostBlock, Fault::Busy].map(|fault| faults.of(fault)), [0.5, 1.0, 0.0]);
        for (text, words) in [
            ("bitrot=1", "there is no fault `bitrot`; there are busy, crc,"),
            ("crc", "such as crc=0.001"),
            ("crc=2", "`crc` strikes a share of all chunks: a number from 0 to 1"),
            ("padding=-1", "of all blocks: a number from 0 to 1"),
            ("crc=NaN", "from 0 to 1"),
            ("crc=often", "from 0 to 1"),
        ] {
            let error = text.parse::<FaultShare>().expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
        for fault in FAULTS {
            assert_eq!(fault.name().parse(), Ok(*fault));
            assert!(!fault.help().is_empty() && fault.help().ends_with('.'), "{fault:?}");
        }
    }

    #[test]
    fn no_more_than_everything_can_be_struck() {
        let tenths = FAULTS.iter().take(10).map(|&fault| FaultShare::new(fault, 0.1).expect("a share"));
        assert!(Faults::new(tenths).is_ok(), "ten tenths are one");
        assert_eq!(Faults::new(["crc=0.6", "missing=0.5"].map(share)), Err(FaultError::Sum(Fault::Missing)));
        assert_eq!(Faults::new(["padding=0.6", "lost_block=0.5"].map(share)), Err(FaultError::Sum(Fault::LostBlock)));
    }

    #[test]
    fn each_strikes_its_share() {
        let faults = Faults::new(["crc=0.2", "missing=0.05", "padding=0.5"].map(share)).expect("shares");
        let mut random = Random::new(4, 0);
        let mut struck = [0; FAULTS.len()];
        for _ in 0..20_000 {
            faults.draw(false, &mut random).into_iter().for_each(|fault| struck[fault as usize] += 1);
        }
        assert!((3800..4200).contains(&struck[Fault::Crc as usize]), "{struck:?}");
        assert!((900..1100).contains(&struck[Fault::Missing as usize]), "{struck:?}");
        assert_eq!(struck[Fault::Padding as usize], 0, "it strikes blocks");
    }
}
