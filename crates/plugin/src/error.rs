//! What can be wrong with a plug-in before it has anything to do.

use crate::table::PluginKind;
use std::path::PathBuf;

/// A plug-in cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// It cannot be loaded.
    #[error(
        "{}: cannot be loaded from {}: {why}; build it with `cc -shared -fPIC`, and give its path", path.display(), full.display()
    )]
    NotLoaded {
        /// The library.
        path: PathBuf,
        /// Where it was looked for.
        full: PathBuf,
        /// What the system said.
        why: String,
    },
    /// It has no table.
    #[error("{}: has no function `ropewalk_plugin`, or it returns nothing: see bindings/c/ropewalk_plugin.h", path.display())]
    NoTable {
        /// The library.
        path: PathBuf,
    },
    /// Its table is that of another kind of plug-in.
    #[error("{}: is a plug-in of kind {said}, and a {} is of kind {}", path.display(), kind.name(), kind.number())]
    Kind {
        /// The library.
        path: PathBuf,
        /// What it says.
        said: u32,
        /// What was wanted.
        kind: PluginKind,
    },
    /// It was built for another version of the interface.
    #[error(
        "{}: was built for version {version} of the interface of {1}s, and this is version {2}: build it with the \
         ropewalk_{1}.h of this version", path.display(), kind.name(), kind.version()
    )]
    Version {
        /// The library.
        path: PathBuf,
        /// What it says.
        version: u32,
        /// What it is.
        kind: PluginKind,
    },
    /// Its table is too short.
    #[error(
        "{}: its table has {size} bytes, and at least {needed} are needed: build it with the ropewalk_{}.h of this \
         version, and begin the table with {}", path.display(), kind.name(), kind.head()
    )]
    Size {
        /// The library.
        path: PathBuf,
        /// What it says.
        size: u32,
        /// What a table of its kind has.
        needed: usize,
        /// What it is.
        kind: PluginKind,
    },
    /// It has no function that it must have.
    #[error("{}: its table has no function `{function}`", path.display())]
    Missing {
        /// The library.
        path: PathBuf,
        /// Its name.
        function: &'static str,
    },
    /// It refused its configuration.
    #[error("{}: does not take its `configuration`: {why}", path.display())]
    NotCreated {
        /// The library.
        path: PathBuf,
        /// What it said.
        why: String,
    },
}
