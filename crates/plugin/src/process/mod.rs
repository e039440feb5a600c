//! A splitter in a process of its own: whatever it does there harms nobody else.
//!
//! ```text
//!  SplitterProcess                                                serve
//!    frames, copied to ---> memory that the process can only read ---> split
//!    answers, checked  <--- memory that it can write              <--- pieces, how many frames are done
//!    Ask, wake-up      <-------------- socket ---------------------->  asked for, ready
//! ```
//! Both memories cannot be made shorter or longer by anybody. The process has no rights beyond those of its user (that of
//! nobody, where it was started by root), can start no other one, has a limit of memory, and dies with the thread that
//! started it.

mod child;
mod confinement;
mod greeting;
mod parent;
mod region;

pub use child::serve;
pub use parent::{ProcessConfig, Sight, SplitterProcess};

/// Frames that one crossing carries at most.
pub const MOST_FRAMES: usize = 32;
