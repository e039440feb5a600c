//! `bench monitoring`: a run that is looked at as run control does for its page, beside the same run at which nobody looks. What data threads count
//! they count in both: that cannot be left out.

use crate::BenchError;
use crate::pairs::alternate;
use crate::run::{RunPlan, USUAL_POOL_MIB, scratch};
use crate::session::{Row, Session, case};
use ropewalk_limits::SlinkConfig;
use ropewalk_monitor::alarms::{Alarms, built_in};
use ropewalk_monitor::bottleneck::Finder;
use ropewalk_monitor::history::History;
use ropewalk_monitor::incidents::{IncidentObserver, Incidents};
use ropewalk_monitor::prometheus;
use ropewalk_node::run::RunHandle;
use serde_json::json;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a session looks at its run.
const LOOK: Duration = Duration::from_millis(10);
/// Looks from one sample to the next, and samples from one look of the readers to the next.
const LOOKS: u32 = 50;
const SAMPLES: u32 = 2;
const NOTE: &str = "limit: the same run at which nobody looks, in turns";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    for bytes in [256, 2048] {
        let sender = SlinkConfig { fragment_bytes: bytes, ..SlinkConfig::default() };
        let case = case([("sources", json!(sender.streams)), ("fragment_bytes", json!(bytes))]);
        if !session.wants(&case) {
            continue;
        }
        let plan = RunPlan {
            sender,
            builders: 1,
            check_crc: true,
            write: false,
            filter: "",
            warm_up: Duration::from_millis(scale.choose(20, 300, 500)),
            interval: Duration::from_millis(scale.choose(100, 3000, 6000)),
            // Whoever looks takes a processor away from somebody: from whom, the scheduler decides as it does for users.
            cpus: None,
            pool_mib: USUAL_POOL_MIB,
            output: scratch(&session.options.output, "monitoring"),
        };
        let watched = || Ok([plan.run_beside(&look)?.gigabytes_per_second]);
        let [series] = alternate(scale.choose(1, 5, 15), watched, || Ok([plan.run()?.gigabytes_per_second]))?;
        session.row(Row::of(&case, "GB/s", &series, NOTE))?;
    }
    Ok(())
}

/// Looks at a run as a session and run control do: at its state a hundred times a second, at every number twice a second, and once a second with all
/// readers and as text for Prometheus, which asks less often.
fn look(handle: &RunHandle, is_over: &AtomicBool) {
    let (mut finder, mut history) = (Finder::default(), History::default());
    let (mut observer, mut incidents) = (IncidentObserver::default(), Incidents::new(1_000));
    let mut alarms = Alarms::new(built_in()).ok();
    let (mut looks, mut samples) = (0_u32, 0_u32);
    while !is_over.load(Ordering::Relaxed) {
        black_box(handle.snapshot());
        looks += 1;
        if looks.is_multiple_of(LOOKS) {
            let sample = handle.sample();
            samples += 1;
            if samples.is_multiple_of(SAMPLES) {
                finder.observe(sample.clone());
                history.observe(sample.clone());
                if let Some(alarms) = &mut alarms {
                    alarms.observe(sample.clone(), finder.finding().map(|finding| finding.limit));
                }
                black_box(prometheus::text(&sample));
                observer.observe(sample, &mut incidents);
            }
        }
        std::thread::sleep(LOOK);
    }
    black_box((history.stretch(0, 1), incidents.search("")));
}
