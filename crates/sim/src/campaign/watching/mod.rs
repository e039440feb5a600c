//! Those who watch a run: alarms by random rules, and what limits it, each on runs that are made up.
//!
//! ```text
//!   AlarmCourse: blocks, limits, clerks ──► monitor's Alarms ──► states, changes      a referee knows what the documentation says of them
//!   LimitCourse: one trouble of a run ───► monitor's Finder ──► a sentence            must name the trouble and whose it is, in time
//! ```

mod alarms;
mod limits;
mod made_up;
mod trouble;

use super::broken::Broken;
use super::draw::Draw;

/// What is watched for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// Steps of alarms: looks, and what people do.
    pub steps: u64,
    /// Runs whose limits are looked for.
    pub runs: u64,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x0a1a);
        Self { seed, steps: draw.between(20, 200), runs: draw.between(1, 3) }
    }
}

/// Watches to the end.
///
/// # Errors
/// What does not hold.
pub fn watch(scenario: &Scenario) -> Result<(), Broken> {
    alarms::AlarmCourse::new(scenario.seed).run(scenario.steps)?;
    limits::LimitCourse::new(scenario.seed).run(scenario.runs)
}
