//! The recorded machines, copies of them that a test may change, and what configurations wish of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ropewalk_tune::{Feeding, Finding, Found, Grade, Place, Placed, Transport, Wish, rules};

/// Where a recorded machine is.
pub(crate) fn tree(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees").join(name)
}

/// A copy of a recorded machine, which goes with the value.
pub(crate) struct Copy(PathBuf);

impl Copy {
    pub(crate) fn of(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let to = std::env::temp_dir().join(format!("ropewalk-tune-rules-{}-{number}", std::process::id()));
        copy(&tree(name), &to);
        Self(to)
    }

    /// Where it is.
    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// With another text in a file.
    pub(crate) fn with(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
        self
    }

    /// With a link that leads there.
    pub(crate) fn linked(self, path: &str, there: &str) -> Self {
        std::os::unix::fs::symlink(there, self.0.join(path)).expect("a link can be made");
        self
    }

    /// With some other text in its record.
    pub(crate) fn recorded(self, from: &str, to: &str) -> Self {
        let text = fs::read_to_string(self.0.join(Place::RECORD)).expect("there is a record");
        assert!(text.contains(from), "the record has no {from}");
        self.with(Place::RECORD, &text.replace(from, to))
    }

    /// Without a file.
    pub(crate) fn without(self, path: &str) -> Self {
        fs::remove_file(self.0.join(path)).expect("the file is there");
        self
    }

    /// All its files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut directories = vec![self.0.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).expect("a directory can be read") {
                let entry = entry.expect("a directory can be read");
                let kind = entry.file_type().expect("a file has a type");
                if kind.is_dir() {
                    directories.push(entry.path());
                } else if kind.is_file() {
                    files.push(entry.path());
                }
            }
        }
        files.sort();
        files
    }

    /// What all rules find there.
    pub(crate) fn check(&self, wish: &Wish) -> Vec<Finding> {
        check(&self.0, wish)
    }

    /// What one rule finds there.
    pub(crate) fn finds(&self, rule: &str, wish: &Wish) -> Vec<Finding> {
        of(self.check(wish), rule)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("a directory can be read") {
        let entry = entry.expect("a directory can be read");
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("a file has a type");
        if kind.is_symlink() {
            let link = fs::read_link(&path).expect("a link can be read");
            std::os::unix::fs::symlink(link, target).expect("a link can be made");
        } else if kind.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a file can be copied");
        }
    }
}

/// The host in a directory, as rules see it.
pub(crate) fn found(root: &Path, wish: &Wish) -> Found {
    Found::read(&mut Place::recorded(root).expect("a good record"), wish).expect("a whole machine")
}

/// What all rules find on a machine in a directory.
pub(crate) fn check(root: &Path, wish: &Wish) -> Vec<Finding> {
    rules::check(&found(root, wish), wish)
}

/// What one rule finds on a recorded machine.
pub(crate) fn finds(tree_name: &str, rule: &str, wish: &Wish) -> Vec<Finding> {
    of(check(&tree(tree_name), wish), rule)
}

/// The findings of one rule.
pub(crate) fn of(findings: Vec<Finding>, rule: &str) -> Vec<Finding> {
    assert!(rules::rules().any(|one| one.name == rule), "there is no rule {rule}");
    findings.into_iter().filter(|finding| finding.rule == rule).collect()
}

/// The worst grade of some findings; good without findings.
pub(crate) fn worst(findings: &[Finding]) -> Grade {
    findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Good)
}

/// What would be changed, as `SETTING: FROM -> TO`.
pub(crate) fn changes(findings: &[Finding]) -> Vec<String> {
    let changes = findings.iter().flat_map(|finding| &finding.changes);
    changes.map(|change| format!("{}: {} -> {}", change.setting, change.from, change.to)).collect()
}

/// Two threads that each read streams from an interface.
pub(crate) fn fed(interface: &str, transport: Transport, receive_buffer_bytes: Option<u64>) -> Wish {
    let feeding = |thread: &str| Feeding {
        interface: interface.to_owned(),
        thread: thread.to_owned(),
        transport,
        streams: 8,
        receive_buffer_bytes,
        bytes_per_second: None,
        placed: Placed::Nobody,
    };
    let threads = ["ru0", "ru1", "bu0", "manager"].map(|name| (name.to_owned(), Placed::Nobody));
    Wish { feeding: vec![feeding("ru0"), feeding("ru1")], threads: threads.into(), ..Wish::default() }
}

/// The same wish, with a placement for each thread, in their order.
pub(crate) fn placed<const COUNT: usize>(mut wish: Wish, placed: [Placed; COUNT]) -> Wish {
    assert_eq!(wish.feeding.len(), COUNT);
    for (feeding, placed) in wish.feeding.iter_mut().zip(placed) {
        wish.threads.insert(feeding.thread.clone(), placed.clone());
        feeding.placed = placed;
    }
    wish
}

/// A rule that puts a thread there.
pub(crate) fn on(cpus: &str) -> Placed {
    Placed::Rule(cpus.parse().expect("a list of CPUs"))
}

/// What a readout machine wishes: two threads with eight connections each, events to one directory.
pub(crate) fn readout(interface: &str, output: &str) -> Wish {
    Wish {
        outputs: vec![output.into()],
        memory_bytes: 4 << 30,
        files: 2000,
        realtime_priority: Some(50),
        ..fed(interface, Transport::Tcp, None)
    }
}
