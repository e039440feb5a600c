//! `bench monitoring`: a run that is watched as run control does for its page, beside the same run without a viewer;
//! and the viewer's share of the process's processor time, which noise disturbs less than rates. Data threads count in
//! both, which cannot be avoided. A run without counter pages shows what writing them costs.

use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use ropewalk_doctor::run::{RunPlan, USUAL_POOL_MIB};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_limits::SlinkConfig;
use ropewalk_monitor::alarms::{Alarms, built_in};
use ropewalk_monitor::bottleneck::Finder;
use ropewalk_monitor::history::History;
use ropewalk_monitor::incidents::{IncidentObserver, Incidents};
use ropewalk_monitor::prometheus;
use ropewalk_monitor::quality::QualityMonitor;
use ropewalk_run::RunHandle;
use ropewalk_run::session::SamplingInterval;
use ropewalk_terms::Instant;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which a session looks at its run.
const LOOK: Duration = Duration::from_millis(10);
/// Interval at which the readers of samples look.
const OBSERVE: Duration = Duration::from_secs(1);
/// Each source needs room for its largest fragment and for two blocks.
const MANY_POOL_MIB: usize = 4096;
const NOTE: &str = "limit: the same run without a viewer, in turns; target: 0.99";
/// Data threads write their counts into no page.
const NO_PAGES: &str = "[monitor]\npages = \"none\"\n";
const PAGES_NOTE: &str = "limit: the same run whose nodes have no pages, in turns; target: 0.99";
const PAGES_TIME_NOTE: &str = "for each second of processor that the nodes' threads used; limit: the same run whose nodes have no pages; target: 0.99";
const TIME_NOTE: &str = "processor time of all but the thread that looks; limit: that of the process; target: 0.99";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let usual = SlinkConfig::default();
    // As many sources as a large experiment has at one event manager, which reports each of them to viewers.
    let many = SlinkConfig { streams: 700, ..usual };
    for (sender, bytes, pool_mib) in
        [(usual, 256, USUAL_POOL_MIB), (usual, 2048, USUAL_POOL_MIB), (many, 2048, MANY_POOL_MIB)]
    {
        let sender = SlinkConfig { fragment_bytes: bytes, ..sender };
        let case = case([("sources", json!(sender.streams)), ("fragment_bytes", json!(bytes))]);
        // A viewer takes a processor away from a data thread; the scheduler decides from which one, as for users.
        let usual = session.plan(sender, [100, 3000, 6000], "monitoring");
        let plan = RunPlan { check_crc: true, cpus: None, pool_mib, ..usual };
        pages(session, &plan, &case)?;
        session.measure(&case, |session| {
            let watched = || {
                let shares = Mutex::new(0.0);
                let ran = plan.run_beside(&|handle, is_over| *lock(&shares) = look(handle, is_over))?;
                Ok([ran.gigabytes_per_second, 1.0 - *lock(&shares)])
            };
            let alone = || Ok([plan.run()?.gigabytes_per_second, 1.0]);
            let [rates, times] = alternate(scale.choose(1, 5, 15), watched, alone)?;
            session.row(Row::of(&case, "GB/s", &rates, NOTE))?;
            let mut case = case.clone();
            case.insert("measured".to_owned(), json!("processor time"));
            session.row(Row::of(&case, "s/s", &times, TIME_NOTE))
        })?;
    }
    Ok(())
}

/// A run whose nodes have pages, in turns with the same run without.
fn pages(session: &mut Session<'_>, plan: &RunPlan, case: &Map<String, Value>) -> Result<(), BenchError> {
    let mut case = case.clone();
    case.insert("measured".to_owned(), json!("pages"));
    session.measure(&case.clone(), |session| {
        let measured = |plan: &RunPlan| {
            let ran = plan.run()?;
            Ok([ran.gigabytes_per_second, ran.per_processor_second])
        };
        let without = RunPlan { filter: NO_PAGES, ..plan.clone() };
        let repeats = session.options.scale.choose(1, 5, 15);
        let [rates, times] = alternate(repeats, || measured(plan), || measured(&without))?;
        session.row(Row::of(&case, "GB/s", &rates, PAGES_NOTE))?;
        case.insert("measured".to_owned(), json!("pages, processor time"));
        session.row(Row::of(&case, "GB/s", &times, PAGES_TIME_NOTE))
    })
}

fn lock(share: &Mutex<f64>) -> MutexGuard<'_, f64> {
    share.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processor seconds of this thread, or this process.
fn processor_seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Looks at a run as a session and run control do: whether it still runs, a hundred times a second; its state and every
/// number, at their [`SamplingInterval`]; and once a second all readers and the Prometheus text, which is requested
/// less often in practice. Returns its share of the process's processor time.
fn look(handle: &RunHandle, is_over: &AtomicBool) -> f64 {
    let (mut finder, mut history) = (Finder::default(), History::default());
    let mut quality = QualityMonitor::default();
    let (mut observer, mut incidents) = (IncidentObserver::default(), Incidents::new(1_000));
    let mut alarms = Alarms::new(built_in()).ok();
    let seconds = || [ClockId::ThreadCPUTime, ClockId::ProcessCPUTime].map(processor_seconds);
    let begun = seconds();
    let (mut numbers, mut samples) =
        (SamplingInterval::new(SamplingInterval::NUMBERS), SamplingInterval::new(SamplingInterval::SAMPLES));
    let mut observed = Instant::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let now = MonotonicClock.now();
        black_box(handle.progress());
        if numbers.is_due(now) {
            black_box(handle.snapshot());
            numbers.was_read(now, MonotonicClock.now());
        }
        let now = MonotonicClock.now();
        if samples.is_due(now) {
            let sample = Arc::new(handle.sample());
            samples.was_read(now, MonotonicClock.now());
            if now.since(observed) >= OBSERVE {
                observed = now;
                finder.observe(Arc::clone(&sample));
                history.observe(Arc::clone(&sample));
                if let Some(alarms) = &mut alarms {
                    quality.observe(Arc::clone(&sample));
                    alarms.observe(Arc::clone(&sample), finder.finding(), quality.quality());
                }
                black_box(prometheus::text(&sample));
                observer.observe(sample, &mut incidents);
            }
        }
        std::thread::sleep(LOOK);
    }
    black_box((history.stretch(0, 1), incidents.search("")));
    let ended = seconds();
    (ended[0] - begun[0]) / (ended[1] - begun[1]).max(f64::EPSILON)
}
