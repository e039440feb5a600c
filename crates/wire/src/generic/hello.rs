//! The first 64 bytes of a connection: who sends.

use super::{GenericError, HELLO_BYTES, MAX_NAME_BYTES, VERSION, array_at};
use arrayvec::ArrayString;
use ropewalk_terms::SourceId;

const MAGIC: [u8; 4] = *b"RWHI";

/// The name of a front end.
pub type Name = ArrayString<MAX_NAME_BYTES>;

/// The name is too long or holds a zero byte.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a front end's name has at most 32 bytes, none of them zero")]
pub struct NameError;

/// What a hello says besides name and source. Bits without a meaning are kept and ignored.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HelloFlags(pub u16);

impl HelloFlags {
    /// Timestamps count from 1970-01-01T00:00:00Z; without it, from any start of the sender's choice.
    pub const UTC: Self = Self(1);

    /// Whether timestamps count from 1970-01-01T00:00:00Z.
    pub const fn has_utc(self) -> bool {
        self.0 & Self::UTC.0 != 0
    }
}

/// The begin of a connection.
///
/// ```text
///  0 "RWHI"   4 version u8   5 zero   6 flags u16   8 source id u32   12 zeros (4)
/// 16 name: UTF-8, filled up with zeros (32)         48 zeros (16)
/// ```
/// Receivers ignore what is to be zero: later versions may use it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Whose fragments follow.
    pub source: SourceId,
    /// What else there is to say.
    pub flags: HelloFlags,
    /// The front end's name, for people.
    pub name: Name,
}

impl Hello {
    /// A hello.
    ///
    /// # Errors
    /// Where the name is longer than [`MAX_NAME_BYTES`] or holds a zero byte.
    pub fn new(source: SourceId, flags: HelloFlags, name: &str) -> Result<Self, NameError> {
        if name.contains('\0') {
            return Err(NameError);
        }
        Ok(Self { source, flags, name: Name::from(name).map_err(|_| NameError)? })
    }

    /// Decodes a hello.
    ///
    /// # Errors
    /// [`GenericError::Magic`], [`GenericError::Version`] or [`GenericError::Name`].
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Result<Self, GenericError> {
        if array_at(bytes, 0) != MAGIC {
            return Err(GenericError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(GenericError::Version);
        }
        let name: [u8; MAX_NAME_BYTES] = array_at(bytes, 16);
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(MAX_NAME_BYTES);
        if name[end..].iter().any(|&byte| byte != 0) {
            return Err(GenericError::Name);
        }
        let text = core::str::from_utf8(&name[..end]).map_err(|_| GenericError::Name)?;
        Ok(Self {
            source: SourceId(u32::from_le_bytes(array_at(bytes, 8))),
            flags: HelloFlags(u16::from_le_bytes(array_at(bytes, 6))),
            name: Name::from(text).map_err(|_| GenericError::Name)?,
        })
    }

    /// Whether a hello can begin with these bytes: what a stream is not shows sooner than what it is.
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        bytes.iter().zip(MAGIC).all(|(&byte, expected)| byte == expected)
    }

    /// Encodes the hello.
    pub fn to_bytes(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.source.0.to_le_bytes());
        bytes[16..16 + self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes
    }
}
