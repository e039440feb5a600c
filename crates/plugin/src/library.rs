//! A shared library with a plug-in: loading it, checking its table, and the errors of both.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_void};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Size of the buffer for a plug-in's error text, in bytes.
const ERROR_BYTES: usize = 1024;

/// A loaded library. It stays loaded until this value is dropped.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    table: NonNull<Plugin>,
    /// Keeps the memory that `table` points to.
    _library: libloading::Library,
}

// SAFETY: the table is constant data of the library (ropewalk_plugin.h), which this holds in memory, and is never
// written.
unsafe impl Send for Library {}
// SAFETY: as for `Send`; shared references only read it.
unsafe impl Sync for Library {}

/// The system's message about the library, appended to an error.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Library {
    /// Loads a library, which runs its constructors, and calls it for its table.
    ///
    /// # Errors
    /// If the library does not exist or contains no plug-in.
    pub fn open(path: &Path) -> Result<Self, PluginError> {
        // The loader would search a bare name in the system's library directories.
        Self::open_copy(path, &std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }

    /// Loads the copy of the library with this path.
    pub(crate) fn open_copy(path: &Path, copy: &Path) -> Result<Self, PluginError> {
        let (whose, full) = (|| path.to_owned(), copy.to_owned());
        // SAFETY: the constructors of the library run. A path in the configuration states the trust that they do no
        // harm; an untrusted library is loaded in a process of its own.
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

    /// The name that the plug-in gives itself.
    pub fn name(&self) -> String {
        text(self.head().name)
    }

    fn head(&self) -> Plugin {
        // SAFETY: what `ropewalk_plugin` returns points to a table that begins with this struct and lives as long as the
        // library (ropewalk_plugin.h), which `self` holds in memory. All values of its fields are values of their types.
        unsafe { self.table.read_unaligned() }
    }

    /// Returns the table of this kind of plug-in.
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

    /// Returns the state that `create` makes. `create` gets the configuration, and a buffer of this many bytes for an error text.
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
        // The library gets one byte less, so that the text always ends in a zero.
        let state = create(configuration.as_ptr(), error.as_mut_ptr().cast(), ERROR_BYTES - 1);
        if state.is_null() {
            let why = CStr::from_bytes_until_nul(&error).map(CStr::to_string_lossy).unwrap_or_default();
            return Err(PluginError::NotCreated { path: self.path.clone(), why: why.into_owned() });
        }
        Ok(state)
    }
}

/// Copies a text that the library owns; empty for a null pointer.
pub(crate) fn text(of: *const c_char) -> String {
    if of.is_null() {
        return String::new();
    }
    // SAFETY: texts of a library end with a zero and are there until its next function is called (the headers say so).
    unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned()
}

// The tables of `bindings/c/ropewalk_plugin.h` and `bindings/c/ropewalk_splitter.h`, field by field; `filter::interface` has those of
// filters.

/// `ROPEWALK_EVENT`.
pub(crate) const EVENT: u32 = 0;
/// `ROPEWALK_TIME`.
pub(crate) const TIME: u32 = 1;

/// The kinds of plug-ins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PluginKind {
    /// Divides frames into pieces.
    Splitter,
    /// Decides on events.
    Filter,
}

impl PluginKind {
    /// `enum ropewalk_plugin_kind`.
    pub const fn number(self) -> u32 {
        match self {
            Self::Splitter => 1,
            Self::Filter => 2,
        }
    }

    /// Version of its interface: `ROPEWALK_SPLITTER_VERSION`, `ROPEWALK_FILTER_VERSION`.
    pub const fn version(self) -> u32 {
        match self {
            Self::Splitter | Self::Filter => 1,
        }
    }

    /// Name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Splitter => "splitter",
            Self::Filter => "filter",
        }
    }

    /// The struct at the start of its table.
    pub const fn head(self) -> &'static str {
        match self {
            Self::Splitter => "ROPEWALK_SPLITTER_HEAD",
            Self::Filter => "ROPEWALK_FILTER_HEAD",
        }
    }
}

/// The table of a kind of plug-in.
///
/// # Safety
/// The type has the layout that the header of its kind defines for its version: it begins with a [`Plugin`], followed by
/// functions of the header's types, null where the plug-in lacks one.
pub(crate) unsafe trait Table: Copy {
    /// The kind of plug-in.
    const KIND: PluginKind;
}

// SAFETY: the struct is laid out as `struct ropewalk_splitter`.
unsafe impl Table for SplitterTable {
    const KIND: PluginKind = PluginKind::Splitter;
}

/// `struct ropewalk_plugin`.
#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) struct Plugin {
    pub(crate) kind: u32,
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) reserved: u32,
    pub(crate) name: *const c_char,
}

/// `struct ropewalk_piece`.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RawPiece {
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) kind: u32,
    pub(crate) reserved: u32,
}

/// `create` of `struct ropewalk_splitter`.
pub(crate) type Create =
    unsafe extern "C" fn(configuration: *const c_char, error: *mut c_char, capacity: usize) -> *mut c_void;
/// `split` of `struct ropewalk_splitter`.
pub(crate) type Split = unsafe extern "C" fn(
    state: *mut c_void,
    frame: *const u8,
    length: usize,
    pieces: *mut RawPiece,
    capacity: usize,
) -> i64;
/// `error` of `struct ropewalk_splitter`.
pub(crate) type Text = unsafe extern "C" fn(state: *mut c_void) -> *const c_char;
/// `destroy` of `struct ropewalk_splitter`.
pub(crate) type Destroy = unsafe extern "C" fn(state: *mut c_void);

/// `struct ropewalk_splitter`.
#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) struct SplitterTable {
    pub(crate) plugin: Plugin,
    pub(crate) create: Option<Create>,
    pub(crate) split: Option<Split>,
    pub(crate) error: Option<Text>,
    pub(crate) destroy: Option<Destroy>,
}

/// Why a plug-in cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// It cannot be loaded.
    #[error(
        "{}: cannot be loaded from {}: {why}; build it with `cc -shared -fPIC`, and give its path", path.display(), full.display()
    )]
    NotLoaded {
        /// The library.
        path: PathBuf,
        /// The path at which it was searched.
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
    /// Its table belongs to another kind of plug-in.
    #[error("{}: is a plug-in of kind {said}, and a {} is of kind {}", path.display(), kind.name(), kind.number())]
    Kind {
        /// The library.
        path: PathBuf,
        /// The kind in the table.
        said: u32,
        /// The expected kind.
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
        /// The version in the table.
        version: u32,
        /// The kind of plug-in.
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
        /// Size in the table.
        size: u32,
        /// Minimum size for its kind.
        needed: usize,
        /// The kind of plug-in.
        kind: PluginKind,
    },
    /// It lacks a required function.
    #[error("{}: its table has no function `{function}`", path.display())]
    Missing {
        /// The library.
        path: PathBuf,
        /// Name of the function.
        function: &'static str,
    },
    /// Its `create` refused the configuration.
    #[error("{}: refuses its `configuration`: {why}", path.display())]
    NotCreated {
        /// The library.
        path: PathBuf,
        /// Its error text.
        why: String,
    },
}
