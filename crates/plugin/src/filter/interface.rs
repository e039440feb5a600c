//! The C interface of filters: the structs of `bindings/c/ropewalk_event.h` and `bindings/c/ropewalk_filter.h` field by
//! field, an event made of them, the functions that a filter may call, and [`Filter`], which calls a trusted filter in
//! this thread.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::{Decision, FilterConfig, FilterEvent, MOST_RESULT};
use crate::journal::{End, Journal, WrongDecision};
use crate::library::{Library, Plugin, PluginError, PluginKind, Table, text};
use crate::process::region::Plain;
use ropewalk_flow::filter::{Fill, Fills, HistogramShape, MOST_FILLS, MOST_HISTOGRAMS};
use ropewalk_flow::messages::FragmentMeta;
use ropewalk_terms::{Attempt, EventKey, RunNumber, TriggerBits};

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
pub(super) type EndCall = unsafe extern "C" fn(state: *mut c_void);
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
    pub(super) end_run: Option<EndCall>,
    pub(super) error: Option<Text>,
    pub(super) destroy: Option<EndCall>,
}

// SAFETY: the struct is laid out as `struct ropewalk_filter`.
unsafe impl Table for FilterTable {
    const KIND: PluginKind = PluginKind::Filter;
}

/// Properties of an event besides its fragments.
#[derive(Copy, Clone, Debug)]
pub(super) struct Head {
    pub(super) run: RunNumber,
    pub(super) key: EventKey,
    pub(super) attempt: Attempt,
    pub(super) flags: u32,
    pub(super) trigger_type: u16,
}

/// The C structs of one event.
#[derive(Debug, Default)]
pub(super) struct Shown {
    fragments: Vec<RawFragment>,
    pieces: Vec<RawBytes>,
}

impl Shown {
    /// Starts another event.
    pub(super) fn clear(&mut self) {
        self.fragments.clear();
        self.pieces.clear();
    }

    /// Adds a piece of the next fragment.
    pub(super) fn piece(&mut self, start: *const u8, length: usize) {
        self.pieces.push(RawBytes { start, length });
    }

    /// Adds a fragment after all of its pieces; the pointer to them is set at the end.
    pub(super) fn fragment(&mut self, fragment: RawFragment) {
        self.fragments.push(fragment);
    }

    /// Returns the whole event. Its pointers are valid until the next change.
    pub(super) fn event(&mut self, head: Head) -> RawEvent {
        let mut first = 0;
        for fragment in &mut self.fragments {
            // Set at the end, because the vector moves while it grows.
            fragment.pieces = self.pieces[first..].as_ptr();
            first += fragment.piece_count;
        }
        RawEvent {
            size: size_of::<RawEvent>() as u32,
            run: head.run.0,
            key: head.key.to_bits(),
            number: head.key.number(),
            resync: head.key.resync().into(),
            attempt: head.attempt.0.into(),
            flags: head.flags,
            trigger_type: head.trigger_type.into(),
            fragments: self.fragments.as_ptr(),
            fragment_count: self.fragments.len(),
        }
    }
}

/// The host of one filter. Its address is stable while the filter exists.
#[derive(Debug)]
pub(super) struct Host(Box<HostTable>);

/// The table that the filter points to, and data that only this side sees.
#[repr(C)]
#[derive(Debug)]
struct HostTable {
    /// The first field, so that both have the same address.
    raw: RawHost,
    declared: Mutex<Declared>,
}

#[derive(Debug, Default)]
struct Declared {
    shapes: Vec<HistogramShape>,
    /// Whether `create` has returned.
    is_closed: bool,
}

impl Host {
    pub(super) fn new() -> Self {
        let raw = RawHost { size: size_of::<RawHost>() as u32, reserved: 0, histogram };
        Self(Box::new(HostTable { raw, declared: Mutex::default() }))
    }

    /// The pointer that the filter's `create` gets.
    pub(super) fn as_ptr(&self) -> *const RawHost {
        let table: *const HostTable = &raw const *self.0;
        table.cast()
    }

    /// Ends the creation: nothing more can be declared. Returns the declared histograms.
    pub(super) fn close(&self) -> Vec<HistogramShape> {
        let mut declared = self.0.declared.lock().unwrap_or_else(PoisonError::into_inner);
        declared.is_closed = true;
        declared.shapes.clone()
    }
}

/// `histogram` of `struct ropewalk_host`.
///
/// # Safety
/// `host` is NULL or what [`Host::as_ptr`] returned, of a host that is there, and `name` is NULL or a text that ends
/// with a zero.
unsafe extern "C" fn histogram(host: *const RawHost, name: *const c_char, bins: u32, low: f64, high: f64) -> c_int {
    if host.is_null() || name.is_null() {
        return -1;
    }
    // SAFETY: the filter hands back the pointer that it got (ropewalk_filter.h), which is that of a whole table.
    let table = unsafe { &*host.cast::<HostTable>() };
    // SAFETY: the text ends with a zero, and is there during the call (ropewalk_filter.h).
    let name = unsafe { CStr::from_ptr(name) };
    let shape = name.to_str().ok().and_then(|name| HistogramShape::new(name, bins, low, high).ok());
    let mut declared = table.declared.lock().unwrap_or_else(PoisonError::into_inner);
    shape.filter(|_| !declared.is_closed).and_then(|shape| declared.declare(shape)).unwrap_or(-1)
}

impl Declared {
    /// Returns the index of the histogram; `None` if there is no room, or if its name is taken by another shape.
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

/// The functions and their state.
#[derive(Debug)]
pub(super) struct Created {
    state: *mut c_void,
    begin_run: Option<BeginRun>,
    process: Process,
    end_run: Option<EndCall>,
    error: Option<Text>,
    destroy: Option<EndCall>,
    histograms: Vec<HistogramShape>,
    fills: Box<[RawFill; MOST_FILLS]>,
    /// The filter may keep its pointer.
    _host: Host,
    /// Keeps the functions in memory.
    _library: Library,
}

// SAFETY: calls for one state may come from changing threads, one after the other (ropewalk_filter.h); they need
// `&mut`.
unsafe impl Send for Created {}

/// A filter's answer for an event; its contents are not checked.
#[derive(Copy, Clone, Debug)]
pub(super) enum Said {
    /// The decision.
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
                // SAFETY: host and texts are there during the call, the host for ever, and the second text has that
                // much room.
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

    /// The declared histograms, in the order of declaration.
    pub(super) fn histograms(&self) -> &[HistogramShape] {
        &self.histograms
    }

    /// The fills of a decision, as far as there was room.
    pub(super) fn fills(&self, decision: &RawDecision) -> &[RawFill] {
        &self.fills[..(decision.fill_count as usize).min(MOST_FILLS)]
    }

    /// Announces that events of this run follow.
    pub(super) fn begin_run(&mut self, run: RunNumber) {
        if let Some(begin_run) = self.begin_run {
            // SAFETY: the state is the one that this table's `create` returned, and is not destroyed before `self`.
            unsafe { begin_run(self.state, run.0) }
        }
    }

    /// Announces the end of the run.
    pub(super) fn end_run(&mut self) {
        if let Some(end_run) = self.end_run {
            // SAFETY: the state is there, as in `begin_run`.
            unsafe { end_run(self.state) }
        }
    }

    /// Calls the filter for an event; it writes its result to `result`.
    ///
    /// # Safety
    /// The event and everything it points to is valid during the call.
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
        // SAFETY: the state is there, as in `begin_run`; so is the event (the caller's promise), and the result and the
        // fills have that much room.
        let said = unsafe { (self.process)(self.state, event, &raw mut decision) };
        if said < 0 { Said::Undecided } else { Said::Decided(decision) }
    }

    /// Why it could not decide; empty if it does not say.
    pub(super) fn why(&mut self) -> String {
        // SAFETY: the state is there, as in `begin_run`.
        self.error.map_or_else(String::new, |error| text(unsafe { error(self.state) }))
    }
}

/// Number of fills for which there was no room.
pub(super) const fn dropped(decision: &RawDecision) -> u32 {
    decision.fill_count.saturating_sub(MOST_FILLS as u32)
}

/// Adds a fill.
pub(super) fn take_fill(fill: RawFill, into: &mut Fills) {
    // No histogram has this number: the caller, who knows the declared ones, drops it.
    into.push(Fill { histogram: u16::try_from(fill.histogram).unwrap_or(u16::MAX), value: fill.value });
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the state is there, as in `begin_run`, and is not used again.
            unsafe { destroy(self.state) }
        }
    }
}

/// A filter in this thread. It gets events where they lie; nothing is copied.
#[derive(Debug)]
pub struct Filter {
    created: Created,
    run: RunNumber,
    shown: Shown,
    result: Box<[u8; MOST_RESULT]>,
    fills: Fills,
    journal: Journal,
}

// SAFETY: what `shown` points to is looked at during a call of `process` alone; the rest may be sent.
unsafe impl Send for Filter {}

impl Filter {
    /// Loads the library and creates the filter.
    ///
    /// # Errors
    /// If the library has no filter of this version, or the filter refuses its configuration.
    pub fn new(config: &FilterConfig) -> Result<Self, PluginError> {
        Ok(Self {
            created: Created::new(Library::open(&config.library)?, &config.configuration)?,
            run: RunNumber::default(),
            shown: Shown::default(),
            result: Box::new([0; MOST_RESULT]),
            fills: Fills::default(),
            journal: Journal::default(),
        })
    }

    /// The declared histograms: fills refer to them by their index here.
    pub fn histograms(&self) -> &[HistogramShape] {
        self.created.histograms()
    }

    /// Announces that events of this run follow.
    pub fn begin_run(&mut self, run: RunNumber) {
        self.run = run;
        self.created.begin_run(run);
    }

    /// Announces the end of the run.
    pub fn end_run(&mut self) {
        self.created.end_run();
    }

    /// Returns the decision on an event; `None` if the filter reports that it cannot decide.
    ///
    /// # Errors
    /// If the decision is impossible.
    pub fn process(&mut self, event: &impl FilterEvent) -> Result<Option<Decision<'_>>, WrongDecision> {
        self.shown.clear();
        let mut flags = if event.is_complete() { 0 } else { INCOMPLETE };
        for fragment in event.fragments() {
            let mut piece_count = 0;
            for piece in fragment.payload.pieces() {
                self.shown.piece(piece.as_ptr(), piece.len());
                piece_count += 1;
            }
            self.shown.fragment(raw(&fragment.meta, piece_count));
            flags |= if fragment.meta.flags.has_error() { DOUBTFUL } else { 0 };
        }
        let (key, attempt, trigger_type) = (event.key(), event.attempt(), event.trigger_type());
        let shown = self.shown.event(Head { run: self.run, key, attempt, flags, trigger_type });
        // SAFETY: the structs are `self.shown`'s, and the bytes those of `event`, both of which are there during the
        // call.
        match unsafe { self.created.process(&shown, &mut self.result) } {
            Said::Undecided => Ok(None),
            Said::Decided(decision) => match self.result.get(..decision.result_length as usize) {
                Some(result) => {
                    let Self { created, fills, .. } = self;
                    fills.clear();
                    created.fills(&decision).iter().for_each(|&fill| take_fill(fill, fills));
                    fills.drop_more(dropped(&decision).into());
                    Ok(Some(Decision {
                        accept: decision.accept != 0,
                        bits: trigger_bits(decision.bits),
                        result,
                        fills,
                    }))
                }
                None => {
                    let nonsense = WrongDecision::Result { at: 0, length: decision.result_length };
                    self.journal.note(End::Decision(nonsense));
                    Err(nonsense)
                }
            },
        }
    }

    /// Why it could not decide on the last event; empty if it does not say.
    pub fn why(&mut self) -> String {
        self.created.why()
    }

    /// The journal of its impossible decisions.
    pub fn journal(&self) -> Journal {
        self.journal.clone()
    }
}

/// The description of a fragment; its pieces are filled in later.
pub(super) const fn raw(meta: &FragmentMeta, piece_count: usize) -> RawFragment {
    RawFragment {
        source: meta.source.0,
        length: meta.length,
        flags: meta.flags.0,
        bunch_crossing: meta.bunch_crossing,
        trigger_type: meta.trigger_type,
        raw_id: meta.raw_id,
        time: meta.time,
        pieces: core::ptr::null(),
        piece_count,
    }
}

pub(super) const fn trigger_bits(bits: [u64; 2]) -> TriggerBits {
    TriggerBits(bits[0] as u128 | (bits[1] as u128) << 64)
}
