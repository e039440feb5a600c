//! What the first bytes of a connection say: how it is framed, and whose it is.

use super::super::config::Format;
use ropewalk_terms::{Cause, SourceId};
use ropewalk_wire::ferol::{BlockError, BlockHeader};
use ropewalk_wire::generic::{GenericError, HELLO_BYTES, Hello};

/// The first bytes of a connection, as far as they have come: a block's header, a hello, or neither.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Too few bytes have come.
    Unfinished,
    /// It begins with a FEROL block of this source.
    Ferol(SourceId),
    /// It begins with this hello.
    Generic(Hello),
    /// Neither format begins like this. Known from the first bytes on, so that whoever says too little for a header is
    /// not waited for in vain.
    Nonsense(Cause),
}

impl Opening {
    /// So many bytes are enough, in both formats.
    pub const BYTES: usize = HELLO_BYTES;

    /// Looks at the first bytes, of which [`Opening::BYTES`] or fewer matter.
    pub fn read(first: &[u8]) -> Self {
        let beginning = &first[..first.len().min(4)];
        if !BlockHeader::may_begin_with(beginning) && !Hello::may_begin_with(beginning) {
            return Self::Nonsense(GenericError::Magic.cause());
        }
        let Some(header) = first.first_chunk() else { return Self::Unfinished };
        match (BlockHeader::parse(header), first.first_chunk().map(Hello::parse)) {
            (Ok(header), _) => Self::Ferol(header.source),
            (Err(BlockError::Signature), None) => Self::Unfinished,
            (Err(BlockError::Signature), Some(Ok(hello))) => Self::Generic(hello),
            (Err(BlockError::Signature), Some(Err(error))) => Self::Nonsense(error.cause()),
            (Err(error), _) => Self::Nonsense(error.cause()),
        }
    }

    /// Whose connection it is and how it is framed, where that is known.
    pub const fn identity(&self) -> Option<(SourceId, Format)> {
        match self {
            Self::Ferol(source) => Some((*source, Format::Ferol)),
            Self::Generic(hello) => Some((hello.source, Format::Generic)),
            Self::Unfinished | Self::Nonsense(_) => None,
        }
    }
}
