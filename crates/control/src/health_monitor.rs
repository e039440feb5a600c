//! Looks once a second at what limits the run, at alarms and incidents, and keeps the rate history, which a background
//! thread writes to a file so that nothing waits for the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ropewalk_monitor::alarms::{AlarmError, Alarms, Rule, State};
use ropewalk_monitor::bottleneck::Finder;
use ropewalk_monitor::history::{History, Record, Stretch};
use ropewalk_monitor::incidents::{IncidentObserver, Incidents, Occurrence};
use ropewalk_monitor::quality::{Quality, QualityMonitor};
use ropewalk_monitor::{Rates, RunTrend, Sample};
use ropewalk_run::session::{ControlHandle, Entry, EntryKind, SessionView};
use ropewalk_terms::{NodeId, RunNumber, Utc};
use tokio::time::Instant;

use crate::api_types::{self, Alarm, Limited};
use crate::notify::{Message, Notifier, Told};
use crate::run_trends::{self, NoRunTrend};

/// The interval of samples.
const PERIOD: Duration = Duration::from_secs(1);

/// Readers of samples that remember the one before.
#[derive(Debug)]
pub(crate) struct HealthMonitor {
    readers: Mutex<Readers>,
    /// Sends alarms to a command and a webhook.
    notifier: Option<Notifier>,
    /// The interval of messages that everything works.
    alive_every: Option<Duration>,
    /// The directory of the runs.
    output: PathBuf,
}

#[derive(Debug)]
struct Readers {
    finder: Finder,
    quality: QualityMonitor,
    alarms: Alarms,
    heard: Heard,
    history: History,
    /// None if it cannot be written.
    history_file: Option<RateHistoryFile>,
    latest_rates: LatestRates,
    wrong: Wrong,
    /// The run that the present one is compared with.
    reference: Option<Arc<RunTrend>>,
    /// The last closed run whose trend was kept.
    closed: Option<u32>,
}

/// The alarm messages already sent.
#[derive(Debug, Default)]
struct Heard {
    /// The number of the first change that has not been processed.
    next: u64,
    /// The state of each alarm in its last message.
    states: BTreeMap<String, State>,
}

impl Heard {
    /// Returns the messages since the last call. A shelved alarm causes none; when its shelf time is over, its state is
    /// sent if it differs from the last message.
    fn news(&mut self, alarms: &Alarms, at: Utc, run: Option<RunNumber>) -> Vec<Message> {
        let mut news = Vec::new();
        for change in alarms.changes_from(self.next) {
            self.next = change.number + 1;
            let alarm = alarms.all().iter().find(|alarm| alarm.rule.name == change.name);
            if let Some(message) = alarm.and_then(|alarm| Message::of(change, alarm, run)) {
                self.states.insert(change.name.clone(), change.to);
                news.push(message);
            }
        }
        for alarm in alarms.all().iter().filter(|alarm| alarm.shelved_until.is_none()) {
            // A pending alarm is not reported before it is raised.
            let state = if alarm.state == State::Pending { State::Normal } else { alarm.state };
            let heard = self.states.insert(alarm.rule.name.clone(), state).unwrap_or(State::Normal);
            if heard != state {
                news.push(Message::standing(alarm, state, at, run));
            }
        }
        news
    }
}

/// The names of the alarms that an operator acknowledged or shelved.
fn quiet(alarms: &Alarms) -> BTreeSet<String> {
    let is_quiet =
        |alarm: &&ropewalk_monitor::alarms::Alarm| alarm.state == State::Acknowledged || alarm.shelved_until.is_some();
    alarms.all().iter().filter(is_quiet).map(|alarm| alarm.rule.name.clone()).collect()
}

/// Entries of the journal about alarms begin with it.
const ALARM: &str = "alarm ";

/// Incidents, collected from counters, alarms and the journal.
#[derive(Debug)]
struct Wrong {
    observer: IncidentObserver,
    incidents: Incidents,
    /// The next change of an alarm.
    change: u64,
    /// The last entry of the journal.
    entry: u64,
}

impl Wrong {
    /// The maximum number of incidents kept.
    const MOST: usize = 1_000;

    fn new() -> Self {
        let incidents = Incidents::new(Self::MOST);
        Self { observer: IncidentObserver::default(), incidents, change: 0, entry: 0 }
    }

    /// Records that the history cannot be written to its file.
    fn not_kept(&mut self, error: &io::Error) {
        let text =
            format!("{FILE} cannot be kept beside the runs ({error}): after a restart nothing is known of before");
        let occurrence = Occurrence { cause: "history_not_kept", subject: "run control", text: &text, data: &[] };
        self.incidents.note(occurrence, Utc::from(SystemTime::now()));
    }

    /// Records that a run's trend cannot be written beside its account.
    fn no_course(&mut self, trend: &RunTrend, error: &io::Error, at: Utc) {
        let text = format!("the trend of run {} cannot be kept ({error}): nothing can be compared with it", trend.run);
        let occurrence = Occurrence { cause: "course_not_kept", subject: "run control", text: &text, data: &[] };
        self.incidents.note(occurrence, at);
    }

    /// Records alarms raised since the last call. Returns entries for the journal.
    fn look_at_alarms(&mut self, alarms: &Alarms) -> Vec<String> {
        let mut entries = Vec::new();
        for change in alarms.changes_from(self.change) {
            self.change = change.number + 1;
            let name = &change.name;
            match (change.from, change.to) {
                (_, State::Active) => {
                    let alarm = alarms.all().iter().find(|alarm| alarm.rule.name == *name);
                    let text = format!("{ALARM}{name}: {}", alarm.map_or("raised", |alarm| &*alarm.sentence));
                    let occurrence = Occurrence { cause: "alarm", subject: name, text: &text, data: &[] };
                    self.incidents.note(occurrence, Utc(change.utc_nanoseconds));
                    entries.push(text);
                }
                (State::Active, State::Latched | State::Normal) | (State::Acknowledged, State::Normal) => {
                    entries.push(format!("{ALARM}{name} is over"));
                }
                _ => {}
            }
        }
        entries
    }

    /// Takes note of what the journal tells of front ends, filters and splitters, and of faults.
    fn look_at_journal(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.entry = entry.number;
            let is_alarm = entry.text.starts_with(ALARM);
            if is_alarm || !matches!(entry.kind, EntryKind::Incident | EntryKind::Fault) {
                continue;
            }
            // The subject precedes the description: `source 7: ...`, `bu0: filter 1: ...`.
            let (subject, text) = entry.text.split_once(": ").unwrap_or(("run control", &entry.text));
            let occurrence = Occurrence { cause: entry.kind.name(), subject, text, data: &[] };
            self.incidents.note(occurrence, Utc(entry.at_ns));
        }
    }
}

/// How fast everything was between the last two samples.
#[derive(Debug, Default)]
struct LatestRates {
    last: Option<Arc<Sample>>,
    rates: Option<Rates>,
}

impl LatestRates {
    /// Whether this is the last sample of the run that it saw last, and it has not seen it: the run is closed soon.
    fn lacks_end(&self, sample: &Sample) -> bool {
        let is_next = |last: &Arc<Sample>| last.run == sample.run && last.time != sample.time;
        sample.phase == "ended" && self.last.as_ref().is_some_and(is_next)
    }

    /// Looks at the next sample. One that it has seen says nothing new.
    fn observe(&mut self, sample: &Arc<Sample>) {
        if self.last.as_ref().is_some_and(|last| last.run == sample.run && last.time == sample.time) {
            return;
        }
        self.rates = self.last.as_ref().and_then(|before| Rates::between(before, sample));
        self.last = Some(Arc::clone(sample));
    }
}

impl HealthMonitor {
    /// Watches with these alarms, which the notifier sends to its receivers. The history is kept in the directory
    /// `output`, with what is there of earlier; if it cannot be kept, that is an incident.
    ///
    /// # Errors
    /// If two alarms have one name.
    pub(crate) fn new(
        output: &Path,
        rules: Vec<Rule>,
        notifier: Option<Notifier>,
        alive_every: Option<Duration>,
    ) -> Result<Self, AlarmError> {
        let alarms = Alarms::new(rules)?;
        let mut wrong = Wrong::new();
        let (history_file, history) = match RateHistoryFile::open(output) {
            Ok((history_file, history)) => (Some(history_file), history),
            Err(error) => {
                wrong.not_kept(&error);
                (None, History::default())
            }
        };
        let readers = Readers {
            finder: Finder::default(),
            quality: QualityMonitor::default(),
            alarms,
            heard: Heard::default(),
            history,
            history_file,
            latest_rates: LatestRates::default(),
            wrong,
            reference: None,
            closed: None,
        };
        Ok(Self { readers: Mutex::new(readers), notifier, alive_every, output: output.to_owned() })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Readers) -> T) -> T {
        work(&mut self.readers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at samples for ever.
    pub(crate) async fn watch(self: Arc<Self>, control: ControlHandle) {
        let (mut alive_due, mut alive_at) = (Instant::now(), None);
        let mut looked = Instant::now();
        loop {
            let view = control.view();
            if let Some(why) = self.told().map(|told| told.not_sent)
                && self.with(|readers| readers.alarms.set_not_sent(why.clone()))
            {
                control.incident(format!("alarms: a message was not sent: {}", why.unwrap_or_default()));
            }
            let since_last = std::mem::replace(&mut looked, Instant::now()).elapsed();
            let entries = if view.run.is_some() || self.with(|readers| readers.latest_rates.lacks_end(&view.sample)) {
                self.with(
                    |Readers {
                         finder, quality, alarms, history, history_file, latest_rates, wrong, reference, ..
                     }| {
                        latest_rates.observe(&view.sample);
                        history.observe(Arc::clone(&view.sample));
                        history_file.iter().for_each(|history_file| history_file.keep(history));
                        finder.observe(Arc::clone(&view.sample));
                        alarms.compare_with(reference.clone().map(|trend| (trend, view.age)));
                        quality.observe(Arc::clone(&view.sample));
                        alarms.observe(Arc::clone(&view.sample), finder.finding(), quality.quality());
                        wrong.observer.observe(Arc::clone(&view.sample), &mut wrong.incidents);
                        wrong.look_at_alarms(alarms)
                    },
                )
            } else {
                self.with(|Readers { alarms, wrong, .. }| {
                    alarms.rest(since_last);
                    wrong.look_at_alarms(alarms)
                })
            };
            entries.into_iter().for_each(|text| control.incident(text));
            control.set_quiet_alarms(self.with(|readers| quiet(&readers.alarms)));
            if self.with(|readers| readers.closed) != view.last.as_ref().map(|account| account.run) {
                let (health, view) = (Arc::clone(&self), Arc::clone(&view));
                // A disk may take its time.
                tokio::task::spawn_blocking(move || health.keep_course(&view));
            }
            self.with(|readers| readers.wrong.look_at_journal(&control.journal_after(readers.wrong.entry)));
            if let Some(notifier) = &self.notifier {
                let news = self.with(|Readers { alarms, heard, .. }| heard.news(alarms, view.at, view.run));
                news.iter().for_each(|message| notifier.tell(message));
                // The run control thread renews the view. If the view does not change, that thread hangs: send no sign
                // of life.
                let is_due = Instant::now() >= alive_due && alive_at != Some(view.at);
                if let Some(every) = self.alive_every.filter(|_| is_due) {
                    notifier.tell(&Message::alive(view.at, view.run, view.state.name()));
                    (alive_due, alive_at) = (Instant::now() + every, Some(view.at));
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Writes the trend of a run that was closed since the last call beside its account.
    pub(crate) fn keep_course(&self, view: &SessionView) {
        let Some(account) = &view.last else { return };
        let trend = self.with(|readers| {
            let is_news = readers.closed.replace(account.run) != Some(account.run);
            let began = account.started_ns.filter(|_| is_news)?.div_euclid(1_000_000_000);
            RunTrend::of(account.run, &readers.history, began, began + account.duration_s.ceil() as i64)
        });
        let Some(trend) = trend else { return };
        if let Err(error) = run_trends::keep(&account.directory, &trend) {
            self.with(|readers| readers.wrong.no_course(&trend, &error, view.at));
        }
    }

    /// Returns the trend of the reference run.
    pub(crate) fn reference(&self) -> Option<Arc<RunTrend>> {
        self.with(|readers| readers.reference.clone())
    }

    /// Selects the reference run, or none.
    ///
    /// # Errors
    /// If the run has no trend, or an unreadable one. The comparison then stays as it was.
    pub(crate) fn compare_with(&self, run: Option<u32>) -> Result<Option<Arc<RunTrend>>, NoRunTrend> {
        let trend = run.map(|run| run_trends::read(&self.output, run)).transpose()?.map(Arc::new);
        self.with(|readers| readers.reference.clone_from(&trend));
        Ok(trend)
    }

    /// Returns the counts of alarm messages; none if neither a command nor a webhook is configured.
    pub(crate) fn told(&self) -> Option<Told> {
        self.notifier.as_ref().map(Notifier::told)
    }

    /// Sends a test message, and returns the outcome; none if neither a command nor a webhook is configured.
    pub(crate) async fn test(&self, at: Utc, run: Option<RunNumber>, by: &str) -> Option<Result<(), String>> {
        let message = Message::Test { utc_ns: at.0, run: run.map(|run| run.0), by: by.to_owned() };
        let outcome = self.notifier.as_ref()?.ask(&message).await;
        Some(outcome.unwrap_or_else(|_| Err("run control has ended".to_owned())))
    }

    /// Returns what limits the run; none before the second sample.
    pub(crate) fn limit(&self) -> Option<Limited> {
        self.with(|readers| readers.finder.finding().map(Limited::of))
    }

    /// Returns the nodes of this sample that are connected and do not report.
    pub(crate) fn silent_nodes(&self, sample: &Sample) -> Vec<NodeId> {
        let nodes = sample.nodes.iter().map(|node| node.node);
        self.with(|readers| {
            let presence = readers.finder.activity().presence();
            nodes.filter(|node| presence.is_silent(*node, sample)).collect()
        })
    }

    /// Returns the quality of the run's data.
    pub(crate) fn quality(&self) -> Quality {
        self.with(|readers| readers.quality.quality().clone())
    }

    /// Returns the rates of the run; none before the second sample.
    pub(crate) fn rates(&self) -> Option<Rates> {
        self.with(|readers| readers.latest_rates.rates.clone())
    }

    /// Returns the history from the second `since` on, in steps of `step_seconds`.
    pub(crate) fn history(&self, since: i64, step_seconds: u32) -> Stretch {
        self.with(|readers| readers.history.stretch(since, step_seconds))
    }

    /// Returns the incidents that contain all words, latest first, at most `most` of them.
    pub(crate) fn incidents(&self, words: &str, most: usize) -> api_types::Incidents {
        self.with(|readers| api_types::Incidents::found(&readers.wrong.incidents, words, most))
    }

    /// Returns all alarms.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        self.with(|Readers { alarms, .. }| alarms.all().iter().map(|alarm| Alarm::of(alarm, alarms)).collect())
    }

    /// Returns the alarms to show: raised and not shelved.
    pub(crate) fn shown(&self) -> Vec<Alarm> {
        self.with(|Readers { alarms, .. }| alarms.shown().into_iter().map(|alarm| Alarm::of(alarm, alarms)).collect())
    }

    /// Returns the alarms that operators shelved.
    pub(crate) fn shelved(&self) -> Vec<Alarm> {
        let is_shelved = |alarm: &&ropewalk_monitor::alarms::Alarm| alarm.shelved_until.is_some();
        let of = |Readers { alarms, .. }: &mut Readers| {
            alarms.all().iter().filter(is_shelved).map(|alarm| Alarm::of(alarm, alarms)).collect()
        };
        self.with(of)
    }

    /// Returns the operator who acknowledged an alarm, while it is raised.
    pub(crate) fn known_by(&self, name: &str) -> Option<String> {
        self.with(|readers| readers.alarms.all().iter().find(|alarm| alarm.rule.name == name)?.known_by.clone())
    }

    /// Acknowledges an alarm in the name of the operator `by`.
    ///
    /// # Errors
    /// If there is no alarm of this name, or it is not raised.
    pub(crate) fn acknowledge(&self, name: &str, by: &str) -> Result<(), AlarmError> {
        self.with(|readers| readers.alarms.acknowledge(name, by))
    }

    /// Shelves an alarm for `time` in the name of the operator `by`.
    ///
    /// # Errors
    /// If there is no alarm of this name.
    pub(crate) fn shelve(&self, name: &str, time: Duration, by: &str) -> Result<(), AlarmError> {
        self.with(|readers| readers.alarms.shelve(name, time, by))
    }
}

/// The name of the file in the directory of the runs.
const FILE: &str = "history.dat";
/// Records that wait to be written; while the disk stalls, further ones are dropped.
const WAITING: usize = 64;

/// Writes each record at its place in the file.
#[derive(Debug)]
struct RateHistoryFile(SyncSender<(u64, Record)>);

impl RateHistoryFile {
    /// Opens the file in this directory, which is created if it does not exist, and reads the file.
    ///
    /// # Errors
    /// The system's error for the directory, file or thread.
    pub(crate) fn open(directory: &Path) -> io::Result<(Self, History)> {
        std::fs::create_dir_all(directory)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(directory.join(FILE))?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(History::FILE_BYTES as u64).read_to_end(&mut bytes)?;
        let history = History::restore(&bytes);
        if !bytes.starts_with(&History::header()) {
            // Of another kind, or with other series: what it says would be taken for these.
            file.set_len(0)?;
            file.write_all_at(&History::header(), 0)?;
        }
        file.set_len(History::FILE_BYTES as u64)?;
        let (sender, places) = sync_channel(WAITING);
        let write = move || places.into_iter().for_each(|place| write(&file, place));
        std::thread::Builder::new().name("history".to_owned()).spawn(write)?;
        Ok((Self(sender), history))
    }

    /// Queues the records that the last sample changed.
    fn keep(&self, history: &History) {
        // A dropped record reads as a gap after a restart; memory still has it.
        history.changed().for_each(|place| _ = self.0.try_send(place));
    }
}

fn write(file: &File, (at, record): (u64, Record)) {
    // A disk that is full is an alarm already, and the next place is tried again.
    let _ = file.write_all_at(&record, at);
}

#[cfg(test)]
mod tests {

    use std::time::Duration;

    use ropewalk_monitor::Sample;
    use ropewalk_monitor::alarms::built_in;
    use ropewalk_monitor::bottleneck::{Finding, Limit};
    use ropewalk_terms::{Instant, RunNumber, Utc};

    use super::*;

    fn limited_by(limit: Limit) -> Finding {
        Finding { limit, subject: String::new(), sentence: String::new(), evidence: Vec::new() }
    }

    #[test]
    fn an_alarm_that_is_raised_is_an_incident_once_until_it_is_raised_again() {
        let (mut alarms, mut wrong) = (Alarms::new(built_in()).expect("they fit together"), Wrong::new());
        let mut entries = Vec::new();
        for (second, limit) in (1..).zip([Limit::Sources, Limit::DiskFull, Limit::DiskFull, Limit::Sources]) {
            let time = Instant::from_nanoseconds(second * 1_000_000_000);
            alarms.observe(
                Sample { phase: "running", time, ..Sample::default() },
                Some(&limited_by(limit)),
                &Quality::default(),
            );
            entries.extend(wrong.look_at_alarms(&alarms));
        }
        assert_eq!(entries, ["alarm disk_full: limited_by:disk_full is 1, above 0", "alarm disk_full is over"]);
        let found: Vec<_> = wrong.incidents.search("alarm disk_full").iter().map(|incident| incident.count).collect();
        assert_eq!(found, [1]);
    }

    #[test]
    fn a_shelved_alarm_is_sent_when_shelving_ends() {
        let rules = built_in().into_iter().filter(|rule| rule.name == "disk_full").collect();
        let (mut alarms, mut heard) = (Alarms::new(rules).expect("one name"), Heard::default());
        let mut after = |alarms: &mut Alarms, second: u64, limit| {
            let time = Instant::from_nanoseconds(second * 1_000_000_000);
            alarms.observe(
                Sample { phase: "running", time, ..Sample::default() },
                Some(&limited_by(limit)),
                &Quality::default(),
            );
            let news = heard.news(alarms, Utc(second as i64), None);
            let told = news.into_iter().filter_map(|message| match message {
                Message::Alarm { name, state, .. } => Some((name, state)),
                Message::Alive { .. } | Message::Test { .. } => None,
            });
            told.collect::<Vec<_>>()
        };
        let told = |state: &str| vec![("disk_full".to_owned(), state.to_owned())];
        assert_eq!(after(&mut alarms, 100, Limit::Sources), []);
        // Raised while shelved, and still raised when the shelf time is over.
        alarms.shelve("disk_full", Duration::from_secs(3), "Ada").expect("there is one");
        assert_eq!(after(&mut alarms, 101, Limit::DiskFull), []);
        assert_eq!(after(&mut alarms, 103, Limit::DiskFull), told("active"));
        assert_eq!(after(&mut alarms, 104, Limit::DiskFull), []);
        // Over while shelved: reported after the shelf time, because the raise was reported.
        alarms.shelve("disk_full", Duration::from_secs(3), "Ada").expect("there is one");
        assert_eq!(after(&mut alarms, 105, Limit::Sources), []);
        assert_eq!(after(&mut alarms, 108, Limit::Sources), told("normal"));
        // Raised and over within the shelf time: neither was reported, and neither needs to be.
        alarms.shelve("disk_full", Duration::from_secs(3), "Ada").expect("there is one");
        assert_eq!(after(&mut alarms, 109, Limit::DiskFull), []);
        assert_eq!(after(&mut alarms, 110, Limit::Sources), []);
        assert_eq!(after(&mut alarms, 112, Limit::Sources), []);
        assert_eq!(after(&mut alarms, 113, Limit::DiskFull), told("active"));
    }

    #[test]
    fn a_past_that_cannot_be_kept_is_an_incident_and_nothing_else() {
        let health =
            HealthMonitor::new(Path::new("/dev/null/here"), built_in(), None, None).expect("the alarms fit together");
        assert_eq!(health.with(|readers| readers.wrong.incidents.search("history_not_kept").len()), 1);
        assert!(health.history(0, 1).times.is_empty());
    }

    #[test]
    fn an_incident_in_the_journal_belongs_to_the_subject_before_its_colon() {
        let entry = |number, kind, text: &str| Entry {
            number,
            at_ns: 5,
            kind,
            run: None,
            by: None,
            text: text.to_owned(),
            is_told: true,
        };
        let mut wrong = Wrong::new();
        wrong.look_at_journal(&[
            entry(1, EntryKind::Command, "start, by ada"),
            entry(2, EntryKind::Incident, "source 7: its control connection was lost"),
            entry(3, EntryKind::Incident, "source 7: its control connection was lost"),
            entry(4, EntryKind::Fault, "no room"),
        ]);
        let found: Vec<_> = wrong.incidents.search("").iter().map(|one| (one.subject.as_str(), one.count)).collect();
        assert_eq!((found.len(), wrong.entry), (2, 4));
        assert!(found.contains(&("source 7", 2)) && found.contains(&("run control", 1)), "{found:?}");
    }

    fn look(second: i64) -> Sample {
        let time = Instant::from_nanoseconds(second as u64 * 1_000_000_000);
        Sample { run: RunNumber(1), time, utc: Utc(second * 1_000_000_000), ..Sample::default() }
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart_and_the_file_does_not_grow() {
        let directory = std::env::temp_dir().join(format!("ropewalk-rate-history-{}", std::process::id()));
        let (file, mut history) = RateHistoryFile::open(&directory).expect("a directory can be made");
        assert!(history.stretch(0, 1).times.is_empty());
        for second in 1_000..1_010 {
            history.observe(look(second));
            file.keep(&history);
        }
        let begun = std::time::Instant::now();
        loop {
            let (_, again) = RateHistoryFile::open(&directory).expect("it is there");
            if again.stretch(0, 1) == history.stretch(0, 1) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "it is not kept");
        }
        let path = directory.join(FILE);
        let bytes = std::fs::metadata(&path).expect("it is there").len();
        assert_eq!(bytes, History::FILE_BYTES as u64);
        // Another program's file of this name is begun anew.
        std::fs::write(&path, "something else").expect("it can be written");
        let (_, anew) = RateHistoryFile::open(&directory).expect("it is there");
        assert!(anew.stretch(0, 1).times.is_empty());
        let begin = std::fs::read(&path).expect("it is there");
        assert!(begin.starts_with(&History::header()) && begin.len() == History::FILE_BYTES);
        std::fs::remove_dir_all(&directory).expect("the test's own");
    }
}
