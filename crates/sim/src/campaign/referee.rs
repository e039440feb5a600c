//! The referee: what the files hold, word by word, against what the sources made. It asks neither ledger nor machines.
//!
//! The [`Timeline`] knows when each fragment arrived at its readout unit, when each event began there, and which
//! sources were silent too long.

use super::content::{damage, origin_of};
use super::fault::Place;
use super::machines::{How, Made};
use super::recorder::{Delivery, Inlet};
use super::runner::{Broken, Checker, ensure};
use super::world::World;
use ropewalk_flow::filter::ERROR_STREAM;
use ropewalk_flow::messages::FragmentFlags;
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_terms::{Attempt, Cause, EventKey, Incarnation, Instant, SourceId};
use ropewalk_wire::felix::Status;
use ropewalk_wire::run_file::{
    EventFlags, EventView, FooterView, FragmentView, Item, Items, OPEN_EXTENSION, RecordKind, SegmentName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One record of an event.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The builder unit whose file it is in.
    pub(super) writer: u16,
    pub(super) attempt: Attempt,
    pub(super) incarnation: Incarnation,
    /// How many records its writer had written before, in all its lives.
    pub(super) place: u64,
    /// Each source with a fragment (none) or the cause of its absence.
    pub(super) found: BTreeMap<SourceId, Option<Cause>>,
    /// The names of the streams whose files contain it, and of the streams that should.
    streams: BTreeSet<String>,
    wanted: BTreeSet<String>,
}

/// What the files of all builder units hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// By event: its copies, the one that counts last.
    pub(super) events: BTreeMap<u64, Vec<Record>>,
}

/// What was in the files when a member died.
#[derive(Clone, Debug)]
pub(super) struct Death {
    pub(super) at: Instant,
    pub(super) place: Place,
    /// Each event with the sources whose fragments are there.
    pub(super) whole: BTreeSet<(u64, SourceId)>,
    /// Each event that it had written itself, where it was a builder unit, and in which attempt.
    pub(super) copies: BTreeSet<(u64, Attempt)>,
}

/// What must not be lost any more, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Safe {
    pub(super) deaths: Vec<Death>,
    /// Fragments that were in files before the power of their machine was cut, and not after.
    pub(super) cut: BTreeSet<(u64, SourceId)>,
    power_was_cut: BTreeSet<u16>,
}

impl Record {
    /// A copy in an event file, which belongs to no stream.
    pub(super) fn of_event_file(
        writer: u16,
        attempt: Attempt,
        place: u64,
        found: BTreeMap<SourceId, Option<Cause>>,
    ) -> Self {
        let (streams, wanted) = (BTreeSet::new(), BTreeSet::new());
        Self { writer, attempt, incarnation: Incarnation(0), place, found, streams, wanted }
    }
}

impl Held {
    /// The copy of an event that counts: the highest attempt, as `verify` has it.
    pub(super) fn counting(&self, event: u64) -> Option<&Record> {
        self.events.get(&event)?.last()
    }

    /// What a builder unit has written, and in which attempt.
    fn written_by(&self, place: Place) -> BTreeSet<(u64, Attempt)> {
        let copies = self.events.iter().flat_map(|(&event, copies)| copies.iter().map(move |copy| (event, copy)));
        let own = copies.filter(|(_, copy)| place == Place::Builder(copy.writer));
        own.map(|(event, copy)| (event, copy.attempt)).collect()
    }

    /// Every fragment that is in the copies that count.
    pub(super) fn whole(&self) -> BTreeSet<(u64, SourceId)> {
        let counting = self.events.iter().filter_map(|(&event, copies)| Some((event, copies.last()?)));
        let fragments = counting.flat_map(|(event, copy)| {
            copy.found.iter().filter(|(_, cause)| cause.is_none()).map(move |(&source, _)| (event, source))
        });
        fragments.collect()
    }
}

impl World {
    /// Reads every file, and holds each word against what its source made.
    ///
    /// # Errors
    /// What is not as it should be.
    pub(super) fn read_files(&self) -> Result<Held, Broken> {
        let mut held = Held::default();
        for (index, storage) in (0..).zip(&self.storages) {
            let (mut place, may_be_torn) = (0, self.safe.power_was_cut.contains(&index));
            if self.scenario.event_files.is_some() {
                self.read_event_files(index, storage, may_be_torn, &mut held)?;
                continue;
            }
            read_events(storage, Place::Builder(index), may_be_torn, |stream, event| {
                place += 1;
                self.take((index, place), stream, event, &mut held)
            })?;
        }
        for (event, copies) in &mut held.events {
            let strays = copies.iter().find(|copy| !copy.streams.is_subset(&copy.wanted));
            ensure!(Keys, strays.is_none(); "event {event} is in files of streams that did not select it: {strays:?}")?;
            // A copy counts when it is in the files of all of its streams: it may not be acknowledged before.
            copies.retain(|copy| copy.streams == copy.wanted);
            copies.sort_by_key(|copy| (copy.attempt, copy.incarnation));
            let twice = copies.windows(2).any(|two| two[0].attempt == two[1].attempt);
            ensure!(Keys, !twice; "event {event} was written twice in one attempt")?;
        }
        held.events.retain(|_, copies| !copies.is_empty());
        Ok(held)
    }

    fn take(
        &self,
        (writer, place): (u16, u64),
        stream: &str,
        event: &EventView<'_>,
        held: &mut Held,
    ) -> Result<(), Broken> {
        let number = self.scenario.event_of(event.key()).filter(|&number| self.scenario.key_of(number) == event.key());
        let in_run = number.filter(|number| (1..=self.scenario.events).contains(number));
        let number = in_run.ok_or_else(|| Broken::new(Checker::Keys, format!("there is no event {}", event.key())))?;
        self.compare_decision(writer, event)?;
        for fragment in of_sources(event) {
            self.compare(number, fragment.entry.source, fragment.payload, fragment.entry.flags)?;
        }
        let found = found_in(event)?;
        let (attempt, incarnation) = (event.head().attempt, event.head().incarnation);
        let copies = held.events.entry(number).or_default();
        let is_it =
            |copy: &&mut Record| (copy.writer, copy.attempt, copy.incarnation) == (writer, attempt, incarnation);
        if let Some(copy) = copies.iter_mut().find(is_it) {
            ensure!(Keys, copy.streams.insert(stream.to_owned()); "event {number} is twice in stream `{stream}`")?;
            return ensure!(Content, copy.found == found;
                "event {number} differs between two streams: {:?} and {found:?}", copy.found);
        }
        let (streams, wanted) = (BTreeSet::from([stream.to_owned()]), self.streams_of(event));
        copies.push(Record { writer, attempt, incarnation, place, found, streams, wanted });
        Ok(())
    }

    /// The names of the streams that an event belongs to.
    fn streams_of(&self, event: &EventView<'_>) -> BTreeSet<String> {
        match &self.scenario.filters {
            None => BTreeSet::from([String::new()]),
            Some(_) if event.head().flags.contains(EventFlags::QUARANTINED) => {
                BTreeSet::from([ERROR_STREAM.to_owned()])
            }
            Some(filters) => filters.selected_by(event.key().number()),
        }
    }

    /// The contents by which a fragment of a source is known in an event.
    pub(super) fn known_as(&self, source: usize, event: u64) -> Vec<Vec<u8>> {
        let record = self.record(source);
        let how = record.and_then(|record| record.made(event)).map_or(How::Right, |made| made.how);
        let mut usual = self.content(source, event, event);
        if how == How::Damaged {
            damage(&mut usual);
        }
        let lie = record.and_then(|record| record.lied_as(event)).map(|lie| self.content(source, lie, event));
        let said = record.and_then(|record| record.said_of(event)).map(|said| self.content(source, event, said));
        [usual].into_iter().chain(lie).chain(said).collect()
    }

    /// A fragment is what its source made, and flagged where that was wrong already.
    fn compare(&self, event: u64, source: SourceId, payload: &[u8], flags: FragmentFlags) -> Result<(), Broken> {
        let index = (source.0 as usize).wrapping_sub(self.scenario.source_id(0).0 as usize);
        ensure!(Content, index < self.scenario.sources.len(); "event {event}: there is no source {source}")?;
        let record = self.record(index);
        let how = record.and_then(|record| record.made(event)).map_or(How::Right, |made| made.how);
        let number = self.scenario.key_of(event).number();
        let mut expected = self.content(index, event, number);
        match how {
            How::Damaged => damage(&mut expected),
            How::Flagged(_, length) => expected.truncate(length as usize),
            _ => {}
        }
        let lie = record.and_then(|record| record.lied_as(event));
        if lie.is_some_and(|lie| payload == self.content(index, lie, event)) {
            return Ok(());
        }
        // One whose counter is wrong has its place where bunch crossings say so.
        let said = record.and_then(|record| record.said_of(event));
        if said.is_some_and(|said| payload == self.content(index, event, said)) {
            return Ok(());
        }
        if let Some(before) = self.count_before(index, event).filter(|_| payload != expected) {
            let is_it = payload == self.content(index, before, before);
            return ensure!(Content, is_it; "event {event}, source {source}: not of {before}");
        }
        Broken::unless(payload == expected, Checker::Content, || {
            let difference = payload.chunks(8).zip(expected.chunks(8)).position(|(one, other)| one != other);
            let word = difference.and_then(|word| payload.chunks(8).nth(word)?.try_into().ok());
            format!(
                "event {event}, source {source}: {} bytes instead of {}; word {difference:?} belongs to (source, event, \
                 offset) {:?}",
                payload.len(),
                expected.len(),
                word.map(origin_of)
            )
        })?;
        // Whose number was a lie brings the bunch crossing of another event.
        let sources = 0..self.scenario.sources.len();
        let lied = |one: usize| {
            self.record(one).is_some_and(|record| record.lied_as(event).is_some())
                || self.count_before(one, event).is_some()
        };
        let lied = sources.into_iter().any(lied);
        ensure!(Content, lied || is_flagged(how, flags);
            "event {event}, source {source}: {how:?}, and flagged {flags:?}")
    }

    /// The event of the count before with the same number, where nothing tells a readout unit which of them is meant:
    /// its only source sent its first fragment of all after the trigger source had begun the new count. The builder
    /// unit flags the crossings.
    fn count_before(&self, source: usize, event: u64) -> Option<u64> {
        let resync = self.scenario.resynchronisation();
        let resync = resync.map(|fault| (usize::from(fault.place().index()), fault.count()));
        let (trigger, first) = resync.filter(|&(trigger, first)| trigger != source && event >= first)?;
        let at = |source, event| self.record(source).and_then(|record| record.made(event)).map(|made| made.at);
        let begins_late = at(source, 1)? > at(trigger, first)?;
        (begins_late && self.scenario.sources_each() == 1).then_some(event + 1 - first)
    }

    /// The fragment of a source for an event, with this number in it, as in run files.
    fn content(&self, source: usize, event: u64, number: u64) -> Vec<u8> {
        let (contents, id) = (self.scenario.contents(), self.scenario.source_id(source));
        match self.scenario.card_of(source) {
            Some((card, link)) => contents.chunk(self.scenario.cards[card].rule_of(link), id, event, number),
            None => contents.fragment_numbered(self.scenario.sources[source], id, event, number),
        }
    }

    /// A member dies: notes what is in the files.
    pub(super) fn note_safe(&mut self, place: Place, power: bool) {
        let at = self.core.now();
        let held = self.read_files().unwrap_or_default();
        self.safe.deaths.push(Death { at, place, whole: held.whole(), copies: held.written_by(place) });
        if let (true, Place::Builder(index)) = (power, place) {
            self.safe.power_was_cut.insert(index);
        }
    }

    /// The power is cut: what had been in files and is not any more.
    pub(super) fn note_safe_after_power_cut(&mut self) {
        let after = self.read_files().map(|held| held.whole()).unwrap_or_default();
        if let Some(death) = self.safe.deaths.last_mut() {
            self.safe.cut.extend(death.whole.difference(&after).copied());
            death.whole = after;
        }
    }

    /// Puts together when everything arrived.
    pub(super) fn timeline(&self) -> Timeline {
        let recorder = self.core.recorder.borrow();
        let none = Inlet::default();
        let sources = 0..self.scenario.sources.len();
        let inlets: Vec<&Inlet> = sources.map(|source| self.inlet(source, &recorder).unwrap_or(&none)).collect();
        let events = self.scenario.events as usize;
        let mut histories: Vec<SourceHistory> = Vec::new();
        for (source, inlet) in inlets.iter().enumerate() {
            let record = self.record(source);
            let made = |event: usize| record.and_then(|one| one.made(event as u64));
            let delivered = (0..=events).map(|event| made(event).and_then(|made| arrival(made, inlet))).collect();
            histories.push(SourceHistory { delivered, absences: Vec::new() });
        }
        for (source, inlet) in inlets.iter().enumerate() {
            let mut absences = self.silences(source, inlet, &histories);
            absences.extend(self.astray(source, inlet, &histories));
            absences.extend(self.left_behind(source, inlet, &histories));
            histories[source].absences = absences;
        }
        let begun = (0..=events).map(|event| {
            let first = histories.iter().filter_map(|history| history.delivered[event]).min();
            first.unwrap_or(Instant::FAR_FUTURE)
        });
        Timeline { begun: begun.collect(), histories }
    }

    /// When a readout unit could know of an event, or a later one: from another of its sources, or from the event
    /// manager, which heard of it from another readout unit.
    fn shown_by_others(&self, source: usize, event: usize, histories: &[SourceHistory]) -> Instant {
        let readout = self.scenario.readout_of(source);
        let told = self.scenario.time_outs.manager.mul_f64(FASTEST / 8.0);
        let others = (0..histories.len()).filter(|&other| other != source);
        let shown = others.flat_map(|other| {
            let after = if self.scenario.readout_of(other) == readout { Duration::ZERO } else { told };
            histories[other].delivered[event..].iter().flatten().map(move |at| at.after(after))
        });
        shown.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Whether an event's fragment came behind a gap, and so few with it for as long as a doubt lasts that nothing
    /// confirmed its number: no third one, and nothing from another source of its readout unit.
    pub(super) fn is_unconfirmed(&self, source: usize, event: usize, histories: &[SourceHistory]) -> bool {
        let delivered = &histories[source].delivered;
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
        let came =
            |history: &SourceHistory| history.delivered[first..].iter().flatten().filter(|&&at| at <= until).count();
        let readout = self.scenario.readout_of(source);
        let mut others =
            (0..histories.len()).filter(|&other| other != source && self.scenario.readout_of(other) == readout);
        delivered[event].is_some_and(|at| at <= latest)
            && came(&histories[source]) < PROOF
            && others.all(|other| came(&histories[other]) == 0)
    }

    /// Whether an event's fragment may count as a left-over of an earlier run: its source began far behind the run's
    /// first event, and no other source had come as far, or could while they wait for it.
    pub(super) fn is_left_over(&self, source: usize, event: usize, histories: &[SourceHistory]) -> bool {
        let delivered = &histories[source].delivered;
        let first = delivered.iter().position(Option::is_some).filter(|&first| first > NEAR);
        let Some((first, at)) = first.zip(delivered[event]) else { return false };
        let begun = delivered[first].unwrap_or(at);
        let are_held = first > self.scenario.rooms.window as usize && at <= begun.after(self.scenario.time_outs.source);
        are_held || at < self.shown_by_others(source, event, histories)
    }

    /// Whether nothing tells an event's fragment from a left-over of a short earlier run: its source lost the first
    /// event, and began to count again so early that the run's first number came behind this one.
    pub(super) fn precedes_first_number(&self, source: usize, event: usize, histories: &[SourceHistory]) -> bool {
        let Some(record) = self.record(source) else { return false };
        // It gave events the numbers of others.
        let Some(again) = record.lies.iter().map(|&(_, event)| event).min() else { return false };
        let delivered = &histories[source].delivered[..again as usize];
        let has_first = delivered[1].is_some() && record.made(1).is_some_and(|made| made.how == How::Right);
        !has_first && event < delivered.len() && delivered.iter().flatten().count() <= LOOKED_AHEAD
    }

    /// When a source was asked for something by what others showed, and said nothing for too long. One that speaks
    /// again and is still further behind than the time-out is late with everything, until it has caught up: each
    /// event's clock runs for itself.
    fn silences(&self, source: usize, inlet: &Inlet, histories: &[SourceHistory]) -> Vec<Absence> {
        let patience = self.scenario.time_outs.source.mul_f64(FASTEST);
        let mut absences: Vec<Absence> = Vec::new();
        let mut before = Instant::ZERO;
        let mut is_absent = false;
        for Sign { at: until, event } in self.signs_of_life(source, inlet, histories) {
            let from = std::mem::replace(&mut before, until);
            if is_absent && event.is_some_and(|event| self.lag(source, inlet, histories, event) >= patience) {
                absences.last_mut().expect("it is absent since the last one").until = until;
                continue;
            }
            is_absent = false;
            if until.since(from) < patience {
                continue;
            }
            // The source was waited for with the events that others showed meanwhile and that it had not delivered.
            let next = histories[source].delivered.iter().skip(1).position(|at| at.is_none_or(|at| at > from));
            let asked = next.map_or(Instant::FAR_FUTURE, |next| self.shown_by_others(source, next + 1, histories));
            // A source that is not read is not waited for. It makes no difference whether it was read before an event
            // of it was awaited, nor whether another connection of it, which waits for the end of this one, is read.
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

    /// When whole fragments came from a source: neither nonsense nor a part of a fragment is a sign of life, nor what
    /// may have been given up. The last sign never comes.
    fn signs_of_life(&self, source: usize, inlet: &Inlet, histories: &[SourceHistory]) -> Vec<Sign> {
        let record = self.record(source);
        let makes_sense = |event: usize| {
            let made = record.and_then(|one| Some((one, one.made(event as u64)?)));
            made.is_some_and(|(one, made)| !one.is_ruined(made.connection, made.end) && !one.is_doubtful(event as u64))
        };
        let delivered = histories[source].delivered.iter().enumerate().filter(|&(event, _)| makes_sense(event));
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
    fn lag(&self, source: usize, inlet: &Inlet, histories: &[SourceHistory], event: usize) -> Duration {
        let Some(at) = histories[source].delivered[event] else { return Duration::ZERO };
        let shown = self.shown_by_others(source, event, histories);
        let over = self.record(source).and_then(|record| record.made(event as u64));
        let unread = over.map_or(Duration::ZERO, |made| inlet.unread_between(made.connection, shown, at));
        at.since(shown).saturating_sub(unread)
    }

    /// When a source may have been out of step because it did not come to the declared count within the time-out for
    /// that, however often it spoke meanwhile (seed 40218): until it began that count.
    fn left_behind(&self, source: usize, inlet: &Inlet, histories: &[SourceHistory]) -> Option<Absence> {
        let (trigger, resync) = (self.scenario.trigger.map(usize::from)?, self.scenario.resync()?);
        let declared = histories[trigger].delivered[resync as usize].filter(|_| source != trigger)?;
        let until = histories[source].delivered[resync as usize].unwrap_or(Instant::FAR_FUTURE);
        let over = self.record(source).and_then(|record| record.made(resync));
        let unread = over.map_or(Duration::ZERO, |made| inlet.unread_between(made.connection, declared, until));
        let patience = (self.scenario.time_outs.source * 2).mul_f64(FASTEST);
        let is_late = until.since(declared).saturating_sub(unread) >= patience;
        is_late.then(|| Absence { from: declared.after(patience), until })
    }

    /// When a source's numbering was not the run's: until the first fragment that comes over another connection, which
    /// is not looked at before the end of the one that led astray.
    fn astray(&self, source: usize, inlet: &Inlet, histories: &[SourceHistory]) -> Vec<Absence> {
        let Some(record) = self.record(source) else { return Vec::new() };
        let back = |connection: u64| {
            let events = (1..histories[source].delivered.len()).filter(|&event| {
                let made = record.made(event as u64);
                made.is_some_and(|made| made.connection > connection && !record.is_ruined(made.connection, made.end))
            });
            let came = events.filter_map(|event| histories[source].delivered[event]).min();
            let end = inlet.ends.get(&connection).copied().unwrap_or(Instant::ZERO);
            came.unwrap_or(Instant::FAR_FUTURE).max(end)
        };
        record.strayed.iter().map(|&(from, connection)| Absence { from, until: back(connection) }).collect()
    }
}

/// Whether a fragment has the flags that its source gave it reason for, and no others that say it is in doubt.
fn is_flagged(how: How, flags: FragmentFlags) -> bool {
    let How::Flagged(status, _) = how else { return flags.has_error() == (how == How::Damaged) };
    let words = [
        (Status::BUSY, FragmentFlags::BUSY),
        (Status::CRC, FragmentFlags::CRC_ERROR),
        (Status::ERROR, FragmentFlags::MALFORMED),
        (Status::TRUNCATED, FragmentFlags::LENGTH_MISMATCH),
    ];
    words.into_iter().all(|(said, flag)| flags.contains(flag) == status.has(said))
}

/// Passes each event in the files of a writer to `take`, in their order, with the name of the file's stream. Files are
/// whole, unless they `may_be_torn`, and their footers list the records before them.
///
/// # Errors
/// What is not as it should be, or what `take` found.
pub(super) fn read_events(
    storage: &SimulatedStorage,
    writer: Place,
    may_be_torn: bool,
    mut take: impl FnMut(&str, &EventView<'_>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    for path in storage.paths() {
        let broken = |words: String| Broken::new(Checker::Content, format!("{writer} {}: {words}", path.display()));
        let bytes = storage.read(&path).map_err(|cause| broken(cause.to_string()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let closed = name.strip_suffix(OPEN_EXTENSION).unwrap_or(&name);
        let stream = closed.parse::<SegmentName>().map_err(|_| broken("not the name of a segment".to_owned()))?.stream;
        let mut offsets = BTreeMap::new();
        for item in Items::new(&bytes) {
            match item {
                Item::Record { record, offset } if record.kind() == RecordKind::EVENT => {
                    let event = EventView::parse(&record).map_err(|error| broken(error.to_string()))?;
                    offsets.insert(offset, event.key());
                    take(&stream.to_string(), &event)?;
                }
                Item::Record { record, .. } if record.kind() == RecordKind::FOOTER => {
                    let footer = FooterView::parse(&record).map_err(|error| broken(error.to_string()))?;
                    let listed: BTreeMap<u64, EventKey> =
                        footer.entries().map(|entry| (entry.offset, entry.key)).collect();
                    ensure!(Content, listed == offsets;
                        "{writer}: the footer lists {listed:?}, and there are {offsets:?}")?;
                }
                Item::Record { .. } => {}
                Item::Damaged { .. } if may_be_torn => {}
                Item::Damaged { offset, .. } => return Err(broken(format!("damaged at {offset}"))),
            }
        }
    }
    Ok(())
}

/// The fragments of sources in an event, without the result of a filter.
pub(super) fn of_sources<'a>(event: &EventView<'a>) -> impl Iterator<Item = FragmentView<'a>> {
    event.fragments().filter(|fragment| fragment.entry.source != SourceId::FILTER)
}

/// Each source that an event names, with the cause of its absence where it is missing.
///
/// # Errors
/// Where an event contradicts itself: a source is there twice, or in another order than in the configuration; a cause
/// is unknown; or the event is called complete and is not.
pub(super) fn found_in(event: &EventView<'_>) -> Result<BTreeMap<SourceId, Option<Cause>>, Broken> {
    let key = event.key();
    let there: Vec<SourceId> = of_sources(event).map(|fragment| fragment.entry.source).collect();
    let mut found: BTreeMap<SourceId, Option<Cause>> = there.iter().map(|&source| (source, None)).collect();
    ensure!(Content, there.is_sorted_by(|one, other| one < other);
        "event {key}: it lists its fragments twice, or in another order than the configuration: {there:?}")?;
    for missing in event.missing() {
        let unknown = || Broken::new(Checker::Content, format!("event {key}: an unknown cause"));
        let before = found.insert(missing.source, Some(missing.cause().ok_or_else(unknown)?));
        ensure!(Content, before.is_none(); "event {key}: {} is missing, and there or missing once more", missing.source)?;
    }
    let flagged = event.head().flags.contains(EventFlags::INCOMPLETE);
    ensure!(Content, flagged == found.values().any(Option::is_some);
        "event {key}: called incomplete {flagged}, and it holds {found:?}")?;
    Ok(found)
}

/// Clocks may be so much too fast: who waits by them gives up earlier.
const FASTEST: f64 = 0.9;

/// A readout unit waits no longer than this for the confirmation of a number, with any time-out.
const LONGEST_DOUBT: Duration = Duration::from_secs(1);

/// This many consecutive numbers prove a gap in front of them.
const PROOF: usize = 3;

/// A source that begins further behind the run's first event brings left-overs, as far as a readout unit can tell.
const NEAR: usize = 16;

/// The run's first number is looked for in this many fragments of a source.
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
    /// The latest event that came then; none for the last sign.
    event: Option<usize>,
}

/// What is known of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceHistory {
    /// By event, from 0: when its last byte was taken by the readout unit; never where it was not.
    pub(super) delivered: Vec<Option<Instant>>,
    /// When it may have been given up for good reason.
    pub(super) absences: Vec<Absence>,
}

/// What is known of all sources.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) histories: Vec<SourceHistory>,
    /// By event: when its first fragment arrived anywhere.
    pub(super) begun: Vec<Instant>,
}

/// When the last byte of a fragment was taken.
fn arrival(made: &Made, inlet: &Inlet) -> Option<Instant> {
    if !made.how.is_whole() {
        return None;
    }
    let over = inlet.deliveries.iter().filter(|delivery| delivery.connection == made.connection);
    over.filter(|delivery| delivery.bytes >= made.end).map(|delivery| delivery.at).min()
}
