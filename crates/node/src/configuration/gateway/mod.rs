//! Sections of systems whose sources push packets: gateways build events and forward them to a farm.

mod address;
mod check;
mod model;
#[cfg(test)]
mod tests;

pub use address::{Addresses, ListenAddress};
pub(crate) use check::FARM_PROTOCOL;
pub(super) use check::check;
pub use model::{
    Architecture, DefaultChoice, EmulateFarm, EmulateFlow, FarmSection, FlowSection, GatewaySection, Gathering,
    NodeOutage, ReceiveChoice, SendChoice, SourcesSection, TellSection, ThrottleSection, TransportChoice,
    TriggerNaming, TriggerSection,
};
