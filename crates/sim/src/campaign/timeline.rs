//! When each fragment arrived at its readout unit, when each event began there, and who was silent too long.

use super::machines::{How, Made};
use super::recorder::{Delivery, Inlet};
use super::world::World;
use ropewalk_terms::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Clocks may be so much too fast: who waits by them gives up earlier.
const FASTEST: f64 = 0.9;

/// A readout unit waits no longer than this for what confirms a number, whatever its time-out.
const LONGEST_DOUBT: Duration = Duration::from_secs(1);

/// So many numbers in a row prove a gap in front of them.
const PROOF: usize = 3;

/// A source that begins further behind the run's first event brings left-overs, as far as anybody can tell.
const NEAR: usize = 16;

/// So many fragments of a source are searched for the run's first number.
const LOOKED_AHEAD: usize = 72;

/// From when to when a source may have been given up.
#[derive(Copy, Clone, Debug)]
pub(super) struct Absence {
    pub(super) from: Instant,
    pub(super) until: Instant,
}

/// A whole fragment came.
#[derive(Copy, Clone, Debug)]
struct Sign {
    at: Instant,
    /// The latest event that came then; none where nothing comes any more.
    event: Option<usize>,
}

/// What is known of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    /// By event, from 0: when its last byte was taken by the readout unit; never where it was not.
    pub(super) delivered: Vec<Option<Instant>>,
    /// When it may have been given up for good reason.
    pub(super) absences: Vec<Absence>,
}

/// What is known of all sources.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) courses: Vec<Course>,
    /// By event: when its first fragment arrived anywhere.
    pub(super) begun: Vec<Instant>,
}

impl World {
    /// Puts together when everything arrived.
    pub(super) fn timeline(&self) -> Timeline {
        let recorder = self.recorder.borrow();
        let none = Inlet::default();
        let sources = 0..self.scenario.sources.len();
        let inlets: Vec<&Inlet> = sources.map(|source| self.inlet(source, &recorder).unwrap_or(&none)).collect();
        let events = self.scenario.events as usize;
        let mut courses: Vec<Course> = Vec::new();
        for (source, inlet) in inlets.iter().enumerate() {
            let record = self.record(source);
            let made = |event: usize| record.and_then(|one| one.made(event as u64));
            let delivered = (0..=events).map(|event| made(event).and_then(|made| arrival(made, inlet))).collect();
            courses.push(Course { delivered, absences: Vec::new() });
        }
        for (source, inlet) in inlets.iter().enumerate() {
            let mut absences = self.silences(source, inlet, &courses);
            absences.extend(self.astray(source, inlet, &courses));
            absences.extend(self.left_behind(source, inlet, &courses));
            courses[source].absences = absences;
        }
        let begun = (0..=events).map(|event| {
            let first = courses.iter().filter_map(|course| course.delivered[event]).min();
            first.unwrap_or(Instant::FAR_FUTURE)
        });
        Timeline { begun: begun.collect(), courses }
    }

    /// When a readout unit could know of an event, or a later one, from another of its sources, or from the event
    /// manager, who has heard of it from another readout unit.
    pub(super) fn shown_by_others(&self, source: usize, event: usize, courses: &[Course]) -> Instant {
        let readout = self.scenario.readout_of(source);
        let told = self.scenario.time_outs.manager.mul_f64(FASTEST / 8.0);
        let others = (0..courses.len()).filter(|&other| other != source);
        let shown = others.flat_map(|other| {
            let after = if self.scenario.readout_of(other) == readout { Duration::ZERO } else { told };
            courses[other].delivered[event..].iter().flatten().map(move |at| at.after(after))
        });
        shown.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Whether an event's fragment came behind a gap, and so few with it for as long as a doubt lasts that nothing confirmed its number:
    /// no third one, and nothing from another source of its readout unit.
    pub(super) fn is_unconfirmed(&self, source: usize, event: usize, courses: &[Course]) -> bool {
        let delivered = &courses[source].delivered;
        // One that is damaged gives no place.
        let is_wrong = |one: usize| {
            let made = self.record(source).and_then(|record| record.made(one as u64));
            made.is_some_and(|made| matches!(made.how, How::Damaged | How::Flagged(..)))
        };
        let begin = (2..=event).rev().find(|&first| delivered[first - 1].is_none() || is_wrong(first - 1));
        let Some((first, at)) = begin.and_then(|first| Some((first, delivered[first]?))) else { return false };
        let patience = (self.scenario.time_outs.source / 2).min(LONGEST_DOUBT);
        // The doubt began with a wrong number in the gap, where there was one shortly before.
        let gap = (1..first).rev().take_while(|&one| delivered[one].is_none());
        let made = gap.filter_map(|one| self.record(source)?.made(one as u64));
        let wrong = made.filter(|made| made.how == How::Misnumbered).map(|made| made.at).min();
        let begun = wrong.filter(|&sent| sent <= at && at.since(sent) < patience).unwrap_or(at);
        let (until, latest) = (begun.after(patience.mul_f64(FASTEST)), begun.after(patience.div_f64(FASTEST)));
        let came = |course: &Course| course.delivered[first..].iter().flatten().filter(|&&at| at <= until).count();
        let readout = self.scenario.readout_of(source);
        let mut others =
            (0..courses.len()).filter(|&other| other != source && self.scenario.readout_of(other) == readout);
        delivered[event].is_some_and(|at| at <= latest)
            && came(&courses[source]) < PROOF
            && others.all(|other| came(&courses[other]) == 0)
    }

    /// Whether an event's fragment may count as a left-over of an earlier run: its source began far behind the run's first event, and
    /// no other source had come as far, or could while they wait for it.
    pub(super) fn is_left_over(&self, source: usize, event: usize, courses: &[Course]) -> bool {
        let delivered = &courses[source].delivered;
        let first = delivered.iter().position(Option::is_some).filter(|&first| first > NEAR);
        let Some((first, at)) = first.zip(delivered[event]) else { return false };
        let begun = delivered[first].unwrap_or(at);
        let are_held = first > self.scenario.rooms.window as usize && at <= begun.after(self.scenario.time_outs.source);
        are_held || at < self.shown_by_others(source, event, courses)
    }

    /// Whether nothing tells an event's fragment from a left-over of a short earlier run: its source lost the first event, and began to
    /// count again so early that the run's first number came behind this one.
    pub(super) fn precedes_first_number(&self, source: usize, event: usize, courses: &[Course]) -> bool {
        let Some(record) = self.record(source) else { return false };
        let Some(again) = record.counts_again_from() else { return false };
        let delivered = &courses[source].delivered[..again as usize];
        let has_first = delivered[1].is_some() && record.made(1).is_some_and(|made| made.how == How::Right);
        !has_first && event < delivered.len() && delivered.iter().flatten().count() <= LOOKED_AHEAD
    }

    /// When a source was asked for something by what others showed, and said nothing for too long. One that speaks again
    /// and is still further behind than the time-out is late with everything, until it has caught up: each event's
    /// clock runs for itself.
    fn silences(&self, source: usize, inlet: &Inlet, courses: &[Course]) -> Vec<Absence> {
        let patience = self.scenario.time_outs.source.mul_f64(FASTEST);
        let mut absences: Vec<Absence> = Vec::new();
        let mut before = Instant::ZERO;
        let mut is_absent = false;
        for Sign { at: until, event } in self.signs_of_life(source, inlet, courses) {
            let from = std::mem::replace(&mut before, until);
            if is_absent && event.is_some_and(|event| self.lag(source, inlet, courses, event) >= patience) {
                absences.last_mut().expect("it is absent since the last one").until = until;
                continue;
            }
            is_absent = false;
            if until.since(from) < patience {
                continue;
            }
            // What others showed meanwhile and this source had not delivered is what it was waited for with.
            let next = courses[source].delivered.iter().skip(1).position(|at| at.is_none_or(|at| at > from));
            let asked = next.map_or(Instant::FAR_FUTURE, |next| self.shown_by_others(source, next + 1, courses));
            // Who is not read is not waited for; whether it was read before anybody asked makes no difference, nor whether
            // another connection of it, which waits for the end of this one, is.
            let waited = from.max(asked);
            let over = event.and_then(|event| self.record(source)?.made(event as u64));
            let unread = over.map_or(Duration::ZERO, |made| inlet.unread_between(made.connection, waited, until));
            if until.since(waited).saturating_sub(unread) >= patience {
                absences.push(Absence { from, until });
                is_absent = true;
            }
        }
        absences
    }

    /// When whole fragments came from a source: neither nonsense nor a part of a fragment is a sign of life, nor what may have been
    /// given up. The last sign never comes.
    fn signs_of_life(&self, source: usize, inlet: &Inlet, courses: &[Course]) -> Vec<Sign> {
        let record = self.record(source);
        let makes_sense = |event: usize| {
            let made = record.and_then(|one| Some((one, one.made(event as u64)?)));
            made.is_some_and(|(one, made)| !one.is_ruined(made.connection, made.end) && !one.is_doubtful(event as u64))
        };
        let delivered = courses[source].delivered.iter().enumerate().filter(|&(event, _)| makes_sense(event));
        let arrived: BTreeMap<Instant, usize> = delivered.filter_map(|(event, at)| Some(((*at)?, event))).collect();
        let sign = |delivery: &Delivery| {
            let event = *arrived.get(&delivery.at)?;
            Some(Sign { at: delivery.at, event: Some(event) })
        };
        let mut signs: Vec<Sign> = inlet.deliveries.iter().filter_map(sign).collect();
        signs.push(Sign { at: Instant::FAR_FUTURE, event: None });
        signs
    }

    /// How long a source was read and did not deliver an event that others had shown.
    fn lag(&self, source: usize, inlet: &Inlet, courses: &[Course], event: usize) -> Duration {
        let Some(at) = courses[source].delivered[event] else { return Duration::ZERO };
        let shown = self.shown_by_others(source, event, courses);
        let over = self.record(source).and_then(|record| record.made(event as u64));
        let unread = over.map_or(Duration::ZERO, |made| inlet.unread_between(made.connection, shown, at));
        at.since(shown).saturating_sub(unread)
    }

    /// When a source may have been out of step because it did not come to the declared count within the time-out for that,
    /// however often it spoke meanwhile (seed 40218): until it began that count.
    fn left_behind(&self, source: usize, inlet: &Inlet, courses: &[Course]) -> Option<Absence> {
        let (trigger, resync) = (self.scenario.trigger.map(usize::from)?, self.scenario.resync()?);
        let declared = courses[trigger].delivered[resync as usize].filter(|_| source != trigger)?;
        let until = courses[source].delivered[resync as usize].unwrap_or(Instant::FAR_FUTURE);
        let over = self.record(source).and_then(|record| record.made(resync));
        let unread = over.map_or(Duration::ZERO, |made| inlet.unread_between(made.connection, declared, until));
        let patience = (self.scenario.time_outs.source * 2).mul_f64(FASTEST);
        let is_late = until.since(declared).saturating_sub(unread) >= patience;
        is_late.then(|| Absence { from: declared.after(patience), until })
    }

    /// When a source's numbering was not the run's: until the first fragment that comes over another connection, which is
    /// not looked at before the end of the one that led astray.
    fn astray(&self, source: usize, inlet: &Inlet, courses: &[Course]) -> Vec<Absence> {
        let Some(record) = self.record(source) else { return Vec::new() };
        let back = |connection: u64| {
            let events = (1..courses[source].delivered.len()).filter(|&event| {
                let made = record.made(event as u64);
                made.is_some_and(|made| made.connection > connection && !record.is_ruined(made.connection, made.end))
            });
            let came = events.filter_map(|event| courses[source].delivered[event]).min();
            let end = inlet.ends.get(&connection).copied().unwrap_or(Instant::ZERO);
            came.unwrap_or(Instant::FAR_FUTURE).max(end)
        };
        record.strayed.iter().map(|&(from, connection)| Absence { from, until: back(connection) }).collect()
    }
}

/// When the last byte of a fragment was taken.
fn arrival(made: &Made, inlet: &Inlet) -> Option<Instant> {
    if !made.how.is_whole() {
        return None;
    }
    let over = inlet.deliveries.iter().filter(|delivery| delivery.connection == made.connection);
    over.filter(|delivery| delivery.bytes >= made.end).map(|delivery| delivery.at).min()
}
