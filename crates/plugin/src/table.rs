//! The tables of `bindings/c/ropewalk_plugin.h` and `bindings/c/ropewalk_splitter.h`, field by field; filters have theirs in
//! `filter/interface`.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_void};

/// `ROPEWALK_EVENT`.
pub(crate) const EVENT: u32 = 0;
/// `ROPEWALK_TIME`.
pub(crate) const TIME: u32 = 1;

/// The kinds of plug-ins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PluginKind {
    /// Says into which pieces frames fall apart.
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

    /// The version of its interface: `ROPEWALK_SPLITTER_VERSION`, `ROPEWALK_FILTER_VERSION`.
    pub const fn version(self) -> u32 {
        match self {
            Self::Splitter | Self::Filter => 1,
        }
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Splitter => "splitter",
            Self::Filter => "filter",
        }
    }

    /// What its table begins with.
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
/// It is what the kind's header lays out for its version: it begins with a [`Plugin`], and everything behind that is a function
/// of the header's type, or none where it is null.
pub(crate) unsafe trait Table: Copy {
    /// Whose table it is.
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
