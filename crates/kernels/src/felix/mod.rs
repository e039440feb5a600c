//! FELIX blocks.

/// A sub-chunk of a block.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct SubChunk {
    /// Where its data begin.
    pub offset: u32,
    /// Its trailer, with the fields where trailers of 32 bits have them.
    pub trailer: u32,
}
