//! A rejection that reaches the other side, over a transport without rejections.
//!
//! ```text
//!  connects                         accepts
//!     │── greeting ───────────────────►│ ConnectionRequested
//!     │◄── accepted or rejected ───────│
//!  Established, or Ended: Rejected
//! ```
//! Eight bytes each. A peer that does not greet in time, or sends other bytes, is no Ropewalk program: it is
//! disconnected without an answer.

use core::mem::replace;
use std::time::Duration;

use ropewalk_memory::{Owner, Pool, PoolConfig, PoolError, Slice};
use ropewalk_terms::Instant;

use crate::endpoint::{Peer, ServicePoint};

/// Bytes of a greeting message.
const WORD_BYTES: usize = 8;
/// Time-out of a greeting and its answer, together with everything before.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A greeting message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Word {
    Greeting,
    Accepted,
    Rejected,
}

impl Word {
    const ALL: [Self; 3] = [Self::Greeting, Self::Accepted, Self::Rejected];

    const fn bytes(self) -> &'static [u8; WORD_BYTES] {
        match self {
            Self::Greeting => b"RWHELLO1",
            Self::Accepted => b"RWACCEPT",
            Self::Rejected => b"RWREJECT",
        }
    }
}

/// The encoded greeting messages.
pub(super) struct Words([Slice; 3]);

impl Words {
    pub(super) fn new() -> Result<Self, PoolError> {
        let mut pool = Pool::new(PoolConfig::heap("hello", 4096, 1))?;
        let mut loan = pool.loan(Owner::SHARED).expect("the pool's only block");
        Ok(Self(Word::ALL.map(|word| loan.append(word.bytes()).expect("three words in a block"))))
    }

    pub(super) fn say(&self, word: Word) -> Slice {
        self.0[word as usize].clone()
    }
}

/// Stage of the greeting.
#[derive(Debug)]
pub(super) enum Stage {
    /// There is no greeting, or it is done: bytes are the user's.
    Done,
    /// Waits for the greeting.
    Accepting { service_point: ServicePoint, peer: Peer },
    /// The greeting has arrived, and the user has to answer.
    Requested,
    /// Waits for the answer.
    Connecting,
}

/// One end point's hello.
#[derive(Debug)]
pub(super) struct Hello {
    stage: Stage,
    word: [u8; WORD_BYTES],
    have: usize,
    pub(super) deadline: Option<Instant>,
}

impl Hello {
    /// An end point without a greeting.
    pub(super) const fn none() -> Self {
        Self { stage: Stage::Done, word: [0; WORD_BYTES], have: 0, deadline: None }
    }

    pub(super) const fn at(stage: Stage) -> Self {
        Self { stage, ..Self::none() }
    }

    /// Whether bytes are the user's.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Whether the user knows nothing of the end point yet.
    pub(super) const fn is_unknown(&self) -> bool {
        matches!(self.stage, Stage::Accepting { .. })
    }

    /// Whether the user has to answer.
    pub(super) const fn is_requested(&self) -> bool {
        matches!(self.stage, Stage::Requested)
    }

    /// Whether this side connects, and has to greet.
    pub(super) const fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Connecting)
    }

    /// Advances to the next stage, and returns the previous one.
    pub(super) fn pass(&mut self, next: Stage) -> Stage {
        (self.have, self.deadline) = (0, None);
        replace(&mut self.stage, next)
    }

    /// Takes bytes off the front. Returns the greeting message once it is complete, and `Err` if the bytes are invalid.
    pub(super) fn read(&mut self, slice: &mut Slice) -> Result<Option<Word>, ()> {
        let taken = slice.len().min(WORD_BYTES - self.have);
        self.word[self.have..self.have + taken].copy_from_slice(&slice[..taken]);
        slice.skip(taken);
        self.have += taken;
        if self.have < WORD_BYTES {
            return Ok(None);
        }
        Word::ALL.into_iter().find(|word| *word.bytes() == self.word).map(Some).ok_or(())
    }
}
