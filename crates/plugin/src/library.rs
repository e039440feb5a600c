//! A shared library with a plug-in in it.
#![allow(unsafe_code)]

use crate::error::PluginError;
use crate::table::{KIND_SPLITTER, Plugin, SPLITTER_VERSION, SplitterTable};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A loaded library; it stays loaded as long as this is there.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    table: NonNull<Plugin>,
    /// Holds what `table` points to in memory.
    _library: libloading::Library,
}

// SAFETY: the table is constant data of the library (ropewalk_plugin.h), which this holds in memory, and nobody writes to it.
unsafe impl Send for Library {}
// SAFETY: as for `Send`; shared references only read it.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a library, which runs its constructors, and asks for its table.
    ///
    /// # Errors
    /// Where there is no such library, or no plug-in in it.
    pub fn open(path: &Path) -> Result<Self, PluginError> {
        let whose = || path.to_owned();
        // A bare name would be looked for where the system's libraries are.
        let full = std::path::absolute(path).unwrap_or_else(|_| whose());
        // SAFETY: the constructors of the library run. That they do no harm is the trust that its path in a configuration
        // states; whoever does not have it loads it in a process of its own.
        let library = unsafe { libloading::Library::new(&full) }
            .map_err(|error| PluginError::NotLoaded { path: whose(), why: error.to_string() })?;
        // SAFETY: ropewalk_plugin.h gives the function of this name this type.
        let function = unsafe { library.get::<unsafe extern "C" fn() -> *const Plugin>(b"ropewalk_plugin\0") }
            .map_err(|_| PluginError::NoTable { path: whose() })?;
        // SAFETY: it takes nothing; what it does is trusted as the constructors are.
        let table = unsafe { function() };
        let table = NonNull::new(table.cast_mut()).ok_or_else(|| PluginError::NoTable { path: whose() })?;
        Ok(Self { path: whose(), table, _library: library })
    }

    /// The path that it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it calls itself.
    pub fn name(&self) -> String {
        text(self.head().name)
    }

    fn head(&self) -> Plugin {
        // SAFETY: what `ropewalk_plugin` returns points to a table that begins with this struct and lives as long as the
        // library (ropewalk_plugin.h), which `self` holds in memory. All values of its fields are values of their types.
        unsafe { self.table.read_unaligned() }
    }

    /// Its table, where it is a splitter's.
    pub(crate) fn splitter(&self) -> Result<SplitterTable, PluginError> {
        let (head, path, needed) = (self.head(), self.path.clone(), size_of::<SplitterTable>());
        if head.kind != KIND_SPLITTER {
            return Err(PluginError::Kind { path, kind: head.kind });
        }
        if head.version != SPLITTER_VERSION {
            return Err(PluginError::Version { path, version: head.version });
        }
        if (head.size as usize) < needed {
            return Err(PluginError::Size { path, size: head.size, needed });
        }
        // SAFETY: the table is a splitter's of this version, and at least as long as one, as its head says; a null function
        // is none.
        Ok(unsafe { self.table.cast::<SplitterTable>().read_unaligned() })
    }
}

/// A text that the library keeps; empty where there is none.
pub(crate) fn text(of: *const core::ffi::c_char) -> String {
    if of.is_null() {
        return String::new();
    }
    // SAFETY: texts of a library end with a zero and are there until its next function is called (the headers say so).
    unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned()
}
