//! A filter that was created and not yet destroyed: the functions alone, without a look at what they say.
#![allow(unsafe_code)]

use super::MOST_RESULT;
use super::host::Host;
use super::interface::{BeginRun, End, FilterTable, Process, RawDecision, RawEvent, RawFill, Text};
use crate::error::PluginError;
use crate::library::{Library, text};
use core::ffi::c_void;
use ropewalk_flow::filter::{Fill, Fills, HistogramShape, MOST_FILLS};
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
    histograms: Vec<HistogramShape>,
    fills: Box<[RawFill; MOST_FILLS]>,
    /// The filter may keep its pointer.
    _host: Host,
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
        let host = Host::new();
        let state = match table.create {
            Some(create) => library.state(configuration, |text, error, room| {
                // SAFETY: host and texts are there during the call, the host for ever, and the second text has that much room.
                unsafe { create(host.as_ptr(), text, error, room) }
            })?,
            None => core::ptr::null_mut(),
        };
        let FilterTable { begin_run, end_run, error, destroy, .. } = table;
        Ok(Self {
            state,
            begin_run,
            process,
            end_run,
            error,
            destroy,
            histograms: host.close(),
            fills: Box::new([RawFill::default(); MOST_FILLS]),
            _host: host,
            _library: library,
        })
    }

    /// The histograms that it declared, in its order.
    pub(super) fn histograms(&self) -> &[HistogramShape] {
        &self.histograms
    }

    /// What it filled in when it decided so, of what there was room for.
    pub(super) fn fills(&self, decision: &RawDecision) -> &[RawFill] {
        &self.fills[..(decision.fill_count as usize).min(MOST_FILLS)]
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
            fills: self.fills.as_mut_ptr(),
            fill_capacity: MOST_FILLS as u32,
            fill_count: 0,
        };
        // SAFETY: the state is there, as in `begin_run`; so is the event (the caller's promise), and the result and the fills have that much room.
        let said = unsafe { (self.process)(self.state, event, &raw mut decision) };
        if said < 0 { Said::Undecided } else { Said::Decided(decision) }
    }

    /// Why it could not decide; empty where it does not say it.
    pub(super) fn why(&mut self) -> String {
        // SAFETY: the state is there, as in `begin_run`.
        self.error.map_or_else(String::new, |error| text(unsafe { error(self.state) }))
    }
}

/// How many fills there was no room for.
pub(super) const fn dropped(decision: &RawDecision) -> u32 {
    decision.fill_count.saturating_sub(MOST_FILLS as u32)
}

/// Takes what a filter filled in.
pub(super) fn take_fill(fill: RawFill, into: &mut Fills) {
    // A number that no histogram has is none that could be meant: it is dropped by whoever knows what was declared.
    into.push(Fill { histogram: u16::try_from(fill.histogram).unwrap_or(u16::MAX), value: fill.value });
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the state is there, as in `begin_run`, and nobody uses it again.
            unsafe { destroy(self.state) }
        }
    }
}
