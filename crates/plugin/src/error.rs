//! What can be wrong with a plug-in before it has anything to do.

use std::path::PathBuf;

/// A plug-in cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// It cannot be loaded.
    #[error("{}: cannot be loaded: {why}; build it with `cc -shared -fPIC`, and give its path", path.display())]
    NotLoaded {
        /// The library.
        path: PathBuf,
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
    #[error("{}: is a plug-in of kind {kind}, and a splitter is of kind 1", path.display())]
    Kind {
        /// The library.
        path: PathBuf,
        /// What it says.
        kind: u32,
    },
    /// It was built for another version of the interface.
    #[error(
        "{}: was built for version {version} of the interface of splitters, and this is version 1: build it with the \
         ropewalk_splitter.h of this version", path.display()
    )]
    Version {
        /// The library.
        path: PathBuf,
        /// What it says.
        version: u32,
    },
    /// Its table is too short.
    #[error(
        "{}: its table has {size} bytes, and at least {needed} are needed: build it with the ropewalk_splitter.h of this \
         version, and begin the table with ROPEWALK_SPLITTER_HEAD", path.display()
    )]
    Size {
        /// The library.
        path: PathBuf,
        /// What it says.
        size: u32,
        /// What a splitter's table has.
        needed: usize,
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
