//! The limits of the machine: small probes written directly on system calls. Every measured figure stands beside one.
//!
//! A probe does the minimum that the job requires. Runs differ by a fifth and more, so a limit is measured in the same
//! run as what it limits, in turns. The probes that `ropewalk doctor` needs are in `ropewalk-doctor` and re-exported
//! here.

pub mod chain;
pub mod machine;
pub mod packet;
pub mod pair;
pub mod scheduling;
pub mod touch;
pub mod walk;

pub use chain::tcp_chain;
pub use machine::Machine;
pub use packet::{BARE_PROTOCOL, BarePackets, BareReceiver, Depth, Flood, deaf, timestamped};
pub use pair::{BareMechanism, Paced, PairConfig, PairFigures, PairSockets, Stopwatch, bare_pair, paced_pair};
pub use ropewalk_doctor::emulated::{SlinkConfig, SlinkSender, SlinkStream};
pub use ropewalk_doctor::memory::{MID_PAGE, PlacedBytes};
pub use ropewalk_doctor::processor::{core_scaling, pin, pin_to_cpu, process_cpu_seconds, thread_cpu_seconds};
pub use scheduling::schedule;
pub use walk::{WalkConfig, Walked, tcp_walk};
