//! What a seed is: who takes part, how slow, and what goes wrong.

use super::super::draw::Draw;
use ropewalk_wire::front_end::{CONTROL_VERSION, Kind, OLDEST_CONTROL_VERSION};
use std::time::Duration;

/// How long run control waits for an answer here.
pub(super) const ANSWER: Duration = Duration::from_secs(1);
/// How long it waits at most for data that still leave.
pub(super) const DRAIN: Duration = Duration::from_secs(4);

/// What happens to a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// Its control connection breaks.
    Reset,
    /// Its control connection carries nothing more, and nobody says so.
    HalfOpen,
    /// It is killed, and started anew after this time.
    Kill(Duration),
}

/// A pause of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PauseSetting {
    /// Which run.
    pub run: usize,
    /// When it is paused, from its beginning.
    pub at: Duration,
    /// For how long.
    pub length: Duration,
}

/// A program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramSetting {
    /// A start waits for it.
    pub is_required: bool,
    /// How long it takes to answer a command.
    pub delay: Duration,
    /// In so many steps it sends the data of one event.
    pub steps_for_event: u64,
    /// It never answers this command.
    pub deaf_to: Option<Kind>,
    /// The version of the protocol that it speaks.
    pub version: u16,
}

/// A system and what goes wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The seed of all chances.
    pub seed: u64,
    /// The first one is the trigger source.
    pub has_trigger: bool,
    /// The programs.
    pub programs: Vec<ProgramSetting>,
    /// How long each run goes on until it is stopped.
    pub runs: Vec<Duration>,
    /// Run, time from its beginning, program, what happens.
    pub mishaps: Vec<(usize, Duration, usize, Mishap)>,
    /// Pauses, some of which the run's end overtakes.
    pub pauses: Vec<PauseSetting>,
    /// In this run the nodes drain by themselves after this time.
    pub nodes_drain: Option<(usize, Duration)>,
    /// This run is stopped by force.
    pub forced: Option<usize>,
}

impl Scenario {
    /// The scenario of a seed. In every fourth nothing goes wrong.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 40);
        let is_quiet = seed.is_multiple_of(4);
        let count = draw.between(2, 5) as usize;
        let runs: Vec<Duration> =
            (0..draw.between(1, 3)).map(|_| Duration::from_millis(draw.between(50, 2500))).collect();
        let deaf = (!is_quiet && draw.one_in(3)).then(|| draw.below(count as u64) as usize);
        let kinds = [Kind::Configure, Kind::Start, Kind::Enable, Kind::Veto, Kind::Stop];
        let programs = (0..count).map(|place| ProgramSetting {
            is_required: place == 0 || !draw.one_in(3),
            delay: draw.time(Duration::from_millis(1), Duration::from_millis(300)),
            steps_for_event: if draw.one_in(4) { 2 } else { 1 },
            deaf_to: if deaf == Some(place) { Some(draw.of(&kinds)) } else { None },
            version: CONTROL_VERSION,
        });
        let mut programs: Vec<ProgramSetting> = programs.collect();
        let mishap = |draw: &mut Draw| match draw.below(3) {
            0 => Mishap::Reset,
            1 => Mishap::HalfOpen,
            _ => Mishap::Kill(Duration::from_millis(draw.between(10, 1500))),
        };
        let mishaps = (0..if is_quiet { 0 } else { draw.below(5) }).map(|_| {
            let run = draw.below(runs.len() as u64) as usize;
            let at = Duration::from_millis(draw.below(runs[run].as_millis() as u64 + 1500));
            (run, at, draw.below(count as u64) as usize, mishap(&mut draw))
        });
        let mishaps: Vec<_> = mishaps.collect();
        let pauses = Self::draw_pauses(seed, &runs, &mut programs);
        let some_run = |draw: &mut Draw| draw.below(runs.len() as u64) as usize;
        Self {
            seed,
            has_trigger: !draw.one_in(6),
            nodes_drain: draw.one_in(6).then(|| (some_run(&mut draw), Duration::from_millis(draw.between(100, 2000)))),
            forced: (!is_quiet && draw.one_in(8)).then(|| some_run(&mut draw)),
            programs,
            runs,
            mishaps,
            pauses,
        }
    }

    /// Pauses, and programs that know nothing of them or do not answer: the choices of another stream, so that all else stays as it was.
    fn draw_pauses(seed: u64, runs: &[Duration], programs: &mut [ProgramSetting]) -> Vec<PauseSetting> {
        let mut draw = Draw::new(seed, 41);
        let count = if draw.one_in(3) { 0 } else { draw.between(1, 4) };
        let pauses = (0..count).map(|_| {
            let run = draw.below(runs.len() as u64) as usize;
            let at = Duration::from_millis(draw.below(runs[run].as_millis() as u64 + 1000));
            PauseSetting { run, at, length: draw.time(Duration::from_millis(5), Duration::from_millis(2500)) }
        });
        let pauses = pauses.collect();
        for (place, program) in programs.iter_mut().enumerate() {
            if draw.one_in(6) {
                program.version = OLDEST_CONTROL_VERSION;
            }
            if place == 0 && program.deaf_to.is_none() && !seed.is_multiple_of(4) && draw.one_in(8) {
                program.deaf_to = Some(draw.of(&[Kind::Hold, Kind::Release]));
            }
        }
        pauses
    }

    /// Whether nothing happens to a program in a run, and it answers everything.
    pub(super) fn is_reliable(&self, run: usize, place: usize) -> bool {
        // What happened in a run before may still have its effect.
        let strikes = |struck: usize| struck <= run;
        self.programs[place].deaf_to.is_none()
            && !self.mishaps.iter().any(|&(struck, _, whom, _)| whom == place && strikes(struck))
    }
}
