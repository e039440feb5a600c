//! What can be wrong with FED raw data.

/// What is wrong with an event or a file header.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrdError {
    /// The bytes end before the header or the event does.
    #[error("the bytes end before the event does: {needed} are needed")]
    Short {
        /// Bytes without which nothing more can be said.
        needed: usize,
    },
    /// The first word is none that is read here.
    #[error("FRD version {version}, and versions 3 to 6 are read")]
    Version {
        /// What stands in its place.
        version: u32,
    },
    /// The header of a file is none of version 1.
    #[error("the file's header is none of version 1, of 22 bytes")]
    FileHeader,
    /// The event's number does not fit into the header of its version.
    #[error("event number {event} does not fit into 32 bits; version 4 has room for 64")]
    EventNumber {
        /// The number.
        event: u64,
    },
    /// The data are longer than the header can say.
    #[error("{bytes} bytes of data are more than 32 bits can count")]
    Long {
        /// How many there are.
        bytes: usize,
    },
}
