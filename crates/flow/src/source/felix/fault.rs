//! What can go wrong on a card, and how often.

use crate::source::Random;
use core::str::FromStr;
use ropewalk_wire::felix::{BlockFormat, HEADER_BYTES, Status, SubChunkType, Trailer};

macro_rules! faults {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal,)*) => {
        /// A fault of an emulated card.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Fault { $($(#[doc = $help])* $name),* }

        /// Every fault: first those that strike a chunk, then those that strike a block.
        pub const FAULTS: &[Fault] = &[$(Fault::$name),*];

        impl Fault {
            /// Its name, which is promised to users.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// What it is, for users.
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
    /// Whether it strikes blocks rather than chunks.
    pub const fn strikes_blocks(self) -> bool {
        self as usize >= Self::LostBlock as usize
    }

    /// Whether it needs a stream: the memory of a card has a place for each block.
    pub const fn is_of_streams(self) -> bool {
        matches!(self, Self::LostBytes)
    }

    /// The flags of a chunk that it strikes.
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

    /// Strikes a whole block, and says how many bytes are left of it.
    pub(super) fn strike(self, block: &mut [u8], format: BlockFormat) -> usize {
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

/// Why a text says no share of a fault.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum FaultError {
    /// No fault has this name.
    #[error("there is no fault `{0}`; there are {names}", names = names())]
    Unknown(String),
    /// There is no share.
    #[error("a fault is NAME=SHARE, such as crc=0.001")]
    NoShare,
    /// The share is none.
    #[error("`{}` strikes a share of all {}: a number from 0 to 1, such as 0.001", .0.name(), struck(*.0))]
    Share(Fault),
    /// All shares are too much.
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
    /// A fault's share, 0 to 1.
    ///
    /// # Errors
    /// [`FaultError::Share`] where it is another number.
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

/// Which share of all chunks, or of all blocks, each fault strikes: none at first. At most one strikes a chunk, and one
/// a block.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Faults([f64; FAULTS.len()]);

impl Faults {
    /// These shares; of a fault that comes twice the last one counts.
    ///
    /// # Errors
    /// [`FaultError::Sum`] where they are more than all chunks, or more than all blocks.
    pub fn new(shares: impl IntoIterator<Item = FaultShare>) -> Result<Self, FaultError> {
        let mut all = Self::default();
        shares.into_iter().for_each(|FaultShare { fault, share }| all.0[fault as usize] = share);
        // Shares that people write are sums of decimals.
        let is_too_much = |of_blocks| all.of_kind(of_blocks).map(|(_, share)| share).sum::<f64>() > 1.0 + 1e-9;
        match [Fault::Missing, Fault::LostBlock].into_iter().find(|fault| is_too_much(fault.strikes_blocks())) {
            Some(fault) => Err(FaultError::Sum(fault)),
            None => Ok(all),
        }
    }

    /// The share of a fault.
    pub const fn of(&self, fault: Fault) -> f64 {
        self.0[fault as usize]
    }

    /// Those that strike something, of blocks or of chunks.
    fn of_kind(&self, of_blocks: bool) -> impl Iterator<Item = (Fault, f64)> {
        let all = FAULTS.iter().map(|&fault| (fault, self.of(fault)));
        all.filter(move |&(fault, share)| share > 0.0 && fault.strikes_blocks() == of_blocks)
    }

    /// Which fault strikes the next chunk, or the next block, if any does. One number is drawn whatever the shares are,
    /// so that all else that follows from the seed stays as it is.
    pub(super) fn draw(&self, of_blocks: bool, random: &mut Random) -> Option<Fault> {
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
    fn faults_are_read_and_what_is_none_is_told() {
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
