//! Runs in quick succession leave nothing behind: no thread, no descriptor, no foreign directory.
//!
//! This is the only test in its process, so that all resources of the process belong to the runs. `ROPEWALK_RUNS=1000`
//! sets the number of consecutive runs of each kind.

use ropewalk_config::fields::Fields;
use ropewalk_config::parse;
use ropewalk_run::session::{
    AfterRun, Answer, Command, ControlHandle, Launcher, OperationState, Patience, Session, SessionConfig, SessionView,
};
use ropewalk_terms::SourceId;
use ropewalk_wire::{fed, ferol};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of consecutive runs of each kind.
const RUNS: u32 = 60;
const PATIENCE: Duration = Duration::from_secs(30);
/// Time without any change after which the setup counts as complete.
const SETTLED: Duration = Duration::from_secs(2);

/// Data of the runs.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Coming {
    /// Events of an emulated source, awaited in every other run.
    Events,
    /// No source is connected.
    Nothing,
    /// A source connects while its run is in progress, or already ends, and sends events. In every fifth run they are
    /// awaited.
    LateSource,
}

fn session(output: &Path, coming: Coming) -> Session {
    let source = if coming == Coming::Events { "emulate = { rate = \"20kHz\", fragment_size = \"128B\" }" } else { "" };
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\npool = \"8MiB\"\n[[builder]]\nname = \"bu0\"\n\
         bytes = \"8MiB\"\n[[source]]\nid = 1\nreadout = \"ru0\"\nmax_fragment = \"4KiB\"\non_close = \"end\"\n{source}\n",
        output.display().to_string()
    );
    let configuration = parse("many-runs", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let fields = Fields::default();
    let config = SessionConfig { after_run: AfterRun::Wait, is_single: false, patience: Patience::Configured, fields };
    Session::open(config, Arc::new(Launcher::new(configuration))).expect("a thread")
}

fn ask(control: &ControlHandle, command: Command) -> SessionView {
    let told = control.ask(command, "a test");
    assert_eq!(told.answer, Answer::Done, "{told:?} {:?}", control.journal_after(0));
    (*control.view()).clone()
}

fn wait(control: &ControlHandle, what: &str, is_so: impl Fn(&SessionView) -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so(&control.view()) {
        assert!(Instant::now() < until, "{what}: {:#?}", control.view());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn wait_for_events(control: &ControlHandle) {
    wait(control, "events", |view| view.snapshot.ledger.events.built > 0);
}

/// Connects to the readout unit so late that the run may be over, and sends three events.
fn come_late(view: &SessionView, run: u32) -> JoinHandle<()> {
    let (_, address) = view.addresses.iter().find(|(name, _)| name == "ru0").expect("it listens").clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(u64::from(run % 7) * 5));
        // The run may no longer listen, or close before the end.
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        let mut bytes = Vec::new();
        for event in 1..=3 {
            let mut fragment = Vec::new();
            let header = fed::Header::new(SourceId(1), event, 7);
            fed::encode(header, &[1; 80], fed::Trailer::new(), &mut fragment).expect("it is short");
            ferol::encode_fragment(&fragment, SourceId(1), event, &mut bytes);
        }
        let _ = stream.write_all(&bytes);
        std::thread::sleep(Duration::from_millis(u64::from(run % 5) * 4));
    })
}

fn entries(directory: impl AsRef<Path>) -> usize {
    std::fs::read_dir(directory).expect("it is there").count()
}

/// Returns the numbers of threads and descriptors of this process.
fn owned() -> (usize, usize) {
    (entries("/proc/self/task"), entries("/proc/self/fd"))
}

/// Returns the numbers of threads and descriptors once they have not changed for a while: threads open descriptors
/// after the answer to their creator, and some end after it.
fn settled() -> (usize, usize) {
    let (mut last, mut since) = (owned(), Instant::now());
    let until = since + PATIENCE;
    while since.elapsed() < SETTLED {
        assert!(Instant::now() < until, "threads and descriptors still come and go: {last:?}");
        std::thread::sleep(Duration::from_millis(10));
        let now = owned();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// Returns the targets of all descriptors of this process.
fn descriptors() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("it is there").flatten();
    let mut targets: Vec<_> = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    targets.sort();
    targets.into_iter().map(|target| target.display().to_string()).collect()
}

/// Executes this many runs. Returns the total number of built events.
fn take_runs(control: &ControlHandle, coming: Coming, runs: u32) -> u64 {
    let mut built = 0;
    for run in 1..=runs {
        let view = ask(control, Command::Start);
        let late = (coming == Coming::LateSource).then(|| come_late(&view, run));
        match coming {
            Coming::Events if run % 2 == 0 => wait_for_events(control),
            Coming::LateSource if run % 5 == 0 => wait_for_events(control),
            _ => {}
        }
        let view = ask(control, Command::Stop);
        let summary = view.last.as_deref().expect("an account");
        assert_eq!((summary.run, summary.is_balanced()), (run, true), "{coming:?}: {summary:#?}");
        assert!(summary.directory.join("run.json").is_file(), "{coming:?}, run {run}");
        built += summary.events.built;
        late.into_iter().for_each(|late| late.join().expect("it does what it can"));
    }
    built
}

/// The kinds run concurrently, each with its own session and directory: most of the time each session waits for its
/// sources.
#[test]
fn hundreds_of_runs_in_a_row_leave_nothing_behind() {
    let runs = std::env::var("ROPEWALK_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(RUNS);
    let parent = std::env::temp_dir().join(format!("ropewalk-many-runs-{}", std::process::id()));
    let sessions = [Coming::Events, Coming::Nothing, Coming::LateSource].map(|coming| {
        let output = parent.join(format!("{coming:?}"));
        std::fs::create_dir_all(&output).expect("a directory can be made");
        (coming, session(&output, coming), output)
    });
    for (_, session, _) in &sessions {
        ask(&session.control(), Command::Configure);
    }
    let (before, held) = (settled(), descriptors());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (coming, session, _) in &sessions {
            scope.spawn(move || {
                let built = take_runs(&session.control(), *coming, runs);
                assert_eq!(built > 0, *coming != Coming::Nothing, "{coming:?}");
                println!("{runs} runs, {coming:?}: {built} events, {:?}", begun.elapsed());
            });
        }
    });
    for (coming, session, _) in &sessions {
        // The next run is set up like the first one.
        let is_ready = |view: &SessionView| view.state == OperationState::Configured && view.task.is_none();
        wait(&session.control(), &format!("the run behind the last one, {coming:?}"), is_ready);
    }
    let until = Instant::now() + PATIENCE;
    while owned() != before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (now, hold) = (owned(), descriptors());
    assert_eq!(
        now, before,
        "threads and descriptors, behind {runs} runs of each kind and before them: {hold:#?} {held:#?}"
    );
    for (coming, session, output) in sessions {
        ask(&session.control(), Command::Shutdown);
        drop(session);
        // Plus the file with the number of the last run that began.
        assert_eq!(entries(&output), runs as usize + 1, "{coming:?}: what was set up for another one is gone");
    }
    std::fs::remove_dir_all(parent).expect("it is there");
}
