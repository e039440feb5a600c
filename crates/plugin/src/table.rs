//! The tables of `bindings/c/ropewalk_plugin.h` and `bindings/c/ropewalk_splitter.h`, field by field.

use core::ffi::{c_char, c_void};

/// `ROPEWALK_PLUGIN_SPLITTER`.
pub(crate) const KIND_SPLITTER: u32 = 1;
/// `ROPEWALK_SPLITTER_VERSION`.
pub(crate) const SPLITTER_VERSION: u32 = 1;
/// `ROPEWALK_EVENT`.
pub(crate) const EVENT: u32 = 0;
/// `ROPEWALK_TIME`.
pub(crate) const TIME: u32 = 1;

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
