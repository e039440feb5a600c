//! A trusted filter, called in the thread that has the event.
#![allow(unsafe_code)]

use super::created::{Created, Said, dropped, take_fill};
use super::interface::{DOUBTFUL, INCOMPLETE, RawFragment};
use super::shown::{Head, Shown};
use super::{Decision, FilterConfig, FilterEvent, MOST_RESULT, Nonsense};
use crate::error::PluginError;
use crate::journal::{End, Journal};
use crate::library::Library;
use ropewalk_flow::filter::{Fills, HistogramShape};
use ropewalk_flow::messages::FragmentMeta;
use ropewalk_terms::{RunNumber, TriggerBits};

/// A filter in this thread: it gets events where they lie, and nothing is copied.
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
    /// Loads and creates it.
    ///
    /// # Errors
    /// Where the library is no filter of this version, or does not want to.
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

    /// The histograms that it declared: its fills name them by their places here.
    pub fn histograms(&self) -> &[HistogramShape] {
        self.created.histograms()
    }

    /// The events of this run follow.
    pub fn begin_run(&mut self, run: RunNumber) {
        self.run = run;
        self.created.begin_run(run);
    }

    /// No more events of the run follow.
    pub fn end_run(&mut self) {
        self.created.end_run();
    }

    /// What it decides on an event; none where it says that it cannot decide.
    ///
    /// # Errors
    /// Where what it says cannot be true.
    pub fn process(&mut self, event: &impl FilterEvent) -> Result<Option<Decision<'_>>, Nonsense> {
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
        // SAFETY: the structs are `self.shown`'s, and the bytes those of `event`, both of which are there during the call.
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
                    let nonsense = Nonsense::Result { at: 0, length: decision.result_length };
                    self.journal.note(End::Decision(nonsense));
                    Err(nonsense)
                }
            },
        }
    }

    /// Why it could not decide on the last event; empty where it does not say it.
    pub fn why(&mut self) -> String {
        self.created.why()
    }

    /// What it decided that cannot be true.
    pub fn journal(&self) -> Journal {
        self.journal.clone()
    }
}

/// A fragment's description, whose pieces are filled in later.
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
