//! The referee: what the files hold, word by word, against what the sources made. It asks neither ledger nor machines.

use super::broken::{Broken, Checker};
use super::content::{damage, origin_of};
use super::fault::Fault;
use super::machines::How;
use super::place::Place;
use super::world::World;
use ropewalk_flow::messages::FragmentFlags;
use ropewalk_terms::{Attempt, Cause, EventKey, Incarnation, Instant, SourceId, Verdict};
use ropewalk_wire::felix::Status;
use ropewalk_wire::filter_result::FilterResult;
use ropewalk_wire::run_file::{EventFlags, EventView, FooterView, Item, Items, Record as RawRecord, RecordKind};
use std::collections::{BTreeMap, BTreeSet};

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
}

/// What the files of all builder units hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// By event: its copies, the one that counts last.
    pub(super) events: BTreeMap<u64, Vec<Record>>,
}

/// What was in the files when somebody died.
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
        for (index, storage) in self.storages.iter().enumerate() {
            let mut place = 0;
            let may_be_torn = self.safe.power_was_cut.contains(&(index as u16));
            for path in storage.paths() {
                let name = path.to_string_lossy().into_owned();
                let bytes = storage.read(&path).map_err(|cause| Broken::new(Checker::Content, cause.to_string()))?;
                let mut offsets = BTreeMap::new();
                for item in Items::new(&bytes) {
                    match item {
                        Item::Record { record, offset } if record.kind() == RecordKind::EVENT => {
                            let event = EventView::parse(&record)
                                .map_err(|error| Broken::new(Checker::Content, format!("bu{index} {name}: {error}")))?;
                            offsets.insert(offset, event.key());
                            self.take((index as u16, place), &event, &mut held)?;
                            place += 1;
                        }
                        Item::Record { record, .. } if record.kind() == RecordKind::FOOTER => {
                            agrees(&record, &offsets).map_err(|words| {
                                Broken::new(Checker::Content, format!("bu{index} {name}: the footer {words}"))
                            })?;
                        }
                        Item::Record { .. } => {}
                        Item::Damaged { offset, .. } => Broken::unless(may_be_torn, Checker::Content, || {
                            format!("bu{index} {name} is damaged at {offset}")
                        })?,
                    }
                }
            }
        }
        for (event, copies) in &mut held.events {
            copies.sort_by_key(|copy| (copy.attempt, copy.incarnation));
            let twice = copies.windows(2).any(|two| two[0].attempt == two[1].attempt);
            Broken::unless(!twice, Checker::Keys, || format!("event {event} was written twice in one attempt"))?;
        }
        Ok(held)
    }

    fn take(&self, (writer, place): (u16, u64), event: &EventView<'_>, held: &mut Held) -> Result<(), Broken> {
        let number = self.scenario.event_of(event.key()).filter(|&number| self.scenario.key_of(number) == event.key());
        let in_run = number.filter(|number| (1..=self.scenario.events).contains(number));
        let number = in_run.ok_or_else(|| Broken::new(Checker::Keys, format!("there is no event {}", event.key())))?;
        self.compare_decision(event)?;
        let mut found = BTreeMap::new();
        // What a filter said is no source's.
        let of_sources = || event.fragments().filter(|fragment| fragment.entry.source != SourceId::FILTER);
        for fragment in of_sources() {
            let source = fragment.entry.source;
            self.compare(number, source, fragment.payload, fragment.entry.flags)?;
            let is_new = found.insert(source, None).is_none();
            Broken::unless(is_new, Checker::Content, || format!("event {number} holds source {source} twice"))?;
        }
        let sources: Vec<SourceId> = of_sources().map(|fragment| fragment.entry.source).collect();
        Broken::unless(sources.is_sorted(), Checker::Content, || {
            format!("event {number} lists its fragments in another order than the configuration: {sources:?}")
        })?;
        for missing in event.missing() {
            let Some(cause) = missing.cause() else {
                return Err(Broken::new(Checker::Loss, format!("event {number}: an unknown cause")));
            };
            let is_new = found.insert(missing.source, Some(cause)).is_none();
            Broken::unless(is_new, Checker::Content, || {
                format!("event {number}: source {} is there and missing", missing.source)
            })?;
        }
        let flagged = event.head().flags.contains(EventFlags::INCOMPLETE);
        Broken::unless(flagged == found.values().any(Option::is_some), Checker::Content, || {
            format!("event {number}: called incomplete {flagged}, and it holds {found:?}")
        })?;
        let (attempt, incarnation) = (event.head().attempt, event.head().incarnation);
        let record = Record { writer, attempt, incarnation, place, found };
        held.events.entry(number).or_default().push(record);
        Ok(())
    }

    /// Where there are filters each event has what was said of it: it is accepted by its number, or nobody could decide.
    fn compare_decision(&self, event: &EventView<'_>) -> Result<(), Broken> {
        let said = event.fragments().find(|fragment| fragment.entry.source == SourceId::FILTER);
        let said = said.map(|said| FilterResult::decode(said.payload)).transpose();
        let said = said.map_err(|error| Broken::new(Checker::Content, format!("event {}: {error}", event.key())))?;
        let is_aside = event.head().flags.contains(EventFlags::QUARANTINED);
        let is_right = match (&self.scenario.filters, said) {
            (None, None) => !is_aside,
            (Some(_), Some((said, _))) if said.verdict == Verdict::Quarantined => is_aside,
            (Some(filters), Some((said, _))) => {
                !is_aside && said.verdict == Verdict::Accepted && !filters.rejects(event.key().number())
            }
            _ => false,
        };
        Broken::unless(is_right, Checker::Content, || {
            format!("event {} is in a file, set aside {is_aside}, with {said:?}", event.key())
        })
    }

    /// A fragment is what its source made, and flagged where that was wrong already.
    fn compare(&self, event: u64, source: SourceId, payload: &[u8], flags: FragmentFlags) -> Result<(), Broken> {
        let index = (source.0 as usize).wrapping_sub(self.scenario.source_id(0).0 as usize);
        Broken::unless(index < self.scenario.sources.len(), Checker::Content, || {
            format!("event {event}: there is no source {source}")
        })?;
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
            return Broken::unless(is_it, Checker::Content, || {
                format!("event {event}, source {source}: not of {before}")
            });
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
        Broken::unless(lied || is_flagged(how, flags), Checker::Content, || {
            format!("event {event}, source {source}: {how:?}, and flagged {flags:?}")
        })
    }

    /// The event of the count before with the same number, where nothing tells a readout unit which of them is meant: its only source
    /// sent its first fragment of all after the trigger source had begun the new count. The builder unit flags the crossings.
    fn count_before(&self, source: usize, event: u64) -> Option<u64> {
        let resync = self.scenario.faults.iter().find_map(|scheduled| match scheduled.fault {
            Fault::Resync { source, event } => Some((usize::from(source), event)),
            _ => None,
        });
        let (trigger, first) = resync.filter(|&(trigger, first)| trigger != source && event >= first)?;
        let at = |source, event| self.record(source).and_then(|record| record.made(event)).map(|made| made.at);
        let begins_late = at(source, 1)? > at(trigger, first)?;
        (begins_late && self.scenario.sources_each() == 1).then_some(event + 1 - first)
    }

    /// The fragment of a source for an event, with this number in it, as it stands in run files.
    fn content(&self, source: usize, event: u64, number: u64) -> Vec<u8> {
        let (contents, id) = (self.scenario.contents(), self.scenario.source_id(source));
        match self.scenario.card_of(source) {
            Some((card, link)) => contents.chunk(self.scenario.cards[card].rule_of(link), id, event, number),
            None => contents.fragment_numbered(self.scenario.sources[source], id, event, number),
        }
    }

    /// Somebody dies: takes note of what is in the files.
    pub(super) fn note_safe(&mut self, place: Place, power: bool) {
        let at = self.now();
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

/// Whether a footer lists what stands before it, each event where it begins; what is wrong otherwise.
fn agrees(footer: &RawRecord<'_>, events: &BTreeMap<u64, EventKey>) -> Result<(), String> {
    let footer = FooterView::parse(footer).map_err(|error| error.to_string())?;
    let listed: BTreeMap<u64, EventKey> = footer.entries().map(|entry| (entry.offset, entry.key)).collect();
    if listed == *events { Ok(()) } else { Err(format!("lists {listed:?}, and there are {events:?}")) }
}
