//! Blocks of a file, a FIFO or standard input.

use super::BlockInput;
use crate::offline::{ByteOrigin, OfflineError};
use ropewalk_wire::felix::BlockFormat;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl ByteOrigin {
    /// Its blocks, whose kind is found: the first ones are waited for. They end when `is_over` is set, if not before.
    ///
    /// # Errors
    /// Where it cannot be opened or read, or has no blocks.
    pub fn blocks(&self, is_over: &Arc<AtomicBool>) -> Result<BlockInput, OfflineError> {
        BlockInput::new(self.path(), self.open(is_over)?)
    }

    /// Its blocks, of a kind that is known: nothing is waited for.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn blocks_of_kind(&self, format: BlockFormat, is_over: &Arc<AtomicBool>) -> Result<BlockInput, OfflineError> {
        Ok(BlockInput::of_kind(self.path(), self.open(is_over)?, format))
    }
}
