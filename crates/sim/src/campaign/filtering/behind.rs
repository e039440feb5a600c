//! Filter units behind the builder units of a drawn system, in which everybody dies: these crash, hang and lie beside that.

use super::scenario::{Scenario, TIMEOUT};
use super::unit::{Notes, SimulatedUnit};
use ropewalk_flow::filter::{FarmConfig, StreamConfig, Streams};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_memory::Staging;
use ropewalk_node::drive::{FilterLink, Filtering, RESULT_BYTES};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is accepted goes to one stream, and what nobody could decide to that of errors.
pub(in super::super) fn streams() -> Streams {
    Streams::new(vec![StreamConfig::everything()], true).expect("they make sense")
}

/// The filter units of a life of a builder unit with so many slots.
pub(in super::super) fn filtering(scenario: &Scenario, slots: u32) -> Filtering {
    let notes = Arc::new(Mutex::new(Notes::default()));
    let unit = |index| Box::new(SimulatedUnit::new(scenario, index, Arc::clone(&notes))) as Box<dyn FilterLink>;
    let supervision = SupervisorConfig {
        timeout: TIMEOUT,
        start_timeout: Duration::from_secs(2),
        restart_delay: Duration::from_millis(50),
        restarts: scenario.restarts,
    };
    let results = Staging::new(super::super::stand::pool("results", RESULT_BYTES, slots as usize + 1));
    let farm = FarmConfig { units: scenario.units, slots, supervision };
    Filtering::units(farm, (0..scenario.units).map(unit).collect(), streams(), results)
}
