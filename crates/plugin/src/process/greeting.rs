//! What is said first between the two processes: each message is one packet of the socket.
//!
//! ```text
//!  greeting  memory u64 | sizes u64, as many as the kind has | starter's process u32 | length of the path u32 | path |
//!            configuration; with the descriptors of both memories                               -> process
//!  ready     "R" and what the system lacks, 1: seccomp, 2: landlock                             <- process
//!            or "E" and a text that says why not
//!  declares  "H", 3 bytes of nothing, bins u32, low f64, high f64, name: a histogram, before it is ready  <- process
//! ```
//! Numbers are little-endian.

use crate::confinement::Missing;
use ropewalk_flow::filter::{HistogramError, HistogramShape};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest greeting, in bytes.
pub(crate) const MOST_GREETING: usize = 64 << 10;
/// The longest text that says why the process is not ready.
pub(crate) const MOST_TEXT: usize = 4096;

/// What a process is told first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Greeting<const N: usize> {
    /// Bytes of memory that it may take beside the shared ones.
    pub(crate) memory: u64,
    /// What it must know to find its way in the shared memory.
    pub(crate) sizes: [u64; N],
    /// Who started it.
    pub(crate) starter: u32,
    pub(crate) library: PathBuf,
    pub(crate) configuration: String,
}

impl<const N: usize> Greeting<N> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let library = self.library.as_os_str().as_bytes();
        let mut out = self.memory.to_le_bytes().to_vec();
        self.sizes.iter().for_each(|size| out.extend_from_slice(&size.to_le_bytes()));
        out.extend_from_slice(&self.starter.to_le_bytes());
        out.extend_from_slice(&(library.len() as u32).to_le_bytes());
        out.extend_from_slice(library);
        out.extend_from_slice(self.configuration.as_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (memory, mut rest) = bytes.split_first_chunk()?;
        let mut sizes = [0; N];
        for size in &mut sizes {
            let (bytes, behind) = rest.split_first_chunk()?;
            (*size, rest) = (u64::from_le_bytes(*bytes), behind);
        }
        let (starter, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (library, configuration) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self {
            memory: u64::from_le_bytes(*memory),
            sizes,
            starter: u32::from_le_bytes(*starter),
            library: Path::new(&OsString::from_vec(library.to_vec())).to_owned(),
            configuration: String::from_utf8(configuration.to_vec()).ok()?,
        })
    }
}

/// The process is ready, and goes without that.
pub(crate) fn ready(missing: Missing) -> [u8; 2] {
    [b'R', u8::from(missing.seccomp) | u8::from(missing.landlock) << 1]
}

/// What a process goes without that is ready; `told` is what follows the letter.
pub(crate) fn missing_of(told: &[u8]) -> Missing {
    let bits = told.first().copied().unwrap_or(0);
    Missing { seccomp: bits & 1 != 0, landlock: bits & 2 != 0 }
}

/// Declares a histogram.
pub(crate) fn declaration(shape: &HistogramShape) -> Vec<u8> {
    let mut out = b"H\0\0\0".to_vec();
    out.extend_from_slice(&shape.bins().to_le_bytes());
    out.extend_from_slice(&shape.low().to_le_bytes());
    out.extend_from_slice(&shape.high().to_le_bytes());
    out.extend_from_slice(shape.name().as_bytes());
    out
}

/// The histogram that a message declares; none where it is another message, an error where there can be no such one.
pub(crate) fn declared(message: &[u8]) -> Option<Result<HistogramShape, HistogramError>> {
    let rest = message.strip_prefix(b"H")?.get(3..)?;
    let (bins, rest) = rest.split_first_chunk()?;
    let (low, rest) = rest.split_first_chunk()?;
    let (high, name) = rest.split_first_chunk()?;
    let name = String::from_utf8_lossy(name);
    Some(HistogramShape::new(&name, u32::from_le_bytes(*bins), f64::from_le_bytes(*low), f64::from_le_bytes(*high)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_as_it_was_written() {
        let (library, configuration) = (PathBuf::from("/lib/a b.so"), "threshold = 7 # \u{e4}".to_owned());
        let greeting = Greeting { memory: 1 << 40, sizes: [9000, u64::MAX], starter: 77, library, configuration };
        let bytes = greeting.encode();
        assert_eq!(Greeting::decode(&bytes), Some(greeting));
        assert!((0..43).all(|cut| Greeting::<2>::decode(&bytes[..cut]).is_none()), "one that is cut is none");
    }

    #[test]
    fn a_declaration_is_read_as_it_was_written_and_one_that_cannot_be_is_refused() {
        let shape = HistogramShape::new("sum of samples", 100, -1.5, 1e6).expect("there can be one");
        let message = declaration(&shape);
        assert_eq!(declared(&message), Some(Ok(shape)));
        assert!((0..24).all(|cut| declared(&message[..cut]).is_none()), "one that is cut is none");
        assert!(matches!(declared(&message[..24]), Some(Err(HistogramError::Name(_)))));
        assert_eq!(declared(b"R\0"), None);
    }

    #[test]
    fn what_is_missing_is_told() {
        for (seccomp, landlock) in [(false, false), (true, false), (false, true), (true, true)] {
            let missing = Missing { seccomp, landlock };
            assert_eq!(missing_of(&ready(missing)[1..]), missing);
        }
    }
}
