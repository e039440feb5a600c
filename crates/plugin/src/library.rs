//! A shared library with a plug-in in it.
#![allow(unsafe_code)]

use crate::error::PluginError;
use crate::table::{Plugin, Table};
use core::ffi::{c_char, c_void};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Room for the text by which a plug-in says why it cannot be created.
const ERROR_BYTES: usize = 1024;

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

/// What the system says of it, which stands behind the error's own words.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Library {
    /// Loads a library, which runs its constructors, and asks for its table.
    ///
    /// # Errors
    /// Where there is no such library, or no plug-in in it.
    pub fn open(path: &Path) -> Result<Self, PluginError> {
        // A bare name would be looked for where the system's libraries are.
        Self::open_copy(path, &std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }

    /// The same with a library of this path, of which a copy is loaded.
    pub(crate) fn open_copy(path: &Path, copy: &Path) -> Result<Self, PluginError> {
        let (whose, full) = (|| path.to_owned(), copy.to_owned());
        // SAFETY: the constructors of the library run. That they do no harm is the trust that its path in a configuration
        // states; whoever does not have it loads it in a process of its own.
        let library = unsafe { libloading::Library::new(&full) }.map_err(|error| PluginError::NotLoaded {
            path: whose(),
            full: full.clone(),
            why: words(&error),
        })?;
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

    /// Its table, where it is one of that kind.
    pub(crate) fn table<T: Table>(&self) -> Result<T, PluginError> {
        let (head, path, needed, kind) = (self.head(), self.path.clone(), size_of::<T>(), T::KIND);
        if head.kind != kind.number() {
            return Err(PluginError::Kind { path, said: head.kind, kind });
        }
        if head.version != kind.version() {
            return Err(PluginError::Version { path, version: head.version, kind });
        }
        if (head.size as usize) < needed {
            return Err(PluginError::Size { path, size: head.size, needed, kind });
        }
        // SAFETY: the table is of this kind and version, and at least as long as one, as its head says; a null function is
        // none.
        Ok(unsafe { self.table.cast::<T>().read_unaligned() })
    }

    /// The state that `create` makes: it gets the configuration, and room for a text of so many bytes that says why it cannot
    /// be done.
    pub(crate) fn state(
        &self,
        configuration: &str,
        create: impl FnOnce(*const c_char, *mut c_char, usize) -> *mut c_void,
    ) -> Result<*mut c_void, PluginError> {
        let configuration = CString::new(configuration).map_err(|_| PluginError::NotCreated {
            path: self.path.clone(),
            why: "there is a byte 0 in it, which ends texts in C".to_owned(),
        })?;
        let mut error = [0_u8; ERROR_BYTES];
        // The last byte stays zero: there is one more than it is told.
        let state = create(configuration.as_ptr(), error.as_mut_ptr().cast(), ERROR_BYTES - 1);
        if state.is_null() {
            let why = CStr::from_bytes_until_nul(&error).map(CStr::to_string_lossy).unwrap_or_default();
            return Err(PluginError::NotCreated { path: self.path.clone(), why: why.into_owned() });
        }
        Ok(state)
    }
}

/// A text that the library keeps; empty where there is none.
pub(crate) fn text(of: *const c_char) -> String {
    if of.is_null() {
        return String::new();
    }
    // SAFETY: texts of a library end with a zero and are there until its next function is called (the headers say so).
    unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned()
}
