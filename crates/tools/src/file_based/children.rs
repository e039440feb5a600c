//! Filter units that a broker starts itself, and starts again when they end.

use super::place::FilesError;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Pause before a unit that ended is replaced.
const PAUSE: Duration = Duration::from_millis(200);
/// This many units, for each that there should be, may end before one of them has had a file.
const IN_VAIN: u32 = 5;
/// A unit that has not ended this long after everything was decided is killed: it is stopped, or hangs in its library.
const PATIENCE: Duration = Duration::from_secs(5);
/// The shortest time that a unit has to start, load its library and connect.
pub(super) const LEAST_START: Duration = Duration::from_secs(10);

/// The program that is a filter unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UnitCommand {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// One of the units.
#[derive(Debug)]
struct Place {
    child: Option<Child>,
    /// When it must have connected; `None` once it has.
    connects_by: Option<Instant>,
    /// When the replacement is started.
    due: Instant,
}

impl Place {
    fn has(&self, pid: u32) -> bool {
        self.child.as_ref().is_some_and(|child| child.id() == pid)
    }
}

/// Processes that filter.
#[derive(Debug)]
pub(super) struct Children {
    command: Option<UnitCommand>,
    places: Vec<Place>,
    /// How long a unit may take to connect.
    start: Duration,
    restarts: u64,
    /// How many ended in a row without any having had a file.
    in_vain: u32,
    /// When all files were decided; units that end after that are not restarted.
    over: Option<Instant>,
}

impl Children {
    /// Starts this many units, each of which must connect within `start`; none without a program.
    pub(super) fn new(command: Option<UnitCommand>, units: u32, start: Duration) -> Self {
        let units = if command.is_some() { units } else { 0 };
        let places = (0..units).map(|_| Place { child: None, connects_by: None, due: Instant::now() }).collect();
        Self { command, places, start, restarts: 0, in_vain: 0, over: None }
    }

    /// The number of replacements.
    pub(super) const fn restarts(&self) -> u64 {
        self.restarts
    }

    /// A unit has a file: units work.
    pub(super) const fn work(&mut self) {
        self.in_vain = 0;
    }

    /// All files are decided: units are no longer restarted, and units that do not end are killed after [`PATIENCE`].
    pub(super) fn finish(&mut self) {
        self.over.get_or_insert_with(Instant::now);
    }

    /// Whether none runs.
    pub(super) fn are_gone(&self) -> bool {
        self.places.iter().all(|place| place.child.is_none())
    }

    /// The unit with this process id has connected, if it is one of these.
    pub(super) fn connected(&mut self, pid: u32) {
        self.places.iter_mut().filter(|place| place.has(pid)).for_each(|place| place.connects_by = None);
    }

    /// Ends the unit with this process id, if it is one of these.
    pub(super) fn kill(&mut self, pid: u32) {
        if let Some(child) = self.places.iter_mut().find(|place| place.has(pid)).and_then(|place| place.child.as_mut())
        {
            // It may have ended by itself.
            let _ = child.kill();
        }
    }

    /// Starts what is due, and takes note of what has ended.
    ///
    /// # Errors
    /// If units cannot be started, or end again and again before they have a file.
    pub(super) fn tend(&mut self) -> Result<(), FilesError> {
        let Some(command) = &self.command else { return Ok(()) };
        let (now, most) = (Instant::now(), IN_VAIN * self.places.len() as u32);
        for place in &mut self.places {
            let ended = place.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                (place.child, place.connects_by, place.due) = (None, None, now + PAUSE);
                if self.over.is_none() {
                    self.restarts += 1;
                    self.in_vain += 1;
                }
                if self.in_vain > most {
                    return Err(FilesError::Units { times: self.in_vain, last: status.to_string() });
                }
            }
            let is_late = self.over.is_some_and(|since| now.duration_since(since) >= PATIENCE)
                || place.connects_by.is_some_and(|by| now >= by);
            if let Some(child) = place.child.as_mut().filter(|_| is_late) {
                // It may have ended by itself.
                let _ = child.kill();
            }
            if place.child.is_none() && now >= place.due && self.over.is_none() {
                let mut unit = Command::new(&command.program);
                // A separate process group: Ctrl-C at the terminal stops the run and must not reach the units.
                let started = unit.args(&command.arguments).stdin(Stdio::null()).process_group(0).spawn();
                place.child = Some(started.map_err(FilesError::system("start a filter unit by", &command.program))?);
                place.connects_by = Some(now + self.start);
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.places.iter_mut().filter_map(|place| place.child.as_mut()) {
            // One that has ended cannot be killed, and need not be.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_does_not_end_when_everything_is_decided_is_killed() {
        let command = UnitCommand { program: "sleep".into(), arguments: vec!["600".to_owned()] };
        let mut children = Children::new(Some(command), 2, LEAST_START);
        children.tend().expect("they are started");
        assert!(!children.are_gone());
        let since = Instant::now();
        while !children.are_gone() {
            children.finish();
            children.tend().expect("units start");
            assert!(since.elapsed() < PATIENCE * 4, "units still run");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(since.elapsed() >= PATIENCE, "they had time to end by themselves");
        assert_eq!(children.restarts(), 0);
    }

    #[test]
    fn a_unit_that_does_not_connect_is_killed_and_another_one_is_started() {
        let command = UnitCommand { program: "sleep".into(), arguments: vec!["600".to_owned()] };
        let mut children = Children::new(Some(command), 2, Duration::from_millis(300));
        children.tend().expect("they are started");
        let connected = children.places[0].child.as_ref().map(Child::id).expect("it runs");
        children.connected(connected);
        while children.restarts() < 2 {
            children.tend().expect("units start");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(children.places[0].has(connected), "the one that has connected stays");
    }
}
