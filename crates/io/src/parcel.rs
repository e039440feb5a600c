//! Parcels: what one side of a process hands to the other as it is.

use std::any::Any;

/// An object on its way between two endpoints of one process, and how much room it takes in the send queue.
///
/// Whoever sends and whoever receives agree on its type; the endpoints look at the weight alone. An emptied parcel
/// may go back over the same connection and be filled again, so that nothing is allocated while data flow.
pub struct Parcel {
    content: Box<dyn Any + Send>,
    bytes: usize,
}

impl Parcel {
    /// A parcel that counts as so many bytes until the peer has taken it.
    pub fn new<T: Any + Send>(content: Box<T>, bytes: usize) -> Self {
        Self { content, bytes }
    }

    /// Bytes that it counts as.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is in it; the parcel itself where that is of another type.
    ///
    /// # Errors
    /// The parcel, untouched.
    pub fn open<T: Any>(self) -> Result<Box<T>, Self> {
        let Self { content, bytes } = self;
        content.downcast().map_err(|content| Self { content, bytes })
    }
}

impl core::fmt::Debug for Parcel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Parcel({} bytes)", self.bytes)
    }
}
