//! Where pages are: made when nodes start, and taken away when nobody can need them any more.

use super::label::{Label, OwnerLabel, PageRole, Who};
use super::page::NodePage;
use super::reading::PageReading;
use crate::configuration::PagesChoice;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_terms::{Incarnation, Utc};
use std::cell::RefCell;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Memory that is a directory on every Linux, and empty after a restart of the machine.
const SHARED_MEMORY: &str = "/dev/shm";
/// What directories in it begin with, before the user's number.
const BEGIN: &str = "ropewalk-";
/// What pages' names end with.
const END: &str = "page";
/// A page of a process that is gone stays so long, unless its node starts again.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Where this user's nodes have their pages where nothing else is said.
fn usual_directory() -> PathBuf {
    Path::new(SHARED_MEMORY).join(format!("{BEGIN}{}", rustix::process::geteuid().as_raw()))
}

/// Where nodes of any user on this machine have their pages where nothing else is said.
pub fn usual_directories() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(BEGIN)) && path.is_dir()
    };
    let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(is_one).collect();
    found.sort();
    found
}

/// The directory in which nodes of this process make their pages. What cannot be is done without, and said once.
#[derive(Debug)]
pub struct PageDirectory {
    /// None where no pages are wanted, or can be had.
    path: RefCell<Option<PathBuf>>,
    /// The pages that were there when it was opened.
    before: Vec<PathBuf>,
    /// The output directory of the runs.
    output: String,
    incarnation: Incarnation,
    trouble: RefCell<Option<String>>,
}

impl PageDirectory {
    /// Makes the directory where there is none, and removes from it what was left behind more than a day ago.
    pub fn open(choice: &PagesChoice, output: &Path, incarnation: Incarnation) -> Self {
        let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned()).display().to_string();
        let mut opened =
            Self { path: RefCell::new(None), before: Vec::new(), output, incarnation, trouble: RefCell::new(None) };
        let path = match choice {
            PagesChoice::Nowhere => return opened,
            // Nobody has asked for pages: without such memory there are none.
            PagesChoice::Usual if !Path::new(SHARED_MEMORY).is_dir() => return opened,
            PagesChoice::Usual => usual_directory(),
            PagesChoice::In(path) => path.clone(),
        };
        let made = DirBuilder::new().mode(0o755).recursive(true).create(&path);
        match made {
            Ok(()) => {
                opened.before = without_old(&path, MonotonicClock.utc());
                opened.path = RefCell::new(Some(path));
            }
            Err(error) => opened.fail(&path, &error),
        }
        opened
    }

    /// The page of a node, with rows for the node and these; none where it cannot be. It replaces what an earlier life of
    /// the node left behind.
    pub fn page(&self, node: &str, role: PageRole, rows: impl IntoIterator<Item = OwnerLabel>) -> Option<NodePage> {
        let directory = self.path.borrow().clone()?;
        let names = self.names_begin(node);
        // Of hundreds that tests or accidents have left behind but those are read that may be its own.
        let has_such_a_name =
            |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&names));
        for path in self.before.iter().filter(has_such_a_name) {
            let page = PageReading::read(path).ok();
            let is_former = |page: &PageReading| page.label().node == node && page.label().output == self.output;
            // Where it cannot be removed there are two, and each says whose it is.
            page.filter(is_former).into_iter().for_each(|page| drop(page.remove_if_left()));
        }
        let (now, utc) = (MonotonicClock.now(), MonotonicClock.utc());
        let utc_at_zero_ns = utc.0 - now.as_nanoseconds() as i64;
        let who = Who { node, role, output: &self.output, incarnation: self.incarnation, utc_at_zero_ns };
        // No other process of the machine has this name, and no other life.
        let path = directory.join(format!("{names}{}-{:x}.{END}", std::process::id(), self.incarnation.0));
        NodePage::create(&path, Label::new(who, rows)).inspect_err(|error| self.fail(&path, error)).ok()
    }

    /// What the names of a node's pages begin with, in all of its lives: the node, and a checksum of the output directory.
    fn names_begin(&self, node: &str) -> String {
        format!("{node}-{:08x}-", ropewalk_kernels::crc32c(0, self.output.as_bytes()))
    }

    /// What stands in the way, where something does: to be said once, and nodes go without pages.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    fn fail(&self, path: &Path, error: &io::Error) {
        let text = format!(
            "{}: {error}. Nodes have no page of numbers (`ropewalk counters`), and the run goes on without; [monitor] pages \
             names another directory, or \"none\"",
            path.display()
        );
        self.trouble.borrow_mut().get_or_insert(text);
        *self.path.borrow_mut() = None;
    }
}

/// The pages in a directory but for those that nobody has written for too long: these are removed.
fn without_old(directory: &Path, now: Utc) -> Vec<PathBuf> {
    let mut pages = pages_in(directory).unwrap_or_default();
    // Of another user it stays, and is nobody's harm.
    pages.retain(|path| !is_old(path, now) || std::fs::remove_file(path).is_err());
    pages
}

/// Whether a page is of a process that is gone, and whose thread had its last turn too long ago. What was written since is not even read.
fn is_old(path: &Path, now: Utc) -> bool {
    let written = path.metadata().and_then(|known| known.modified()).ok();
    if written.and_then(|written| written.elapsed().ok()).is_none_or(|age| age < KEPT) {
        return false;
    }
    let Ok(page) = PageReading::read(path) else { return false };
    // One that never turned was made when its life began.
    let last = page.turned_utc().unwrap_or(Utc(page.label().incarnation as i64));
    let age = Duration::from_nanos(now.0.saturating_sub(last.0).max(0) as u64);
    !page.is_written() && age >= KEPT
}

/// The files in a directory that are named as pages, in order.
pub(super) fn pages_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    let mut pages: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|end| end == END));
    pages.sort();
    Ok(pages)
}
