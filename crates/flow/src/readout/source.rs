//! What a readout unit knows of one source.

use super::absence::AbsenceClock;
use super::config::{OnClose, ReadoutConfig, SourceConfig};
use super::doubt::{Doubt, MOST_HELD, is_unreliable};
use super::gaps::Gaps;
use super::histogram::fill;
use super::masking::Masking;
use super::numbering::Numbering;
use super::realign::Strayed;
use super::sequence::Sequence;
use super::timeline::{NEVER, ORIGIN, Position};
use crate::histogram::Histogram;
use crate::messages::{FragmentFlags, Received, ReportEntry};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, FragmentAccount, Instant, Requirement, SourceId};
use std::collections::VecDeque;

/// How many fragments a source may hand over at once; what cannot be placed at once waits in a queue of this size.
pub(super) const MOST_AT_ONCE: usize = 128;

/// How a source's numbering stands to the run's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// They agree.
    Following,
    /// The source started its numbering again and waits for the resynchronisation to be declared or completed.
    Restarted {
        /// Since when.
        since: Instant,
        /// Events before this one were there then.
        held: Position,
    },
    /// The run was resynchronised and the source has not followed yet.
    Behind {
        /// Until when it may.
        until: Instant,
    },
    /// They disagree, and the source's fragments are worth nothing.
    OutOfSync,
}

/// Whether events wait for a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// They do.
    Awaited,
    /// They did for long enough, and will not until it delivers again.
    GivenUp(Cause),
    /// Its connection was closed, and that was its end.
    Ended,
}

/// Numbers that are reported beside the account.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Statistics {
    pub(super) payload_bytes: u64,
    /// Fragments that came before the run began.
    pub(super) before_start: u64,
    /// Fragments with each of `FragmentFlags::DOUBTS`.
    pub(super) doubts: [u64; FragmentFlags::DOUBTS.len()],
    pub(super) connections: u64,
    pub(super) disconnections: u64,
    pub(super) garbage_bytes: u64,
    pub(super) filler_bytes: u64,
    pub(super) framing_errors: u64,
    pub(super) frames_missing: u64,
    pub(super) frames_out_of_order: u64,
    /// The same of fragments whose times tell.
    pub(super) times_out_of_order: u64,
    pub(super) frames_divided: u64,
    pub(super) frames_gathered: u64,
    pub(super) back_pressure: Duration,
}

/// One source.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) id: SourceId,
    pub(super) requirement: Requirement,
    on_close: OnClose,
    /// Its bytes are a recording.
    pub(super) is_recorded: bool,
    /// It is the trigger source.
    pub(super) triggers: bool,
    pub(super) sequence: Sequence,
    /// Its numbers were given here, so that none is doubted.
    pub(super) trusts_numbers: bool,
    /// Counting may begin with another number than the configured one.
    pub(super) begins_anywhere: bool,
    /// Its counter runs for itself.
    pub(super) runs_free: bool,
    /// It has shown where that begins.
    pub(super) has_begun: bool,
    /// It sends an event in several frames; late ones become a fragment of their own.
    pub(super) may_repeat: bool,
    /// Its readout unit has no other one.
    pub(super) is_only: bool,
    /// It has a place in the run: one of its fragments was placed.
    pub(super) has_joined: bool,
    /// The run began before its readout unit did: it may be at any later event by now.
    pub(super) resumes: bool,
    /// Until it has joined: one past the latest event that any source had shown when its last fragments came.
    pub(super) opened_then: Position,
    /// Fragments whose numbers are in doubt.
    pub(super) doubt: Doubt,
    /// What the last fragments held that came while its numbering disagreed with the run's.
    pub(super) strayed: Strayed,
    /// What its numbers did that they should not.
    pub(super) numbering: Numbering,
    pub(super) standing: Standing,
    /// The resync count that its ids belong to.
    pub(super) resync: u16,
    pub(super) presence: Presence,
    pub(super) connected: bool,
    /// Nothing has come over its connection yet.
    pub(super) fresh: bool,
    /// In which events it does not take part.
    pub(super) masking: Masking,
    /// In which events it is missing.
    pub(super) gaps: Gaps,
    /// Every event before this one was delivered or will not come; [`NEVER`] where no event waits for the source.
    pub(super) frontier: Position,
    pub(super) clock: AbsenceClock,
    /// How long it has been awaited in the old count.
    pub(super) resync_clock: AbsenceClock,
    /// Fragments that cannot be placed yet: beyond the window, or of the next resync count.
    pub(super) waiting: VecDeque<Received>,
    /// How many of them, the first ones, have numbers that are not in doubt any more.
    pub(super) believed: usize,
    /// Whether it is among those that the readout unit counts as waiting.
    pub(super) counts_as_waiting: bool,
    /// The event of the first one that waits; [`NEVER`] where none waits or its event is not known.
    pub(super) waiting_at: Position,
    pub(super) account: FragmentAccount,
    pub(super) statistics: Statistics,
    /// Since when it is connected and not read.
    unread_since: Option<Instant>,
    /// When something came last.
    pub(super) last_came: Option<Instant>,
    /// The first words of the first fragment whose checksum was wrong.
    pub(super) corrupt: Option<[u64; ReportEntry::CORRUPT_WORDS]>,
    /// What is counted of its fragments as a user has asked for; mostly nothing.
    pub(super) histograms: Box<[Histogram]>,
}

impl Source {
    pub(super) fn new(config: &SourceConfig, readout: &ReadoutConfig) -> Self {
        let masked = config.requirement == Requirement::Masked;
        // Those of sources whose own numbers grow are given here.
        let (bits, first) = if config.numbers_grow { (64, 1) } else { (config.counter_bits, config.first) };
        let mut sequence = Sequence::new(bits, first, readout.plausibility, ORIGIN - 1);
        let trusts_numbers = config.trusts_numbers || config.numbers_grow;
        if trusts_numbers {
            sequence.trust();
        }
        Self {
            id: config.id,
            requirement: config.requirement,
            on_close: config.on_close,
            is_recorded: config.is_recorded,
            triggers: readout.trigger == Some(config.id),
            sequence,
            trusts_numbers,
            begins_anywhere: config.begins_anywhere,
            runs_free: config.runs_free,
            has_begun: false,
            may_repeat: config.gather.is_some(),
            is_only: readout.sources.len() == 1,
            has_joined: false,
            resumes: false,
            opened_then: 0,
            doubt: Doubt::new(),
            strayed: Strayed::default(),
            numbering: Numbering::default(),
            standing: Standing::Following,
            resync: 0,
            presence: Presence::Awaited,
            connected: false,
            fresh: true,
            masking: Masking::new(masked),
            gaps: Gaps::default(),
            frontier: NEVER,
            clock: AbsenceClock::default(),
            resync_clock: AbsenceClock::default(),
            waiting: VecDeque::with_capacity(MOST_AT_ONCE + MOST_HELD + 1),
            believed: 0,
            counts_as_waiting: false,
            waiting_at: NEVER,
            account: FragmentAccount::default(),
            statistics: Statistics::default(),
            unread_since: None,
            last_came: None,
            corrupt: None,
            histograms: Histogram::all_of(&readout.histograms, config.id),
        }
    }

    /// Fragments came at `now`: they are counted, and filled into histograms where they are taken.
    #[inline]
    pub(super) fn note_arrival(&mut self, now: Instant, fragments: &[Received], are_taken: bool) {
        self.account.received += fragments.len() as u64;
        if fragments.is_empty() {
            return;
        }
        let before = self.last_came.replace(now);
        if are_taken {
            let since = before.map(|before| now.since(before));
            self.histograms.iter_mut().for_each(|histogram| fill(histogram, since, fragments));
        }
    }

    /// Counts what fragments say of themselves that came.
    pub(super) fn note_contents(&mut self, fragments: &[Received]) {
        let (mut flags, mut bytes) = (FragmentFlags::default(), 0);
        for fragment in fragments {
            flags = flags.with(fragment.meta.flags);
            bytes += u64::from(fragment.meta.length);
        }
        self.statistics.payload_bytes += bytes;
        if flags.has_error() {
            self.note_doubts(fragments);
        }
    }

    #[cold]
    fn note_doubts(&mut self, fragments: &[Received]) {
        for fragment in fragments {
            fragment.meta.flags.doubts().for_each(|doubt| self.statistics.doubts[doubt] += 1);
            if fragment.meta.flags.contains(FragmentFlags::CRC_ERROR) {
                self.corrupt.get_or_insert_with(|| first_words(fragment));
            }
        }
    }

    /// Whether its fragments are placed in the order in which they come.
    #[inline]
    pub(super) fn is_going_on(&self) -> bool {
        self.standing == Standing::Following && self.waiting.is_empty() && self.doubt.is_empty()
    }

    /// Whether a fragment has the number of the last one, and nothing is in doubt: sent twice, or with a wrong number in the place of
    /// the next one.
    pub(super) fn repeats(&mut self, fragment: &Received) -> bool {
        let is_same = fragment.meta.raw_id == self.sequence.last_raw() && !is_unreliable(fragment);
        let repeats = is_same && self.has_joined && self.doubt.is_empty() && !self.trusts_numbers;
        if repeats {
            self.doubt.count_gone(self.sequence.last());
        }
        repeats
    }

    /// Whether a number is of an event in which it is masked, or of the first one in which it takes part again: its numbers went on
    /// meanwhile.
    pub(super) fn passes_mask(&self, raw: u64, head: Position) -> bool {
        let (last, next) = (self.sequence.last(), self.masking.first_wanted(self.sequence.last() + 1));
        next > last + 1 && self.sequence.position_ahead(raw, head).is_some_and(|position| position <= next)
    }

    /// Whether a row of numbers ahead shows where it is in the run. Before its first event such a row may be left-overs of an earlier
    /// run, unless this run was under way.
    pub(super) const fn has_place(&self) -> bool {
        self.has_joined || self.resumes
    }

    /// Whether its counter runs for itself and has not shown where it begins.
    #[inline]
    pub(super) const fn is_yet_to_begin(&self) -> bool {
        self.runs_free && !self.has_begun
    }

    /// A fragment came that the framer had given up on the way.
    pub(super) fn count_given_up(&mut self, cause: Cause) {
        match cause {
            Cause::Late => self.account.late += 1,
            // The bytes of one whose number grows.
            Cause::BadChecksum => self.account.corrupt += 1,
            _ => self.account.dropped.add(cause, 1),
        }
    }

    /// Whether its numbering agrees with the run's.
    pub(super) fn is_following(&self) -> bool {
        self.standing == Standing::Following
    }

    /// Whether it started its numbering again and waits for what becomes of that.
    pub(super) const fn is_restarted(&self) -> bool {
        matches!(self.standing, Standing::Restarted { .. })
    }

    /// Every event before this one was delivered or will not come; [`NEVER`] where no event waits for the source.
    pub(super) fn current_frontier(&self) -> Position {
        if self.requirement == Requirement::Masked || self.standing != Standing::Following {
            return NEVER;
        }
        let next = match self.doubt.tentative() {
            _ if self.waiting_at != NEVER => self.waiting_at,
            Some(position) => position,
            None => self.sequence.last() + 1,
        };
        let awaited = self.presence == Presence::Awaited || !self.waiting.is_empty() || !self.doubt.is_empty();
        if awaited { self.masking.first_wanted(next) } else { NEVER }
    }

    /// The latest event that the source has shown, whether or not it could be placed.
    pub(super) fn highest(&self) -> Position {
        if self.waiting_at == NEVER { self.sequence.last() } else { self.waiting_at }
    }

    /// Why the source has no fragment in an event that is settled without it; none where none is required.
    pub(super) fn missing_cause(&self, position: Position) -> Option<Cause> {
        if self.requirement != Requirement::Required {
            return None;
        }
        if self.masking.covers(position) {
            return (!is_planted(Flaw::MaskUntold)).then_some(Cause::Masked);
        }
        Some(match (self.standing, self.presence) {
            (Standing::Behind { .. } | Standing::OutOfSync, _) => Cause::OutOfSync,
            _ if self.highest() > position => Cause::Skipped,
            (Standing::Restarted { .. }, _) => Cause::Skipped,
            (Standing::Following, Presence::GivenUp(cause)) => cause,
            (Standing::Following, Presence::Ended) => Cause::Disconnected,
            (Standing::Following, Presence::Awaited) => Cause::Skipped,
        })
    }

    /// Whether nothing more comes from it. One that never came counts as done if it is masked, or if it is optional and `any_required`
    /// says that a required source takes part in this readout unit.
    pub(super) fn is_done(&self, any_required: bool) -> bool {
        let is_masked = self.masking.is_open() && self.ends_on_close();
        let may_stay_away = is_masked || any_required && self.requirement == Requirement::Optional;
        let never_came = may_stay_away && self.statistics.connections == 0;
        self.requirement == Requirement::Masked
            || self.waiting.is_empty()
                && self.doubt.is_empty()
                && (self.presence == Presence::Ended && !self.connected || never_came)
    }

    /// Whether it is required and takes part.
    pub(super) const fn is_needed(&self) -> bool {
        matches!(self.requirement, Requirement::Required) && !self.masking.is_open()
    }

    /// The connection is there; what it brings is compared with what came before.
    pub(super) fn connect(&mut self) {
        self.connected = true;
        self.fresh = true;
        self.statistics.connections += 1;
    }

    /// Whether the end of its connection is its end.
    pub(super) fn ends_on_close(&self) -> bool {
        self.on_close == OnClose::End
    }

    /// The connection ended.
    pub(super) fn disconnect(&mut self) {
        self.connected = false;
        self.statistics.disconnections += 1;
        if self.on_close == OnClose::End {
            self.presence = Presence::Ended;
        }
    }

    /// If it has come further than `last`, it is there, and events wait for it (again).
    pub(super) fn note_delivery(&mut self, last: Position) {
        if self.sequence.last() != last && self.connected {
            self.presence = Presence::Awaited;
        }
    }

    /// Its bytes are taken from the connection, or not: then the time is counted.
    pub(super) fn set_read(&mut self, now: Instant, read: bool) {
        if read || !self.connected {
            if let Some(since) = self.unread_since.take() {
                self.statistics.back_pressure += now.since(since);
            }
        } else if self.unread_since.is_none() {
            self.unread_since = Some(now);
        }
    }

    /// Whether it is connected and not read.
    pub(super) const fn is_unread(&self) -> bool {
        self.unread_since.is_some()
    }

    /// How long it was connected and not read, up to now.
    pub(super) fn back_pressure(&self, now: Instant) -> Duration {
        self.statistics.back_pressure + self.unread_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Nothing that waits is worth anything: counted for this cause.
    pub(super) fn drop_waiting(&mut self, cause: Cause) {
        let count = self.waiting.len() as u64 + self.doubt.clear();
        match cause {
            Cause::AfterStop => self.account.after_stop += count,
            _ => self.account.dropped.add(cause, count),
        }
        self.waiting.clear();
        self.believed = 0;
        self.waiting_at = NEVER;
    }
}

/// The words with which a fragment begins; zeros where it has none.
#[cold]
fn first_words(fragment: &Received) -> [u64; ReportEntry::CORRUPT_WORDS] {
    let mut words = [0; ReportEntry::CORRUPT_WORDS];
    let bytes = fragment.payload.pieces().flatten().take(8 * words.len());
    bytes.enumerate().for_each(|(place, byte)| words[place / 8] |= u64::from(*byte) << (8 * (place % 8)));
    words
}
