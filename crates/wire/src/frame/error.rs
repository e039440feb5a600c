//! What can be wrong with a message of any protocol here.

/// What is wrong with a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The bytes do not begin with the protocol's magic number.
    #[error("not a message of this protocol (wrong magic number)")]
    Magic,
    /// A kind, or another field, has no meaning here.
    #[error("a field holds a number without meaning")]
    Meaning,
    /// The body ends before its fields do.
    #[error("the message ends before its fields do")]
    Short,
    /// A list is longer than allowed, or the body is longer than its fields, or than allowed.
    #[error("the message is longer than allowed")]
    Long,
}
