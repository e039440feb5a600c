//! A filter that was created and not yet destroyed: the functions alone, without a look at what they say.
#![allow(unsafe_code)]

use super::MOST_RESULT;
use super::interface::{BeginRun, End, FilterTable, HOST, Process, RawDecision, RawEvent, Text};
use crate::error::PluginError;
use crate::library::{Library, text};
use core::ffi::c_void;
use ropewalk_terms::RunNumber;

/// The functions and their state.
#[derive(Debug)]
pub(super) struct Created {
    state: *mut c_void,
    begin_run: Option<BeginRun>,
    process: Process,
    end_run: Option<End>,
    error: Option<Text>,
    destroy: Option<End>,
    /// Holds the functions in memory.
    _library: Library,
}

// SAFETY: calls for one state may come from changing threads, one after the other (ropewalk_filter.h); they need `&mut`.
unsafe impl Send for Created {}

/// What a filter said of an event; what it filled in is not checked.
#[derive(Copy, Clone, Debug)]
pub(super) enum Said {
    /// This.
    Decided(RawDecision),
    /// It cannot decide.
    Undecided,
}

impl Created {
    /// Creates the filter of a library.
    pub(super) fn new(library: Library, configuration: &str) -> Result<Self, PluginError> {
        let table = library.table::<FilterTable>()?;
        let missing = || PluginError::Missing { path: library.path().to_owned(), function: "process" };
        let process = table.process.ok_or_else(missing)?;
        let state = match table.create {
            Some(create) => library.state(configuration, |text, error, room| {
                // SAFETY: host and texts are there during the call, the host for ever, and the second text has that much room.
                unsafe { create(&raw const HOST, text, error, room) }
            })?,
            None => core::ptr::null_mut(),
        };
        let FilterTable { begin_run, end_run, error, destroy, .. } = table;
        Ok(Self { state, begin_run, process, end_run, error, destroy, _library: library })
    }

    /// Events of this run follow.
    pub(super) fn begin_run(&mut self, run: RunNumber) {
        if let Some(begin_run) = self.begin_run {
            // SAFETY: the state is the one that this table's `create` returned, and is not destroyed before `self`.
            unsafe { begin_run(self.state, run.0) }
        }
    }

    /// No more events of the run follow.
    pub(super) fn end_run(&mut self) {
        if let Some(end_run) = self.end_run {
            // SAFETY: the state is there, as in `begin_run`.
            unsafe { end_run(self.state) }
        }
    }

    /// Lets it decide on an event, and write its result to `result`.
    ///
    /// # Safety
    /// The event, and all that it points to, is there during the call.
    pub(super) unsafe fn process(&mut self, event: &RawEvent, result: &mut [u8; MOST_RESULT]) -> Said {
        let mut decision = RawDecision {
            size: size_of::<RawDecision>() as u32,
            accept: 0,
            bits: [0; 2],
            result: result.as_mut_ptr(),
            capacity: MOST_RESULT as u32,
            result_length: 0,
        };
        // SAFETY: the state is there, as in `begin_run`; so is the event (the caller's promise), and the result has that much room.
        let said = unsafe { (self.process)(self.state, event, &raw mut decision) };
        if said < 0 { Said::Undecided } else { Said::Decided(decision) }
    }

    /// Why it could not decide; empty where it does not say it.
    pub(super) fn why(&mut self) -> String {
        // SAFETY: the state is there, as in `begin_run`.
        self.error.map_or_else(String::new, |error| text(unsafe { error(self.state) }))
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the state is there, as in `begin_run`, and nobody uses it again.
            unsafe { destroy(self.state) }
        }
    }
}
