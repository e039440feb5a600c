//! What a filter is offered beside events: `struct ropewalk_host`, through which it declares its histograms.
#![allow(unsafe_code)]

use super::interface::RawHost;
use core::ffi::{CStr, c_char, c_int};
use ropewalk_flow::filter::{HistogramShape, MOST_HISTOGRAMS};
use std::sync::{Mutex, PoisonError};

/// The host of one filter. It stays where it is as long as that filter.
#[derive(Debug)]
pub(super) struct Host(Box<Table>);

/// What the filter has a pointer to, and what only this side sees of it.
#[repr(C)]
#[derive(Debug)]
struct Table {
    /// First: its address is that of the table.
    raw: RawHost,
    declared: Mutex<Declared>,
}

#[derive(Debug, Default)]
struct Declared {
    shapes: Vec<HistogramShape>,
    /// `create` has returned.
    is_closed: bool,
}

impl Host {
    pub(super) fn new() -> Self {
        let raw = RawHost { size: size_of::<RawHost>() as u32, reserved: 0, histogram };
        Self(Box::new(Table { raw, declared: Mutex::default() }))
    }

    /// What the filter's `create` is handed.
    pub(super) fn as_ptr(&self) -> *const RawHost {
        let table: *const Table = &raw const *self.0;
        table.cast()
    }

    /// The filter is created: nothing more can be declared. Returns what was.
    pub(super) fn close(&self) -> Vec<HistogramShape> {
        let mut declared = self.0.declared.lock().unwrap_or_else(PoisonError::into_inner);
        declared.is_closed = true;
        declared.shapes.clone()
    }
}

/// `histogram` of `struct ropewalk_host`.
///
/// # Safety
/// `host` is NULL or what [`Host::as_ptr`] returned, of a host that is there, and `name` is NULL or a text that ends with a zero.
unsafe extern "C" fn histogram(host: *const RawHost, name: *const c_char, bins: u32, low: f64, high: f64) -> c_int {
    if host.is_null() || name.is_null() {
        return -1;
    }
    // SAFETY: the filter hands back the pointer that it got (ropewalk_filter.h), which is that of a whole table.
    let table = unsafe { &*host.cast::<Table>() };
    // SAFETY: the text ends with a zero, and is there during the call (ropewalk_filter.h).
    let name = unsafe { CStr::from_ptr(name) };
    let shape = name.to_str().ok().and_then(|name| HistogramShape::new(name, bins, low, high).ok());
    let mut declared = table.declared.lock().unwrap_or_else(PoisonError::into_inner);
    shape.filter(|_| !declared.is_closed).and_then(|shape| declared.declare(shape)).unwrap_or(-1)
}

impl Declared {
    /// Where it stands; none where there is no place, or another one has its name.
    fn declare(&mut self, shape: HistogramShape) -> Option<c_int> {
        let known = self.shapes.iter().position(|known| known.name() == shape.name());
        let place = match known {
            Some(place) if self.shapes[place] == shape => place,
            Some(_) => return None,
            None if self.shapes.len() == MOST_HISTOGRAMS => return None,
            None => {
                self.shapes.push(shape);
                self.shapes.len() - 1
            }
        };
        c_int::try_from(place).ok()
    }
}
