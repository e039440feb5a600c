//! A splitter in a process of its own: whatever it does there harms nobody else.
//!
//! ```text
//!  SplitterProcess                                                serve
//!    frames, copied to ---> memory that the process can only read ---> split
//!    answers, checked  <--- memory that it can write              <--- pieces, how many frames are done
//!    Ask, wake-up      <-------------- socket ---------------------->  asked for, ready
//! ```
//! Both memories cannot be made shorter or longer by anybody. The process is [confined](crate::confinement), and dies with the
//! thread that started it. Why it ended stands in a [`Journal`](crate::Journal).
//!
//! `parent`, `child` and `places` are the splitter's; what processes of other plug-ins have as well is `worker` on the one side
//! and `caller` on the other one, `greeting` and `region` between them; `words` are what it prints.

pub(crate) mod caller;
mod child;
pub(crate) mod greeting;
mod parent;
mod places;
pub(crate) mod region;
pub(crate) mod words;
pub(crate) mod worker;

pub use child::serve;
pub use parent::{ProcessConfig, Sight, SplitterProcess};
pub use words::print_with;

/// Frames that one crossing carries at most.
pub const MOST_FRAMES: usize = 32;
