//! The gateway: packets that sources push become sets of events, events go to the nodes of a farm, decisions come back.
//!
//! ```text
//!  sources                  Receiver (half)                              Sender (half)                     farm
//!  MEPs of N events     Assembly, one for each flow                 Farm, one for all flows               nodes
//!  ----------------> sender -> source, set of N events  --EventSet--> events wait, gathered, packed --Push-->
//!     any order      complete | timed out | crowded out               node with credit, sequence numbers
//!     any loss         ^                                   <--empty--   |            ^      <--Decisions, Credit--
//!                      |                                      sets      |            | silent: others get its events
//!  trigger <--state-- Throttle: is there room for what            decided|by default  (attempt + 1)
//!  (Trigger) <--MepRequest--  is on its way?                            +--> Stream: decisions in the order of events
//!                                                                       +--> accepted events, to storage
//! ```
//! Sources *push*: only the trigger can hold them back, through the throttle. So every missing, late or wrong packet is
//! counted by cause, and every set of events ends as complete, or as incomplete with the missing sources and their
//! causes. Packets stay where they were received ([`Payload`](ropewalk_memory::Payload)); events are gathered from them
//! during sending, as a list of pieces or by copy into a transmit buffer ([`PushBytes`]).
//!
//! The drive of one input queue runs to completion ([`Gateway`]):
//! 1. Call `on_packet` for every packet of a batch, `on_message` for every message of a node, with one `now` per batch.
//! 2. Call `turn(now, observe)`: finished sets move to the farm, `observe` sees each, and time-outs are handled.
//! 3. `while next_push(now)`: send `push_view()` to its node, then call `sent(now)`. If the transport has no room, stop: the
//!    same push is offered again.
//! 4. Send `next_message(now)`: decision streams, progress for nodes, the throttle's state, requests to the trigger.
//! 5. `while next_stored()`: pass `stored_view()` to storage, then call `stored()`.
//! 6. Sleep until packets, messages or `next_deadline()`.
//!
//! For two threads, [`Gateway::split`] returns two halves: sets go from [`Receiver::take_set`] to [`Sender::on_set`],
//! empty ones back from [`Sender::take_empty`] to [`Receiver::give_back`], through queues of the drive. Several input
//! queues are several gateways of the same nodes: a node gives each its own credit, so nothing is shared.
//!
//! Files, in the order of the data flow: `sources` finds the source of a packet, `assembly` builds sets (`set`), `farm`
//! and `dispatch` send their events to nodes, or `local` shows them to a decider in this process, `lumisection`
//! accounts for ranges of events, `throttle` limits the trigger, and `queue` connects all parts. [`FarmNode`] emulates
//! a node.

mod account;
mod assembly;
mod config;
mod dispatch;
mod farm;
mod local;
mod lumisection;
mod node;
mod queue;
mod set;
mod sources;
#[cfg(test)]
mod tests;
mod throttle;

pub use account::{FarmAccount, FlowAccount, SourceAccount};
pub use assembly::Assembly;
pub use config::{
    DefaultDecision, FarmConfig, FlowConfig, GatewayConfig, GatewayConfigError, Incomplete, Output, PacketSource,
};
pub use dispatch::PushBytes;
pub use farm::Farm;
pub use local::LocalCounts;
pub use lumisection::{ClosedLumisection, LumisectionTotals};
pub use node::{FarmNode, FarmNodeConfig, ReceivedEvent};
pub use queue::{Gateway, Outgoing, Receiver, Sender};
pub use set::{Ending, EventSet, FragmentPlaces, GatheredEvent};
pub use sources::{Address, Masking, Recount};
pub use throttle::{Level, Naming, ReceiveQueue, Throttle, ThrottleConfig, Trigger, TriggerConfig, headroom};
