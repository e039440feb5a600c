//! The structs of `bindings/c/ropewalk_event.h` and `bindings/c/ropewalk_filter.h`, field by field.
#![allow(unsafe_code)]

use crate::process::region::Plain;
use crate::table::{Plugin, PluginKind, Table};
use core::ffi::{c_char, c_int, c_void};

/// `ROPEWALK_INCOMPLETE`.
pub(super) const INCOMPLETE: u32 = 1 << 0;
/// `ROPEWALK_DOUBTFUL`.
pub(super) const DOUBTFUL: u32 = 1 << 1;

/// `struct ropewalk_bytes`.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub(super) struct RawBytes {
    pub(super) start: *const u8,
    pub(super) length: usize,
}

/// `struct ropewalk_fragment`.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub(super) struct RawFragment {
    pub(super) source: u32,
    pub(super) length: u32,
    pub(super) flags: u32,
    pub(super) bunch_crossing: u16,
    pub(super) trigger_type: u16,
    pub(super) raw_id: u64,
    pub(super) time: u64,
    pub(super) pieces: *const RawBytes,
    pub(super) piece_count: usize,
}

/// `struct ropewalk_event`.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub(super) struct RawEvent {
    pub(super) size: u32,
    pub(super) run: u32,
    pub(super) key: u64,
    pub(super) number: u64,
    pub(super) resync: u32,
    pub(super) attempt: u32,
    pub(super) flags: u32,
    pub(super) trigger_type: u32,
    pub(super) fragments: *const RawFragment,
    pub(super) fragment_count: usize,
}

/// `struct ropewalk_decision`.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub(super) struct RawDecision {
    pub(super) size: u32,
    pub(super) accept: u32,
    pub(super) bits: [u64; 2],
    pub(super) result: *mut u8,
    pub(super) capacity: u32,
    pub(super) result_length: u32,
    pub(super) fills: *mut RawFill,
    pub(super) fill_capacity: u32,
    pub(super) fill_count: u32,
}

/// `struct ropewalk_fill`.
#[repr(C)]
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct RawFill {
    pub(super) histogram: u32,
    pub(super) reserved: u32,
    pub(super) value: f64,
}

// SAFETY: numbers without gaps, of which any bits are a value.
unsafe impl Plain for RawFill {}

/// `struct ropewalk_host`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct RawHost {
    pub(super) size: u32,
    pub(super) reserved: u32,
    pub(super) histogram: Declare,
}

/// `histogram` of `struct ropewalk_host`.
pub(super) type Declare =
    unsafe extern "C" fn(host: *const RawHost, name: *const c_char, bins: u32, low: f64, high: f64) -> c_int;

/// `create` of `struct ropewalk_filter`.
pub(super) type Create = unsafe extern "C" fn(
    host: *const RawHost,
    configuration: *const c_char,
    error: *mut c_char,
    capacity: usize,
) -> *mut c_void;
/// `begin_run` of `struct ropewalk_filter`.
pub(super) type BeginRun = unsafe extern "C" fn(state: *mut c_void, run: u32);
/// `process` of `struct ropewalk_filter`.
pub(super) type Process =
    unsafe extern "C" fn(state: *mut c_void, event: *const RawEvent, decision: *mut RawDecision) -> c_int;
/// `end_run` and `destroy` of `struct ropewalk_filter`.
pub(super) type End = unsafe extern "C" fn(state: *mut c_void);
/// `error` of `struct ropewalk_filter`.
pub(super) type Text = unsafe extern "C" fn(state: *mut c_void) -> *const c_char;

/// `struct ropewalk_filter`.
#[repr(C)]
#[derive(Copy, Clone)]
pub(super) struct FilterTable {
    pub(super) plugin: Plugin,
    pub(super) create: Option<Create>,
    pub(super) begin_run: Option<BeginRun>,
    pub(super) process: Option<Process>,
    pub(super) end_run: Option<End>,
    pub(super) error: Option<Text>,
    pub(super) destroy: Option<End>,
}

// SAFETY: the struct is laid out as `struct ropewalk_filter`.
unsafe impl Table for FilterTable {
    const KIND: PluginKind = PluginKind::Filter;
}
