//! What a seed is: when operators say what, how reliable the crew is, and how long everybody has.

use super::super::draw::Draw;
use ropewalk_flow::control::operation::{AfterRun, TaskLimits};
use std::time::Duration;

/// A sequence of runs and those who have it in their hands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// Commands that operators give.
    pub commands: u64,
    /// The longest time between two of them.
    pub pause: Duration,
    /// How long each task may take.
    pub limits: TaskLimits,
    /// What follows a run that ends by itself.
    pub after_run: AfterRun,
    /// One in so many tasks says no, fails, hangs, or ends after its time.
    pub trouble: Option<u64>,
    /// The longest time that a task takes otherwise.
    pub work: Duration,
    /// One run in so many ends by itself, and as many go wrong.
    pub own_end: Option<u64>,
    /// Those who give commands.
    pub operators: u64,
    /// One in so many times they turn to the controls before a command.
    pub turns: u64,
    /// Whoever gives no sign for so long loses the controls.
    pub silence: Duration,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x0be7);
        let mut limit = || draw.time(Duration::from_millis(100), Duration::from_secs(5));
        let limits = TaskLimits {
            prepare: limit(),
            begin: limit(),
            pause: limit(),
            drain: limit(),
            force: limit(),
            close: limit(),
        };
        Self {
            seed,
            commands: draw.between(5, 60),
            pause: draw.time(Duration::from_millis(1), Duration::from_secs(10)),
            limits,
            after_run: draw.of(&[AfterRun::Wait, AfterRun::Wait, AfterRun::Next, AfterRun::Over]),
            trouble: draw.one_in(2).then(|| draw.between(3, 20)),
            work: draw.time(Duration::from_micros(100), Duration::from_millis(300)),
            own_end: draw.one_in(2).then(|| draw.between(1, 6)),
            operators: draw.between(1, 4),
            turns: draw.between(2, 10),
            silence: draw.time(Duration::from_millis(10), Duration::from_secs(60)),
        }
    }
}
