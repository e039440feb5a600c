//! All formats by name.

use super::*;
use crate::framing::{
    Fields, Framing, Front, MOST_PIECES, Piece, PieceHead, PieceKey, Search, Splitter, Tick, Widths, Window,
};
use ropewalk_terms::Cause;

/// Which of a format's numbers is one more from frame to frame of a source, so that a gap is a loss.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Counting {
    /// None.
    Nothing,
    /// The event's.
    Events,
    /// The frame's own.
    Frames,
    /// The frame's place in its event.
    Places,
}

/// Declares the formats: each with its name, unit, counting, whether it travels in datagrams, and what it is.
macro_rules! formats {
    ($($variant:ident = $name:literal, $unit:expr, $counting:ident, datagrams: $datagrams:literal, $help:literal;)*) => {
        /// A format of somebody else.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ForeignFormat { $(#[doc = $help] $variant),* }

        impl ForeignFormat {
            /// All of them, those first that are least likely to be taken for another one.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name on the command line and in configurations.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// What it is, for people.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            /// Which of its numbers counts.
            pub const fn counting(self) -> Counting {
                match self { $(Self::$variant => Counting::$counting),* }
            }

            /// Whether it travels in datagrams alone: then a stream of bytes cannot be cut into its frames.
            pub const fn needs_datagrams(self) -> bool {
                match self { $(Self::$variant => $datagrams),* }
            }
        }

        impl Framing for ForeignFormat {
            #[inline]
            fn front(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Front {
                match self { $(Self::$variant => $unit.front(window, search)),* }
            }

            fn front_at_end(&self, window: &(impl Window + ?Sized), search: &mut Search) -> Option<Front> {
                match self { $(Self::$variant => $unit.front_at_end(window, search)),* }
            }

            #[inline]
            fn fields(&self, frame: &(impl Window + ?Sized)) -> Fields {
                match self { $(Self::$variant => $unit.fields(frame)),* }
            }

            fn checksum(&self, frame: &(impl Window + ?Sized)) -> Option<bool> {
                match self { $(Self::$variant => $unit.checksum(frame)),* }
            }

            fn piece(&self, datagram: &(impl Window + ?Sized)) -> Option<PieceHead> {
                match self { $(Self::$variant => $unit.piece(datagram)),* }
            }

            fn comes_in_pieces(&self) -> bool {
                match self { $(Self::$variant => $unit.comes_in_pieces()),* }
            }

            fn most(&self) -> usize {
                MOST_FRAME_BYTES
            }

            fn counts_together(&self) -> bool {
                match self { $(Self::$variant => $unit.counts_together()),* }
            }

            fn runs_free(&self) -> bool {
                match self { $(Self::$variant => $unit.runs_free()),* }
            }

            fn widths(&self) -> Widths {
                match self { $(Self::$variant => $unit.widths()),* }
            }

            fn tick(&self) -> Tick {
                match self { $(Self::$variant => $unit.tick()),* }
            }
        }

        impl Describe for ForeignFormat {
            fn looks_like(&self, first: &[u8]) -> bool {
                match self { $(Self::$variant => $unit.looks_like(first)),* }
            }

            fn describe(&self, frame: &[u8], to: &mut dyn Inspector) {
                match self { $(Self::$variant => $unit.describe(frame, to)),* }
            }

            fn goes_on(&self, frame: &[u8]) -> bool {
                match self { $(Self::$variant => $unit.goes_on(frame)),* }
            }

            fn is_filler(&self, skipped: &[u8]) -> bool {
                match self { $(Self::$variant => $unit.is_filler(skipped)),* }
            }

            fn announces(&self, frame: &[u8]) -> Option<Announced> {
                match self { $(Self::$variant => $unit.announces(frame)),* }
            }
        }
    };
}

formats! {
    Midas = "midas", midas::Midas, Events, datagrams: false, "MIDAS events with banks";
    Eudaq = "eudaq", eudaq::Eudaq, Events, datagrams: false, "EUDAQ2 native events";
    Dune = "dune", dune::Dune, Events, datagrams: false, "DUNE fragments, back to back";
    Atlas = "atlas", atlas::Atlas, Nothing, datagrams: false, "ATLAS full events, ROB fragments and what is between them";
    Mdf = "mdf", mdf::Mdf, Nothing, datagrams: false, "LHCb MDF records: whole events of raw banks";
    Frd = "frd", frd::Frd, Nothing, datagrams: false, "CMS FED raw data: whole events of FED fragments";
    Ferol = "ferol", cms::FerolBlocks, Events, datagrams: false, "CMS FEROL blocks";
    LhcbBanks = "lhcb-banks", lhcb::RawBanks, Nothing, datagrams: false, "LHCb raw banks, back to back";
    Ess = "ess", ess::Ess, Frames, datagrams: false, "ESS readout packets";
    Srs = "srs", srs::Srs, Frames, datagrams: true, "SRS datagrams with VMM3a hits";
    Ejfat = "ejfat", ejfat::Ejfat, Nothing, datagrams: true, "EJFAT segments";
    Alice = "alice", alice::Alice, Places, datagrams: false, "ALICE raw data pages (RDH version 7)";
    LhcbMep = "lhcb-mep", lhcb::Mep, Events, datagrams: false, "LHCb multi-event packets";
    Nscldaq = "nscldaq", nscldaq::Nscldaq, Nothing, datagrams: false, "NSCLDAQ ring items (version 11)";
    Artdaq = "artdaq", artdaq::Artdaq, Events, datagrams: false, "artdaq fragments (version 2), back to back";
    Fed = "fed", cms::FedFragments, Events, datagrams: false, "CMS FED fragments (S-LINK64), back to back";
}

impl ForeignFormat {
    /// The format of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// Which format a file that begins with these bytes is of, if that can be told.
    pub fn recognise(first: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| !format.needs_datagrams() && format.looks_like(first))
    }

    /// Which format a datagram is of, if that can be told.
    pub fn recognise_datagram(datagram: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.looks_like(datagram))
    }

    /// Whether its event numbers grow, but not one by one: they are the times of pulses.
    pub const fn numbers_grow(self) -> bool {
        matches!(self, Self::Ess)
    }

    /// The number of a run's first event, as the format's writers count.
    pub const fn first(self) -> u64 {
        match self {
            Self::Eudaq => 0,
            _ => 1,
        }
    }

    /// Whether an event may come in several frames that follow each other, each of them whole.
    pub const fn comes_in_several_frames(self) -> bool {
        matches!(self, Self::Alice | Self::Dune)
    }

    /// Whether its frames hold several events each, and fall apart ([`Splitter`]).
    pub const fn has_several_events(self) -> bool {
        matches!(self, Self::LhcbMep)
    }

    /// Whether each of its frames is a whole event, put together by whoever wrote it.
    pub const fn holds_whole_events(self) -> bool {
        matches!(self, Self::Midas | Self::Eudaq | Self::Atlas | Self::Nscldaq | Self::Mdf | Self::Frd)
    }

    /// The fragments in a frame that holds a whole event; none where the format does not tell them apart, or where the frame is
    /// no event.
    pub fn enclosed(self, frame: &[u8]) -> Option<Enclosed> {
        match self {
            Self::Mdf => mdf::enclosed(frame),
            Self::Frd => frd::enclosed(frame),
            _ => None,
        }
    }

    /// Its headers at fixed places, each with what it is the header of.
    pub const fn headers(self) -> &'static [(&'static str, &'static [Place])] {
        match self {
            Self::Midas => &[("event, then banks", midas::HEADER)],
            Self::Eudaq => &[("event", eudaq::HEADER)],
            Self::Dune => &[("fragment", dune::HEADER)],
            Self::Atlas => &[("fragment", atlas::HEADER)],
            Self::Mdf => &[("record", mdf::HEADER)],
            Self::Frd => &[
                ("file header", frd::FILE_HEADER),
                ("event of version 3", frd::VERSION_3),
                ("event of version 4", frd::VERSION_4),
                ("event of version 5 or 6", frd::VERSION_5),
            ],
            Self::Ferol => &[("block", cms::BLOCK_HEADER)],
            Self::LhcbBanks => &[("bank", lhcb::BANK_HEADER)],
            Self::Ess => &[("packet", ess::HEADER)],
            Self::Srs => &[("datagram", srs::HEADER)],
            Self::Ejfat => &[("load balancer", ejfat::BALANCER), ("reassembly", ejfat::HEADER)],
            Self::Alice => &[("page", alice::HEADER)],
            Self::LhcbMep => &[("packet", lhcb::MEP_HEADER)],
            Self::Nscldaq => &[("item", nscldaq::HEADER)],
            Self::Artdaq => &[("fragment", artdaq::HEADER)],
            Self::Fed => &[("first word", cms::HEADER), ("last word", cms::TRAILER)],
        }
    }

    /// How many events a whole frame holds.
    pub fn events_in(self, frame: &[u8]) -> u64 {
        match self {
            Self::LhcbMep => lhcb::packing(frame).into(),
            _ => 1,
        }
    }
}

/// A frame is one piece, but for formats whose frames hold several events.
impl Splitter for ForeignFormat {
    fn split(&self, frame: &(impl Window + ?Sized), pieces: &mut Vec<Piece>) -> Result<(), Cause> {
        if self.has_several_events() {
            return lhcb::Mep.split(frame, pieces);
        }
        let fields = self.fields(frame);
        let key = fields.event.map(PieceKey::Event).or(fields.time.map(PieceKey::Time)).ok_or(Cause::Malformed)?;
        debug_assert!(pieces.len() < MOST_PIECES, "one piece for each frame");
        pieces.push(Piece { key, offset: 0, length: frame.len() });
        Ok(())
    }
}
