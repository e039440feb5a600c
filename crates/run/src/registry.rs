//! Run numbers and run directories, and the files of an event manager in a run directory: the configuration, and the
//! record with which another event manager takes the run over.

use crate::whole_file;
use ropewalk_config::fields::Fields;
use ropewalk_config::{Configuration, Written, digest};
use ropewalk_terms::{Epoch, EventKey, RunNumber, SourceId, Utc};
use ropewalk_wire::run_file::run_directory_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// File with the number of the last run that began, in the output directory.
const LAST_RUN: &str = "last-run";

/// A run's number and the directory that was made for it.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    /// The number.
    pub run: RunNumber,
    /// The directory.
    pub path: PathBuf,
}

/// The run directories of one output directory.
#[derive(Debug)]
pub struct Registry {
    output: PathBuf,
}

fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("run")?;
    if digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

impl Registry {
    /// Opens the registry of an output directory, which is created if it is missing.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn open(output: &Path) -> io::Result<Self> {
        fs::create_dir_all(output)?;
        Ok(Self { output: output.to_owned() })
    }

    /// Returns the existing runs, by number.
    ///
    /// # Errors
    /// If the output directory cannot be read.
    pub fn runs(&self) -> io::Result<Vec<RunDirectory>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(&self.output)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(number_of);
            runs.extend(number.map(|number| RunDirectory { run: RunNumber(number), path: entry.path() }));
        }
        runs.sort_by_key(|directory| directory.run);
        Ok(runs)
    }

    /// Takes the next number by creating its directory, after the existing directories and the last run that began.
    /// Creating a directory is atomic, so that two programs that ask at once get two numbers.
    ///
    /// # Errors
    /// If the output directory cannot be read or written.
    pub fn next_run(&self) -> io::Result<RunDirectory> {
        let newest = self.runs()?.last().map_or(0, |newest| newest.run.0);
        let mut number = newest.max(self.last_begun()?.0);
        loop {
            number += 1;
            let run = RunNumber(number);
            let path = self.output.join(run_directory_name(run));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(RunDirectory { run, path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the number of the last run that began; 0 if none has.
    fn last_begun(&self) -> io::Result<RunNumber> {
        let file = self.output.join(LAST_RUN);
        match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().map(RunNumber).map_err(|_| {
                let why =
                    format!("{}: it holds no run's number; remove it if no run's directory was moved", file.display());
                io::Error::new(io::ErrorKind::InvalidData, why)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(RunNumber(0)),
            Err(error) => Err(error),
        }
    }

    /// Records that a run begins. Its number is not given again, even if its directory is removed. Only one program may
    /// write this at a time.
    ///
    /// # Errors
    /// If the output directory cannot be read or written.
    pub fn begins(&self, run: RunNumber) -> io::Result<()> {
        let directory = File::open(&self.output)?;
        directory.lock()?;
        if self.last_begun()? < run {
            whole_file::write(&self.output.join(LAST_RUN), format!("{run}\n").as_bytes())?;
        }
        directory.unlock()
    }
}

/// Records that the run of this directory begins.
///
/// # Errors
/// As [`Registry::begins`].
pub(super) fn begins(directory: &Path, run: RunNumber) -> io::Result<()> {
    match directory.parent().filter(|_| run != RunNumber(0)) {
        Some(output) => Registry { output: output.to_owned() }.begins(run),
        // A node with a separate process has no directory.
        None => Ok(()),
    }
}

/// Name and version of the format.
const SCHEMA: &str = "ropewalk-manager-1";
/// File of a run's account, in its directory. A run with an account needs no event manager.
pub const ACCOUNT: &str = "run.json";

/// The record of one event manager for the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakeoverRecord {
    /// The run.
    pub run: RunNumber,
    /// Epoch of the event manager.
    pub epoch: Epoch,
    /// Key of the run's first event.
    pub first: EventKey,
    /// Key of the run's last event, if it was known from the start.
    pub last: Option<EventKey>,
    /// Address of the event manager.
    pub address: String,
    /// Start time of the run.
    pub started: Utc,
    /// The fields given at its start.
    pub fields: Fields,
}

/// The file's content.
#[derive(Serialize, Deserialize)]
struct Form {
    schema: String,
    run: u32,
    epoch: u32,
    first: String,
    last: Option<String>,
    address: String,
    started_ns: i64,
    #[serde(default)]
    fields: Fields,
}

impl TakeoverRecord {
    fn file(directory: &Path, epoch: Epoch) -> PathBuf {
        directory.join(format!("manager-{}.json", epoch.0))
    }

    /// Creates the file of this epoch atomically and synced, so that it outlives the process and the machine.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if another event manager has this epoch; otherwise if the directory cannot be
    /// written.
    pub fn make(&self, directory: &Path) -> io::Result<()> {
        let form = Form {
            schema: SCHEMA.to_owned(),
            run: self.run.0,
            epoch: self.epoch.0,
            first: self.first.to_string(),
            last: self.last.map(|key| key.to_string()),
            address: self.address.clone(),
            started_ns: self.started.0,
            fields: self.fields.clone(),
        };
        let unfinished = directory.join(format!("manager-{}.{}", self.epoch.0, std::process::id()));
        let mut file = File::create(&unfinished)?;
        file.write_all(serde_json::to_string_pretty(&form)?.as_bytes())?;
        file.sync_all()?;
        // If two processes want the same epoch, one gets the name.
        let made = fs::hard_link(&unfinished, Self::file(directory, self.epoch));
        fs::remove_file(&unfinished)?;
        made?;
        File::open(directory)?.sync_all()
    }

    /// Returns the record of the latest event manager of a run without an account; `None` if the run has one, or no
    /// manager.
    ///
    /// # Errors
    /// If the directory or the file cannot be read, or is no such file.
    pub fn latest(directory: &Path) -> io::Result<Option<Self>> {
        if directory.join(ACCOUNT).exists() {
            return Ok(None);
        }
        match Self::epochs(directory)?.into_iter().max() {
            None => Ok(None),
            Some(epoch) => Self::read(&Self::file(directory, epoch)).map(Some),
        }
    }

    /// Removes the files, once the run has its account. After a takeover the last one stays, for
    /// [`Registry::last_epoch`].
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn forget(directory: &Path) -> io::Result<()> {
        let epochs = Self::epochs(directory)?;
        let kept = epochs.iter().copied().max().filter(|&epoch| epoch > Epoch(1));
        let removed = epochs.into_iter().filter(|&epoch| Some(epoch) != kept);
        removed.into_iter().try_for_each(|epoch| fs::remove_file(Self::file(directory, epoch)))
    }

    fn epochs(directory: &Path) -> io::Result<Vec<Epoch>> {
        let mut epochs = Vec::new();
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("manager-")?.strip_suffix(".json"));
            epochs.extend(number.and_then(|number| number.parse().ok()).map(Epoch));
        }
        Ok(epochs)
    }

    fn read(file: &Path) -> io::Result<Self> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("not of the form {SCHEMA}"));
        let form: Form = serde_json::from_str(&fs::read_to_string(file)?)?;
        if form.schema != SCHEMA {
            return Err(wrong());
        }
        let key = |text: &str| text.parse().map_err(|_| wrong());
        Ok(Self {
            run: RunNumber(form.run),
            epoch: Epoch(form.epoch),
            first: key(&form.first)?,
            last: form.last.as_deref().map(key).transpose()?,
            address: form.address,
            started: Utc(form.started_ns),
            fields: form.fields,
        })
    }
}

impl Registry {
    /// Returns the newest run whose event manager left no account, with that manager's record.
    ///
    /// # Errors
    /// If a directory or a record cannot be read.
    pub fn unfinished(&self) -> io::Result<Option<(RunDirectory, TakeoverRecord)>> {
        for directory in self.runs()?.into_iter().rev() {
            if let Some(record) = TakeoverRecord::latest(&directory.path)? {
                return Ok(Some((directory, record)));
            }
        }
        Ok(None)
    }

    /// Returns the highest epoch of the runs that have an account, 1 or more. Units that outlive a run may still know
    /// it, and refuse an event manager with a lower epoch.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn last_epoch(&self) -> io::Result<Epoch> {
        let mut last = Epoch(1);
        for directory in self.runs()? {
            if directory.path.join(ACCOUNT).exists() {
                last = TakeoverRecord::epochs(&directory.path)?.into_iter().fold(last, Ord::max);
            }
        }
        Ok(last)
    }
}

/// File of a run's configuration, in its directory: `Written::text`.
pub const CONFIGURATION: &str = "configuration.toml";

/// What an account says of the run's configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct ConfigurationSummary {
    /// The SHA-256 of `configuration.toml`, in hexadecimal digits.
    pub sha256: String,
    /// The file that it was read from; null if there was none.
    pub file: Option<String>,
    /// The version of the program, which has the values of keys that are not there.
    pub program: &'static str,
}

/// The configuration of a run that may begin.
#[derive(Debug)]
pub(super) struct Configured {
    written: Written,
    pub(super) summary: ConfigurationSummary,
    /// The SHA-256 of the settings of each front end under run control that has settings.
    pub(super) settings: BTreeMap<SourceId, String>,
}

fn summary(written: &Written, file: Option<&Path>) -> ConfigurationSummary {
    let file = file.map(|file| file.display().to_string());
    ConfigurationSummary { sha256: written.digest(), file, program: env!("CARGO_PKG_VERSION") }
}

impl Configured {
    pub(super) fn new(configuration: &Configuration) -> Self {
        let summary = summary(&configuration.written, configuration.file.as_deref());
        let settings = configuration.source.iter().filter(|source| source.is_under_run_control());
        let settings = settings.filter_map(|source| Some((SourceId(source.id), digest(&source.settings()?.0))));
        Self { written: configuration.written.clone(), summary, settings: settings.collect() }
    }

    /// Stores it in the directory of the run that begins. Returns a remark if an event manager that takes over has a
    /// different configuration than the run began with.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub(super) fn keep(&self, directory: &Path) -> io::Result<Option<String>> {
        // A node with a separate process has no directory.
        if directory.as_os_str().is_empty() {
            return Ok(None);
        }
        let file = directory.join(CONFIGURATION);
        match Written::read(&file) {
            Ok(first) if first == self.written => Ok(None),
            Ok(_) => Ok(Some(format!("{}: the run was begun with another configuration", file.display()))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                whole_file::write(&file, self.written.text().as_bytes()).map(|()| None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_config::parse;

    #[test]
    fn numbers_grow_and_are_never_used_twice() {
        let output = std::env::temp_dir().join(format!("ropewalk-registry-{}", std::process::id()));
        let registry = Registry::open(&output).expect("a directory can be made");
        fs::create_dir(output.join("run000007")).expect("a directory can be made");
        fs::create_dir(output.join("runaway")).expect("a directory can be made");
        let first = registry.next_run().expect("a run");
        assert_eq!(first.run, RunNumber(8));
        assert!(first.path.ends_with("run000008"));
        let two: Vec<_> = std::thread::scope(|scope| {
            let ask = || registry.next_run().expect("a run").run;
            let both = [scope.spawn(ask), scope.spawn(ask)];
            both.map(|thread| thread.join().expect("no panic")).into_iter().collect()
        });
        assert_ne!(two[0], two[1]);
        fs::remove_dir_all(output).expect("the directory can be removed");
    }

    #[test]
    fn the_number_of_a_run_that_began_does_not_come_back_with_its_directory_gone() {
        let output = std::env::temp_dir().join(format!("ropewalk-registry-begun-{}", std::process::id()));
        let registry = Registry::open(&output).expect("a directory can be made");
        let set_up = || registry.next_run().expect("a run");
        let given_back = set_up();
        fs::remove_dir(&given_back.path).expect("nothing is in it");
        let first = set_up();
        assert_eq!((given_back.run, first.run), (RunNumber(1), RunNumber(1)), "nothing has come of it");
        begins(&first.path, first.run).expect("it can be written");
        fs::remove_dir(&first.path).expect("nothing is in it");
        assert_eq!(set_up().run, RunNumber(2));
        // Of programs that begin concurrently the greatest number wins.
        std::thread::scope(|scope| {
            for run in [9, 12, 4, 11].map(RunNumber) {
                let registry = &registry;
                scope.spawn(move || registry.begins(run).expect("it can be written"));
            }
        });
        registry.begins(RunNumber(3)).expect("an older one is no mistake");
        assert_eq!(set_up().run, RunNumber(13));
        fs::write(output.join(LAST_RUN), "soon").expect("it can be written");
        let error = registry.next_run().expect_err("the number is not readable").to_string();
        assert!(error.contains("last-run") && error.contains("remove it"), "{error}");
        fs::remove_dir_all(output).expect("the directory can be removed");
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ropewalk-record-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory can be made");
        path
    }

    fn record(run: RunNumber, epoch: u32) -> TakeoverRecord {
        let last = (epoch > 1).then(|| EventKey::new(2, 17));
        let address = "127.0.0.1:4000".to_owned();
        TakeoverRecord {
            run,
            epoch: Epoch(epoch),
            first: EventKey::new(0, 1),
            last,
            address,
            started: Utc(5),
            fields: Fields::default(),
        }
    }

    #[test]
    fn the_latest_claim_of_the_newest_run_without_an_account_is_found() {
        let output = directory("found");
        let registry = Registry::open(&output).expect("it is there");
        assert_eq!(registry.unfinished().expect("it can be read").map(|(_, record)| record), None);
        let [older, newer] = [0, 1].map(|_| registry.next_run().expect("a run"));
        for (directory, epoch) in [(&older, 1), (&newer, 1), (&newer, 2)] {
            record(directory.run, epoch).make(&directory.path).expect("it can be written");
        }
        let found = || registry.unfinished().expect("it can be read").map(|(_, record)| record);
        assert_eq!(found(), Some(record(newer.run, 2)));
        fs::write(newer.path.join(ACCOUNT), "{}").expect("it can be written");
        assert_eq!(found(), Some(record(older.run, 1)));
        TakeoverRecord::forget(&older.path).expect("they can be removed");
        assert_eq!(found(), None);
        assert_eq!(fs::read_dir(&older.path).expect("it is there").count(), 0);
        // Units may obey the epoch of a takeover also after the run.
        TakeoverRecord::forget(&newer.path).expect("they can be removed");
        assert_eq!(fs::read_dir(&newer.path).expect("it is there").count(), 2);
        assert_eq!(registry.last_epoch().expect("it can be read"), Epoch(2));
        fs::remove_dir_all(output).expect("it can be removed");
    }

    #[test]
    fn no_two_programs_can_be_the_same_event_manager() {
        let output = directory("same");
        record(RunNumber(1), 2).make(&output).expect("it can be written");
        let second = record(RunNumber(1), 2).make(&output).map_err(|error| error.kind());
        assert_eq!(second, Err(io::ErrorKind::AlreadyExists));
        assert_eq!(fs::read_dir(&output).expect("it is there").count(), 1);
        fs::remove_dir_all(output).expect("it can be removed");
    }

    #[test]
    fn a_file_of_another_form_is_an_error() {
        let output = directory("form");
        fs::write(output.join("manager-1.json"), "{}").expect("it can be written");
        assert!(TakeoverRecord::latest(&output).is_err());
        fs::remove_dir_all(output).expect("it can be removed");
    }

    #[test]
    fn the_first_configuration_stays_and_another_one_is_reported() {
        let directory = std::env::temp_dir().join(format!("ropewalk-configured-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        let text = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n";
        let mut configuration = parse("test.toml", text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let first = Configured::new(&configuration);
        let keep = |configured: &Configured| configured.keep(&directory).expect("it can be written");
        assert_eq!((keep(&first), first.summary.sha256.len()), (None, 64));
        let kept = || std::fs::read_to_string(directory.join(CONFIGURATION)).expect("it is there");
        let text = kept();
        assert_eq!(keep(&first), None);
        configuration.written.set("run", "events", 7);
        let other = Configured::new(&configuration);
        let warning = keep(&other);
        assert!(other.summary.sha256 != first.summary.sha256 && kept() == text);
        assert!(warning.is_some_and(|warning| warning.ends_with("begun with another configuration")));
        std::fs::remove_dir_all(&directory).expect("the test's own");
        assert_eq!(first.keep(&directory).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert_eq!(first.keep(Path::new("")).expect("nothing is to be done"), None);
    }
}
