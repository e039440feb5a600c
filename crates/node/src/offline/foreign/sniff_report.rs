//! What was sniffed, as one JSON object.

use super::{Sniffed, draft_text};
use ropewalk_flow::sniff::{Group, Guess, Meaning, PeerAccount, Transport};
use schemars::JsonSchema;
use serde::Serialize;

/// The schema of [`SniffReport`] as JSON: `docs/schema/sniff.json`.
pub const SNIFF_SCHEMA: &str = "ropewalk-sniff-1";

/// The structure found in unknown frames.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(title = "ropewalk sniff --json")]
pub struct SniffReport {
    /// The form's name and version.
    #[schemars(extend("const" = SNIFF_SCHEMA))]
    pub schema: &'static str,
    /// The frames of each destination.
    pub groups: Vec<GroupReport>,
    /// Packets of peers that were too many to be looked at.
    pub unheard: u64,
    /// Why the input is truncated; null if it is not.
    pub cut_off: Option<String>,
    /// Bytes of connections that a capture misses.
    pub missed_bytes: u64,
}

/// Peers that send to one place.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct GroupReport {
    /// The port; 0 of a file.
    pub port: u16,
    /// How frames arrived.
    pub transport: TransportReport,
    /// Who sends.
    pub peers: Vec<PeerReport>,
    /// Frames that were looked at.
    pub frames: u64,
    /// Bytes of the shortest of them.
    pub least_frame: usize,
    /// Bytes of the longest of them.
    pub most_frame: usize,
    /// What bytes may mean.
    pub guesses: Vec<GuessReport>,
    /// Bytes of streams and files that belong to no frame.
    pub unframed_bytes: u64,
    /// Why the draft may be wrong; without any it is right for all frames that were looked at.
    pub doubts: Vec<String>,
    /// A draft of the sources, in TOML; null where no frames were found.
    pub draft: Option<String>,
}

/// How frames arrived.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransportReport {
    /// In datagrams, each of which is a frame.
    Udp,
    /// As a stream, in which frames have no visible end.
    Tcp,
    /// As the bytes of a file, from the first one on.
    File,
}

/// A peer.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct PeerReport {
    /// Its address.
    pub from: String,
    /// Datagrams, or pieces of a stream as they were received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the shortest one.
    pub least_bytes: usize,
    /// Bytes of the longest one.
    pub most_bytes: usize,
    /// Packets in a second; 0 where all came at once.
    #[schemars(range(min = 0))]
    pub rate_hz: f64,
}

/// What some bytes may mean.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct GuessReport {
    /// What they may mean.
    pub meaning: MeaningReport,
    /// Bytes of the frame before it.
    pub at: usize,
    /// How many bytes it has.
    pub bytes: usize,
    /// Whether the first is the most significant one; null where that means nothing.
    pub is_big_endian: Option<bool>,
    /// The bits of the field; null for all.
    pub mask: Option<u64>,
    /// A clock's tick in nanoseconds; null of anything else.
    pub tick_ns: Option<f64>,
    /// The number of frames, or pairs of frames, in which it holds, out of `of`.
    pub holds: u64,
    /// The number of frames, or pairs of frames, examined.
    pub of: u64,
    /// The same for people.
    pub text: String,
}

/// What some bytes of a frame may mean.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeaningReport {
    /// How long the frame is.
    Length,
    /// Increases by one in each frame of a peer.
    FrameCounter,
    /// Constant, and now and then one more.
    SlowCounter,
    /// Increases with time.
    Clock,
    /// The value of another number in the previous frame.
    Before,
    /// Always the same bytes.
    Constant,
    /// Constant for a peer, and different between peers.
    Peer,
}

impl SniffReport {
    /// The same as numbers and texts.
    pub fn new(Sniffed { findings, cut_off, missed_bytes }: &Sniffed) -> Self {
        let groups = findings.groups.iter().map(group).collect();
        let cut_off = cut_off.as_ref().map(|cut_off| cut_off.why.clone());
        Self { schema: SNIFF_SCHEMA, groups, unheard: findings.unheard, cut_off, missed_bytes: *missed_bytes }
    }
}

fn group(group: &Group) -> GroupReport {
    let peer = group.peers.first().map(|account| account.peer);
    GroupReport {
        port: peer.map_or(0, |peer| peer.port),
        transport: match peer.map(|peer| peer.transport) {
            Some(Transport::Tcp) => TransportReport::Tcp,
            Some(Transport::File) => TransportReport::File,
            Some(Transport::Udp) | None => TransportReport::Udp,
        },
        peers: group.peers.iter().map(peer_report).collect(),
        frames: group.frames,
        least_frame: group.least_frame,
        most_frame: group.most_frame,
        guesses: group.guesses.iter().map(guess).collect(),
        unframed_bytes: group.unframed_bytes,
        doubts: group.doubts.iter().map(ToString::to_string).collect(),
        draft: draft_text(group),
    }
}

fn peer_report(account: &PeerAccount) -> PeerReport {
    PeerReport {
        from: account.peer.from.to_string(),
        packets: account.packets,
        bytes: account.bytes,
        least_bytes: account.least_bytes,
        most_bytes: account.most_bytes,
        rate_hz: account.rate(),
    }
}

fn guess(guess: &Guess) -> GuessReport {
    let (meaning, tick_ns) = match &guess.meaning {
        Meaning::Length(_) => (MeaningReport::Length, None),
        Meaning::FrameCounter { .. } => (MeaningReport::FrameCounter, None),
        Meaning::SlowCounter { .. } => (MeaningReport::SlowCounter, None),
        Meaning::Clock { tick, .. } => (MeaningReport::Clock, Some(*tick)),
        Meaning::Before { .. } => (MeaningReport::Before, None),
        Meaning::Constant { .. } => (MeaningReport::Constant, None),
        Meaning::Peer { .. } => (MeaningReport::Peer, None),
    };
    let (at, bytes) = match &guess.meaning {
        Meaning::Constant { at, bytes } => (*at, bytes.len()),
        _ => guess.number().map_or((0, 0), |number| (number.at as usize, usize::from(number.bytes))),
    };
    GuessReport {
        meaning,
        at,
        bytes,
        is_big_endian: guess.number().filter(|number| number.bytes > 1).map(|number| number.is_big_endian),
        mask: guess.number().and_then(|number| number.mask),
        tick_ns,
        holds: guess.holds,
        of: guess.of,
        text: guess.to_string(),
    }
}
