//! The 32 bytes in front of every message.

use crate::frame::{FrameError, Reader, kinds};
use ropewalk_terms::{Epoch, Incarnation, NodeId, Role, RunNumber};

/// The length of a header in bytes.
pub const HEADER_BYTES: usize = 32;

/// The first four bytes of every message: `RWNM`.
pub const MAGIC: [u8; 4] = *b"RWNM";

kinds! {
    /// Who opens the connection, and in which version it speaks.
    Hello = 1,
    /// The hello is accepted.
    Welcome = 2,
    /// The hello is refused, with the reason; the connection closes.
    Refuse = 3,
    /// EVM to RU and BU: the run begins at this key.
    Start = 4,
    /// EVM to RU: which is the highest key that you have seen?
    QueryHighest = 5,
    /// RU to EVM: the answer.
    Highest = 6,
    /// EVM to RU: this is the last key of the run. RU to a new EVM: it was fixed before.
    StopAt = 7,
    /// EVM to RU: the trigger source started its numbering again.
    Resync = 8,
    /// RU to EVM: these events are held, everything up to a key is settled.
    Announce = 9,
    /// BU to EVM: room, absolute since this connection began.
    Credit = 10,
    /// EVM to BU: build these.
    Assign = 11,
    /// BU to RU: send these.
    Request = 12,
    /// RU to BU: here they are, or the cause why not.
    SuperFragments = 13,
    /// BU to EVM: these have reached the acknowledgement level.
    Acknowledge = 14,
    /// EVM to RU: forget these.
    Release = 15,
    /// EVM to BU: a readout unit came or went.
    ReadoutState = 16,
    /// A new EVM to RU and BU: say what you hold.
    Recover = 17,
    /// BU to a new EVM: assigned to me and not released yet.
    Unreleased = 18,
    /// BU to EVM: the verdict about a source's synchrony changed.
    Synchrony = 19,
    /// EVM to RU and BU: no event will come any more; close what you have open.
    Finish = 20,
    /// RU and BU to EVM: closed, all reports are sent. EVM to RU and BU: all is known, nobody needs to stay.
    Finished = 21,
    /// RU and BU to EVM: cumulative counters; also the heartbeat.
    Report = 22,
    /// BU to EVM: the configured policy wants the run to stop.
    StopRequest = 23,
    /// EVM to RU, to be kept for a successor, and RU to a new EVM: how all events below a key ended.
    Ended = 24,
    /// EVM to RU and BU: a lumisection begins. RU and BU to a new EVM: it had begun.
    Lumisection = 25,
    /// EVM to RU and BU: every event of a lumisection has ended. RU and BU to a new EVM: that was said.
    LumisectionEnd = 26,
    /// EVM to RU: a source takes part no longer, or again. RU to a new EVM: that was said.
    Mask = 27,
    /// RU to EVM: whether it waits for none of its sources, so that it wants to hear at once of events that others hold.
    Follows = 28,
    /// EVM to RU and BU: a parameter has another value from now on. RU to a new EVM: that was said.
    Set = 29,
    /// BU to EVM: which readout units' fragments are not in the records of events, ahead of what says how these ended.
    Lacking = 30,
}

/// The part that every message begins with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// Length of what follows, in bytes, payloads included.
    pub body: u32,
    /// The run that the message belongs to; 0 before the first.
    pub run: RunNumber,
    /// The event manager that the sender obeys (or is).
    pub epoch: Epoch,
    /// Who sends.
    pub sender: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
}

impl Header {
    /// The header's 32 bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = self.sender.role as u8;
        bytes[6..8].copy_from_slice(&self.sender.index.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.run.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`FrameError::Magic`] where the bytes are something else, [`FrameError::Meaning`] for an unknown
    /// kind or role.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let mut reader = Reader(bytes);
        if reader.bytes::<4>()? != MAGIC {
            return Err(FrameError::Magic);
        }
        let kind = Kind::from_u8(reader.u8()?).ok_or(FrameError::Meaning)?;
        let role = Role::from_u8(reader.u8()?).ok_or(FrameError::Meaning)?;
        let index = reader.u16()?;
        let body = reader.u32()?;
        let run = RunNumber(reader.u32()?);
        let epoch = Epoch(reader.u32()?);
        reader.u32()?;
        let incarnation = Incarnation(reader.u64()?);
        Ok(Self { kind, body, run, epoch, sender: NodeId { role, index }, incarnation })
    }
}
