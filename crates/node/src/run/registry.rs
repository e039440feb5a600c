//! Run numbers: never used twice in one output directory, also after a crash, and where the directories of earlier runs were moved away.
//!
//! ```text
//! data/run000007/   made when run 7 is set up, and gone again where nothing has come of it
//! data/last-run     7, since run 7 began: whole and synced before its first event
//! ```

use crate::whole_file;
use ropewalk_terms::RunNumber;
use ropewalk_wire::run_file::run_directory_name;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The file with the number of the last run that began, in the output directory.
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
    /// The registry of an output directory, which is made where it is not there.
    ///
    /// # Errors
    /// Where the directory cannot be made.
    pub fn open(output: &Path) -> io::Result<Self> {
        fs::create_dir_all(output)?;
        Ok(Self { output: output.to_owned() })
    }

    /// The runs that there are, by number.
    ///
    /// # Errors
    /// Where the output directory cannot be read.
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

    /// Takes the next number by making its directory, behind those that there are and the last one that began. Making a directory is
    /// atomic, so that two programs that ask at once get two numbers.
    ///
    /// # Errors
    /// Where the output directory cannot be read or written.
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

    /// The number of the last run that began; 0 where none has.
    fn last_begun(&self) -> io::Result<RunNumber> {
        let file = self.output.join(LAST_RUN);
        match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().map(RunNumber).map_err(|_| {
                let why = format!(
                    "{}: no run's number stands in it; remove it if no run's directory was moved",
                    file.display()
                );
                io::Error::new(io::ErrorKind::InvalidData, why)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(RunNumber(0)),
            Err(error) => Err(error),
        }
    }

    /// A run begins: its number is not given again, whatever becomes of its directory. One program at a time says so.
    ///
    /// # Errors
    /// Where the output directory cannot be read or written.
    pub fn begins(&self, run: RunNumber) -> io::Result<()> {
        let directory = File::open(&self.output)?;
        directory.lock()?;
        if self.last_begun()? < run {
            whole_file::write(&self.output.join(LAST_RUN), format!("{run}\n").as_bytes())?;
        }
        directory.unlock()
    }
}

/// The run of this directory begins.
///
/// # Errors
/// As [`Registry::begins`].
pub(super) fn begins(directory: &Path, run: RunNumber) -> io::Result<()> {
    match directory.parent().filter(|_| run != RunNumber(0)) {
        Some(output) => Registry { output: output.to_owned() }.begins(run),
        // A node that is a process of its own has no directory.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Of programs that begin side by side the greatest number holds.
        std::thread::scope(|scope| {
            for run in [9, 12, 4, 11].map(RunNumber) {
                let registry = &registry;
                scope.spawn(move || registry.begins(run).expect("it can be written"));
            }
        });
        registry.begins(RunNumber(3)).expect("an older one is no mistake");
        assert_eq!(set_up().run, RunNumber(13));
        fs::write(output.join(LAST_RUN), "soon").expect("it can be written");
        let error = registry.next_run().expect_err("nobody knows the number").to_string();
        assert!(error.contains("last-run") && error.contains("remove it"), "{error}");
        fs::remove_dir_all(output).expect("the directory can be removed");
    }
}
