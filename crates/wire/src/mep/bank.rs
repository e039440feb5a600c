//! Raw banks: what a fragment consists of.

use super::MepError;

/// Bytes of a bank's header.
pub const BANK_HEADER_BYTES: usize = 8;
/// What every bank begins with.
pub const BANK_MAGIC: u16 = 0xCBCB;

/// A bank's padding ends where its length is a multiple of this.
const BANK_STEP: usize = 4;

/// A piece of a detector's data.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bank<'a> {
    /// What the data are.
    pub kind: u8,
    /// The version of their layout.
    pub version: u8,
    /// Which piece of the detector they are of.
    pub source: i16,
    /// The data, without header and padding.
    pub data: &'a [u8],
}

/// Goes through the banks of a fragment; ends with the first error.
#[derive(Clone, Debug)]
pub struct Banks<'a> {
    rest: &'a [u8],
}

impl<'a> Banks<'a> {
    /// The banks in these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self) -> Option<Bank<'a>> {
        let [m0, m1, l0, l1, kind, version, s0, s1] = *self.rest.first_chunk()?;
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        let data = self.rest.get(BANK_HEADER_BYTES..length)?;
        let (_, rest) = self.rest.split_at_checked(length.next_multiple_of(BANK_STEP))?;
        self.rest = rest;
        let source = i16::from_le_bytes([s0, s1]);
        (u16::from_le_bytes([m0, m1]) == BANK_MAGIC).then_some(Bank { kind, version, source, data })
    }
}

impl<'a> Iterator for Banks<'a> {
    type Item = Result<Bank<'a>, MepError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bank = self.take().ok_or(MepError::Bank);
        if bank.is_err() {
            self.rest = &[];
        }
        Some(bank)
    }
}

/// The source in the header of each bank, and the range of the bank in `bytes`, header and padding included. Ends at the first error.
pub fn bank_ranges(bytes: &[u8]) -> impl Iterator<Item = (u16, core::ops::Range<usize>)> + '_ {
    let mut banks = Banks::new(bytes);
    core::iter::from_fn(move || {
        let start = bytes.len() - banks.rest.len();
        let bank = banks.next()?.ok()?;
        Some((bank.source.cast_unsigned(), start..bytes.len() - banks.rest.len()))
    })
}

/// Appends a bank with its padding.
///
/// # Errors
/// [`MepError::Long`] where header and data are longer than 65,535 bytes; then nothing is appended.
pub fn encode_bank(bank: &Bank<'_>, out: &mut Vec<u8>) -> Result<(), MepError> {
    let length = u16::try_from(BANK_HEADER_BYTES + bank.data.len()).map_err(|_| MepError::Long)?;
    out.extend_from_slice(&BANK_MAGIC.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[bank.kind, bank.version]);
    out.extend_from_slice(&bank.source.to_le_bytes());
    out.extend_from_slice(bank.data);
    let padding = bank.data.len().next_multiple_of(BANK_STEP) - bank.data.len();
    out.extend_from_slice(&[0; BANK_STEP][..padding]);
    Ok(())
}
