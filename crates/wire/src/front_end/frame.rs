//! The eight bytes in front of every message.

use crate::frame::{FrameError, frame, kinds};

/// The longest body of a message, in bytes: settings are a text that somebody wrote.
pub const LARGEST_BODY_BYTES: usize = 64 * 1024;

const MAGIC: [u8; 3] = *b"RWC";

kinds! {
    /// First word of a front end: who it is, and what it knows of a run.
    Hello = 1,
    /// The front end is taken in.
    Welcome = 2,
    /// It is not; the connection is closed.
    Refuse = 3,
    /// These are its settings, and there go its data.
    Configure = 16,
    /// The run begins.
    Start = 17,
    /// To the trigger source alone: triggers may come.
    Enable = 18,
    /// To the trigger source alone: no further trigger.
    Veto = 19,
    /// The run ends with this event.
    Stop = 20,
    /// Is anybody there?
    Ping = 21,
    /// To the trigger source alone: no trigger for now, since the run is paused.
    Hold = 22,
    /// To the trigger source alone: triggers may come again.
    Release = 23,
    /// It is configured, and its data connection stands.
    Ready = 32,
    /// It cannot do what it was told, and says why.
    Failed = 33,
    /// It is in the run.
    Started = 34,
    /// Triggers come from now on.
    Enabled = 35,
    /// No further trigger comes; what was issued.
    Vetoed = 36,
    /// Its data of the run have left.
    Stopped = 37,
    /// How it is.
    Status = 38,
    /// A slow reading.
    Report = 39,
    /// No trigger comes for now.
    Held = 40,
    /// Triggers come again.
    Released = 41,
}

/// The longest body of a message, in bytes.
const fn longest(_: Kind) -> usize {
    LARGEST_BODY_BYTES
}

frame!(MAGIC, longest);
