//! What the machine can do at most: small probes written straight on the system calls, the limits that stand
//! beside every measured figure.
//!
//! A probe does the least that the job demands and nothing else. Runs differ by a fifth and more, so a limit is
//! measured in the same run as what it limits, in turns.

pub mod chain;
pub mod machine;
pub mod memory;
pub mod mid_page;
pub mod packet;
pub mod pair;
pub mod scheduling;
pub mod sender;
pub mod touch;
pub mod walk;

pub use chain::tcp_chain;
pub use machine::{Machine, core_scaling, pin_to_cpu, thread_cpu_seconds};
pub use mid_page::{MID_PAGE, PlacedBytes};
pub use packet::{BARE_PROTOCOL, BarePackets, BareReceiver, Depth, Flood, deaf, timestamped};
pub use pair::{BareMechanism, Paced, PairConfig, PairFigures, PairSockets, Stopwatch, bare_pair, paced_pair};
pub use scheduling::schedule;
pub use sender::{SlinkConfig, SlinkSender, SlinkStream};
pub use walk::{WalkConfig, Walked, tcp_walk};
