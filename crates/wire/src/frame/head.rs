//! The head of a message: magic number, kind, length of the body.

/// Declares `Frame`, the eight bytes in front of every message: for the `Kind` in scope, with a magic number of three bytes and
/// a function that says how many bytes the body of a kind may have.
macro_rules! frame {
    ($magic:expr, $longest:expr) => {
        /// Bytes of a frame's head.
        pub const FRAME_BYTES: usize = 8;

        /// The head of a message.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub struct Frame {
            /// What follows.
            pub kind: Kind,
            /// Its length in bytes.
            pub body: u32,
        }

        impl Frame {
            /// The head's bytes.
            pub const fn to_bytes(self) -> [u8; FRAME_BYTES] {
                let ([m0, m1, m2], [a, b, c, d]) = ($magic, self.body.to_le_bytes());
                [m0, m1, m2, self.kind as u8, a, b, c, d]
            }

            /// Reads a head.
            ///
            /// # Errors
            /// [`FrameError::Magic`] where the bytes are something else, [`FrameError::Meaning`] for an unknown kind,
            /// [`FrameError::Long`] for a body that is too long.
            pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Self, FrameError> {
                let [m0, m1, m2, kind, a, b, c, d] = *bytes;
                if [m0, m1, m2] != $magic {
                    return Err(FrameError::Magic);
                }
                let kind = Kind::from_u8(kind).ok_or(FrameError::Meaning)?;
                let body = u32::from_le_bytes([a, b, c, d]);
                if body as usize > $longest(kind) { Err(FrameError::Long) } else { Ok(Self { kind, body }) }
            }
        }
    };
}
pub(crate) use frame;
