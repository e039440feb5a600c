//! Run numbers: never used twice in one output directory, also after a crash.

use ropewalk_terms::RunNumber;
use ropewalk_wire::run_file::run_directory_name;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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

    /// Takes the next number by making its directory. Making a directory is atomic, so that two programs that
    /// ask at once get two numbers, and a directory stays after a crash, so that no number comes twice.
    ///
    /// # Errors
    /// Where the output directory cannot be read or written.
    pub fn next_run(&self) -> io::Result<RunDirectory> {
        let mut number = self.runs()?.last().map_or(0, |newest| newest.run.0);
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
}
