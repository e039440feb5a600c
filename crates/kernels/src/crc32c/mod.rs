//! CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, initial value and final exclusive or 0xFFFFFFFF.
//!
//! Reflected means that a byte's least significant bit comes first; so does, read as a little-endian number, the
//! least significant bit of a word.

mod arithmetic;
mod table;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

/// A way to compute the CRC, for tests and measurements: [`crc32c`] chooses by itself.
#[derive(Copy, Clone)]
pub struct Crc32cKernel {
    /// The processor features that it uses, or `table`.
    pub name: &'static str,
    /// The remainder (without the final exclusive or) after more bytes.
    pub run: fn(remainder: u32, bytes: &[u8]) -> u32,
}

impl core::fmt::Debug for Crc32cKernel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(self.name)
    }
}

/// The kernels that this processor can run, the fastest first; the last one is the scalar twin.
pub fn crc32c_kernels() -> Vec<Crc32cKernel> {
    let table = Crc32cKernel { name: "table", run: table::update };
    #[cfg(target_arch = "x86_64")]
    return x86::kernels().into_iter().flatten().chain([table]).collect();
    #[cfg(not(target_arch = "x86_64"))]
    vec![table]
}

/// The CRC-32C of `bytes` appended to what gave `crc`; start with 0.
///
/// ```
/// use ropewalk_kernels::crc32c;
/// assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
/// assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xE306_9283);
/// ```
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    return !x86::update(!crc, bytes);
    #[cfg(not(target_arch = "x86_64"))]
    !table::update(!crc, bytes)
}
