//! Errors of setting up a run.

use ropewalk_config::Fault;
use ropewalk_engine::Refusal;
use ropewalk_host::MachineError;
use ropewalk_io::EndpointError;
use ropewalk_io::packet::PacketError;
use ropewalk_memory::PoolError;

/// Why a run could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Memory could not be obtained.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// A thread cannot run where the configuration wants it.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// An address, a directory, a file or a thread could not be obtained.
    #[error("{0}")]
    System(String),
    /// Another node refuses this one.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The configuration does not fit the request.
    #[error("{0}")]
    Unfit(String),
}

/// Why threads and pools cannot be placed as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The machine cannot be examined.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The configuration does not fit the machine; the fault names the key.
    #[error("{}", .0.message)]
    Unfit(Fault),
    /// The system refused what the machine should allow.
    #[error("{0}")]
    Refused(String),
}

pub(super) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> RunError {
    let what = what.into();
    move |error| RunError::System(format!("{what}: {error}"))
}

pub(super) fn endpoint(name: &str) -> impl FnOnce(EndpointError) -> RunError {
    let name = name.to_owned();
    move |error| RunError::System(format!("{name}: {error}"))
}

pub(super) fn packet_error(name: &str) -> impl FnOnce(PacketError) -> RunError {
    let name = name.to_owned();
    move |error| RunError::Unfit(format!("{name}: {error}"))
}

pub(super) fn unfit(error: impl std::fmt::Display) -> RunError {
    RunError::Unfit(format!("the filter cannot be used: {error}"))
}
