//! The takeover record: a small file in the run's directory for each event manager that the run has had. A successor reads there what it
//! must know, and writes the next one. The files are removed when the run has its account.
//!
//! ```text
//! run000007/manager-1.json    written before the run begins, synced
//! run000007/manager-2.json    the first one died: written by the second, and by no other process after that
//! run000007/run.json          the account; the others are removed
//! ```

use super::registry::{Registry, RunDirectory};
use crate::fields::Fields;
use ropewalk_terms::{Epoch, EventKey, RunNumber, Utc};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The form's name and version.
const SCHEMA: &str = "ropewalk-manager-1";
/// The file of a run's account, in its directory. A run that has it needs no event manager.
pub const ACCOUNT: &str = "run.json";

/// What one event manager leaves for the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakeoverRecord {
    /// The run.
    pub run: RunNumber,
    /// Which event manager it is.
    pub epoch: Epoch,
    /// The run's first key.
    pub first: EventKey,
    /// The run's last key, where it was known from the start.
    pub last: Option<EventKey>,
    /// Where it listens.
    pub address: String,
    /// When the run was started.
    pub started: Utc,
    /// What was said of it then.
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

    /// Makes the file of this epoch, whole and synced, so that it outlives the process and the machine.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] where another event manager has this epoch; otherwise where the directory cannot
    /// be written.
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
        // Of two that want to be the same one gets the name.
        let made = fs::hard_link(&unfinished, Self::file(directory, self.epoch));
        fs::remove_file(&unfinished)?;
        made?;
        File::open(directory)?.sync_all()
    }

    /// The record of the latest event manager of a run without an account; none where the run has one, or no manager.
    ///
    /// # Errors
    /// Where the directory or the file cannot be read, or is no such file.
    pub fn latest(directory: &Path) -> io::Result<Option<Self>> {
        if directory.join(ACCOUNT).exists() {
            return Ok(None);
        }
        match Self::epochs(directory)?.into_iter().max() {
            None => Ok(None),
            Some(epoch) => Self::read(&Self::file(directory, epoch)).map(Some),
        }
    }

    /// Removes the files: the run has its account.
    ///
    /// # Errors
    /// Where one cannot be removed.
    pub fn forget(directory: &Path) -> io::Result<()> {
        Self::epochs(directory)?.into_iter().try_for_each(|epoch| fs::remove_file(Self::file(directory, epoch)))
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
    /// The newest run whose event manager left no account, and that manager's record.
    ///
    /// # Errors
    /// Where a directory or a record cannot be read.
    pub fn unfinished(&self) -> io::Result<Option<(RunDirectory, TakeoverRecord)>> {
        for directory in self.runs()?.into_iter().rev() {
            if let Some(record) = TakeoverRecord::latest(&directory.path)? {
                return Ok(Some((directory, record)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        fs::remove_dir_all(output).expect("it can be removed");
    }

    #[test]
    fn nobody_else_can_be_the_same_event_manager() {
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
}
