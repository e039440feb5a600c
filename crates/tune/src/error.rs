//! Why a setting or a card could not be read or written.

use std::io;
use std::path::PathBuf;

use crate::{Property, Right, RunningThread, Setting};

/// Why a setting could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The rights are missing.
    #[error("/{path}: permission denied; this needs {}: run it with sudo", right.needs())]
    NotAllowed {
        /// The file, without the leading slash.
        path: String,
        /// Who may.
        right: Right,
    },
    /// The rights are missing, and even root does not have them here.
    #[error(
        "/{path}: permission denied, even to root: in a container or network namespace it belongs to the host{}; \
         change it on the host", right.or_missing()
    )]
    NotHere {
        /// The file, without the leading slash.
        path: String,
        /// Who may.
        right: Right,
    },
    /// The file system is mounted read-only.
    #[error("/{path}: /{tree} is mounted read-only, as in most containers; change it on the host")]
    ReadOnly {
        /// The file, without the leading slash.
        path: String,
        /// Which file system.
        tree: &'static str,
    },
    /// The kernel takes no such value.
    #[error("/{path}: the kernel takes no value `{value}` there: it is out of range, or no value of this file")]
    OutOfRange {
        /// The file, without the leading slash.
        path: String,
        /// The value.
        value: String,
    },
    /// The machine does not have it.
    #[error("{0}: this machine has no such setting")]
    Missing(Setting),
    /// A path that is no setting.
    #[error("`{0}` is no setting: files below /proc/sys, /proc/irq and /sys are, and a path has no `..`")]
    Path(String),
    /// Another fault of a file.
    #[error("/{path}: {source}")]
    File {
        /// The file, without the leading slash.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// A thread cannot run there.
    #[error("{thread}: none of `{cpus}` is there for it; a container (cpuset) may have taken them away")]
    Cpus {
        /// The thread.
        thread: RunningThread,
        /// The CPUs.
        cpus: String,
    },
    /// A card's driver refused.
    #[error(transparent)]
    Card(#[from] CardError),
    /// The file of a recorded machine is damaged.
    #[error("{}: this is no record of a machine: {why}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl SettingError {
    /// The rights for a file are missing.
    pub(crate) fn denied(path: &str) -> Self {
        Self::denied_to(path, rustix::process::geteuid().is_root())
    }

    pub(crate) fn denied_to(path: &str, is_root: bool) -> Self {
        let (right, path) = (Right::of_file(path), path.to_owned());
        if is_root { Self::NotHere { path, right } } else { Self::NotAllowed { path, right } }
    }
}

/// Why a card could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// There is no such interface.
    #[error("there is no network interface `{0}`")]
    Unknown(String),
    /// The driver has no such property.
    #[error("{interface}: the driver cannot set the {property}")]
    Unsupported {
        /// The interface.
        interface: String,
        /// The property.
        property: Property,
    },
    /// The value is not valid for the property.
    #[error("{interface}: `{value}` is no value of the {property}")]
    Value {
        /// The interface.
        interface: String,
        /// The property.
        property: Property,
        /// The value.
        value: String,
    },
    /// The text is no size of a packet.
    #[error("{interface}: `{value}` is no MTU that it can have: write a number of bytes")]
    Mtu {
        /// The interface.
        interface: String,
        /// The value.
        value: String,
    },
    /// The kernel or the driver refused.
    #[error("{interface}: {source}{}", hint(source))]
    Refused {
        /// The interface.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What would help against what the system said.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; this needs CAP_NET_ADMIN: run it as root",
        _ => "",
    }
}
