//! A broker and its units, in this process and over their socket.

use super::documents::*;
use super::*;
use ropewalk_config::{StreamSection, TriggerChoice};
use ropewalk_engine::documents::*;
use ropewalk_flow::files::{BrokerConfig, FileId, Work};
use ropewalk_flow::filter::{Builtin, BuiltinFilter};
use ropewalk_terms::{Attempt, RunNumber, TriggerBits};
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::frd::{self, EventHeader, FileHeader, Version};
use ropewalk_wire::run_file::StreamName;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// A run's directory of the test's own.
struct Run(PathBuf);

impl Run {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ropewalk-files-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("run000042")).expect("a temporary directory can be made");
        Self(path)
    }

    fn place(&self) -> Place {
        Place::open(&self.0.join("run000042")).expect("it is a run's")
    }

    /// Writes files of `events` events each, two in a lumisection, and closes the run. Returns the events by number.
    fn write(&self, files: u32, events: u32) {
        let place = self.place();
        for index in 0..files {
            let file = FileId { lumisection: 1 + index / 2, index };
            let numbers = index * events..(index + 1) * events;
            let bytes: Vec<u8> = numbers.flat_map(|number| event(number.into())).collect();
            let header = FileHeader { events, file_bytes: 22 + bytes.len() as u64 };
            std::fs::write(place.raw(file), [&header.to_bytes()[..], &bytes].concat()).expect("it is ours");
        }
        let directory = self.0.join("run000042");
        for lumisection in 1..=files.div_ceil(2) {
            let files = files.min(2 * lumisection) - 2 * (lumisection - 1);
            let written = u64::from(files * events);
            let end =
                EndOfLumisection { events: written, files: files.into(), total_events: written, ..Default::default() };
            write_numbers(&place.end_of_lumisection(lumisection), &end, "BU-0").expect("it is ours");
        }
        let end = EndOfRun { files: files.into(), ..Default::default() };
        write_numbers(&directory.join("run000042_ls0000_EoR.jsn"), &end, "BU-0").expect("it is ours");
    }

    /// Numbers of accepted events, in the order of the files, where there is one stream.
    fn accepted(&self) -> Vec<u64> {
        self.taken("selected")
    }

    /// Numbers of the events that a stream took, in the order of the files.
    fn taken(&self, stream: &str) -> Vec<u64> {
        let output = self.0.join("run000042/output");
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(output).expect("it is there").map(|entry| entry.expect("an entry").path()).collect();
        let part = format!("_stream{stream}_index");
        files.retain(|path| path.display().to_string().contains(&part));
        files.sort();
        let events = |path: &PathBuf| {
            let bytes = std::fs::read(path).expect("it is ours");
            let header = FileHeader::parse(bytes.first_chunk().expect("a header")).expect("a header");
            assert_eq!(header.file_bytes, bytes.len() as u64);
            let (mut at, mut numbers) = (22, Vec::new());
            while at < bytes.len() {
                let event = frd::Event::parse(&bytes[at..]).expect("an event");
                assert!(event.is_right());
                numbers.push(event.header().event);
                at += event.bytes().len();
            }
            assert_eq!(numbers.len(), header.events as usize);
            numbers
        };
        files.iter().flat_map(events).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn event(number: u64) -> Vec<u8> {
    let fragment = |source| ForeignFormat::Fed.emulate(source, number as u32, &[7; 16]).expect("it is short").concat();
    let header = EventHeader {
        version: Version::V5,
        flags: 0,
        run: 42,
        lumisection: 1,
        event: number,
        data_bytes: 0,
        padding_bytes: 0,
        checksum: 0,
    };
    let mut out = Vec::new();
    frd::encode_event(header, &[&fragment(841), &fragment(843)], &mut out).expect("it fits");
    out
}

/// A unit with these triggers and streams, as they are written on a command line.
fn unit(triggers: &[&str], streams: &[&str]) -> FilterUnit {
    let triggers: Vec<TriggerChoice> = triggers.iter().map(|text| text.parse().expect("a trigger")).collect();
    let streams: Vec<StreamSection> = streams.iter().map(|text| text.parse().expect("a stream")).collect();
    UnitTask::new(&triggers, None, &streams).load(RunNumber(42)).expect("it makes sense")
}

fn options(tries: u16, time_out: Duration) -> BrokerOptions {
    BrokerOptions { broker: BrokerConfig { tries, time_out, ..BrokerConfig::default() }, units: 0, unit: None }
}

/// Serves a run while `units` do something.
fn served(run: &Run, options: &BrokerOptions, units: impl FnOnce(&Place)) -> FilesSummary {
    let place = run.place();
    thread::scope(|scope| {
        let broker = scope.spawn(|| serve_files(&place, options, || false));
        // It listens a little later than its socket has a name.
        while place.connect().is_err() {
            thread::sleep(Duration::from_millis(2));
        }
        units(&place);
        broker.join().expect("it does not panic").expect("it can be served")
    })
}

/// Lets a unit work until the run is over.
fn one_works(mut unit: FilterUnit, place: &Place) -> u64 {
    let broker = place.connect().expect("the broker listens");
    unit.filter_files(place, broker).expect("the broker follows the protocol")
}

/// Lets three units work. All connect before one works: the first could end the run, and the broker with it.
fn three_work(unit: impl Fn() -> FilterUnit + Sync, place: &Place) {
    let brokers = [(); 3].map(|()| place.connect().expect("the broker listens"));
    thread::scope(|scope| {
        for broker in brokers {
            scope.spawn(|| unit().filter_files(place, broker).expect("the broker follows the protocol"));
        }
    });
}

/// A unit by hand.
struct ByHand {
    lines: std::io::Lines<BufReader<UnixStream>>,
    broker: UnixStream,
}

impl ByHand {
    fn new(place: &Place) -> Self {
        let broker = place.connect().expect("the broker listens");
        Self { lines: BufReader::new(broker.try_clone().expect("a socket")).lines(), broker }
    }

    fn take(&mut self) -> Work {
        writeln!(self.broker, "want").expect("it listens");
        match self.lines.next().expect("an answer").expect("a line").parse() {
            Ok(ToUnit::Give(work)) => work,
            other => panic!("a file is given: {other:?}"),
        }
    }
}

#[test]
fn units_filter_all_files_and_lumisections_add_up() {
    let run = Run::new();
    run.write(7, 30);
    let summary = served(&run, &options(3, Duration::from_secs(60)), |place| {
        three_work(|| unit(&["every = 10"], &[]), place);
    });
    assert_eq!((summary.files, summary.decided, summary.set_aside, summary.processed), (7, 7, 0, 210));
    assert!(summary.balanced, "{summary:#?}");
    assert_eq!((summary.streams[0].written, summary.lumisections.len()), (21, 4));
    assert_eq!(run.accepted(), (0..210).step_by(10).collect::<Vec<u64>>());
    assert!(!run.place().socket().exists());
    let sum: serde_json::Value = read_whole(&run.0.join("run000042/output/run000042_ls0001_EoLS.jsn")).expect("a sum");
    assert_eq!((&sum["processed"], &sum["streams"][0]["written"]), (&60.into(), &6.into()));
}

#[test]
fn a_unit_that_dies_in_the_middle_of_a_file_loses_and_doubles_nothing() {
    let run = Run::new();
    run.write(3, 20);
    let summary = served(&run, &options(3, Duration::from_secs(60)), |place| {
        let mut dead = ByHand::new(place);
        let work = dead.take();
        std::fs::write(place.stream_file(work, selected()), b"half of what it wanted to write").expect("it is ours");
        drop(dead);
        one_works(unit(&[], &[]), place);
    });
    assert_eq!((summary.decided, summary.given_back, summary.balanced), (3, 1, true), "{summary:#?}");
    assert_eq!(run.accepted(), (0..60).collect::<Vec<u64>>());
}

#[test]
fn a_unit_that_says_done_and_has_written_nothing_has_failed() {
    let run = Run::new();
    run.write(1, 20);
    let summary = served(&run, &options(2, Duration::from_secs(60)), |place| {
        let mut liar = ByHand::new(place);
        for _ in 0..2 {
            let work = liar.take();
            writeln!(liar.broker, "{}", FromUnit::Done(work)).expect("it listens");
        }
        assert!(liar.lines.next().is_none(), "nothing is left, and the broker ends");
    });
    // After two tries no unit gets it again: it is put aside for inspection, and its events are counted.
    assert_eq!((summary.decided, summary.set_aside, summary.balanced), (0, 1, true), "{summary:#?}");
    assert_eq!(summary.lumisections[0].set_aside, 20);
    assert!(run.0.join("run000042/error/run000042_ls0001_index000000.raw").exists());
}

#[test]
fn a_unit_that_hangs_is_dismissed_and_one_that_speaks_nonsense_too() {
    let run = Run::new();
    run.write(1, 20);
    let summary = served(&run, &options(3, Duration::from_millis(200)), |place| {
        let mut hangs = ByHand::new(place);
        hangs.take();
        assert!(hangs.lines.next().is_none(), "its connection is closed");
        let mut nonsense = ByHand::new(place);
        writeln!(nonsense.broker, "give me a file").expect("it listens");
        assert!(nonsense.lines.next().is_none_or(|line| line.is_err()), "the broker does not answer");
        one_works(unit(&[], &[]), place);
    });
    assert_eq!((summary.decided, summary.given_back, summary.balanced), (1, 1, true), "{summary:#?}");
}

#[test]
fn a_broker_goes_on_where_another_one_died() {
    let run = Run::new();
    run.write(4, 20);
    let place = run.place();
    place.prepare().expect("it is ours");
    let work = |index, attempt| Work { file: FileId { lumisection: 1 + index / 2, index }, attempt: Attempt(attempt) };
    // The first file was decided and not deleted; of the second one two tries began, and one of them was half written.
    let told = FilteredFile {
        attempt: 2,
        processed: 20,
        streams: vec![StreamFile { stream: "selected".to_owned(), ..Default::default() }],
        ..Default::default()
    };
    write_whole(&place.document(work(0, 2).file), &told).expect("it is ours");
    for leftover in [work(0, 1), work(1, 1), work(1, 2)] {
        std::fs::write(place.stream_file(leftover, selected()), b"left over").expect("it is ours");
    }
    let summary = served(&run, &options(3, Duration::from_secs(60)), |place| {
        one_works(unit(&[], &[]), place);
    });
    assert_eq!((summary.decided, summary.processed, summary.balanced), (4, 80, true), "{summary:#?}");
    assert_eq!(run.accepted(), (20..80).collect::<Vec<u64>>(), "the first file's events were all rejected");
    assert!(place.filtered(work(1, 0).file).expect("a document").attempt == 3);
    assert!(!place.raw(work(0, 0).file).exists());
}

#[test]
fn nothing_is_written_over_what_another_unit_wrote_for_the_same_try() {
    let run = Run::new();
    run.write(1, 20);
    let place = run.place();
    place.prepare().expect("it is ours");
    let work = Work { file: FileId { lumisection: 1, index: 0 }, attempt: Attempt(1) };
    let summary = served(&run, &options(3, Duration::from_secs(60)), |place| {
        // A unit whose broker died goes on behind the next broker's first look.
        std::fs::write(place.draft(work), b"of another unit").expect("it is ours");
        one_works(unit(&[], &[]), place);
    });
    // If the broker starts late, it finds the draft and begins with the second try.
    assert!(summary.decided == 1 && summary.given_back <= 1 && summary.balanced, "{summary:#?}");
    assert_eq!(place.filtered(work.file).expect("a document").attempt, 2);
    assert_eq!(run.accepted(), (0..20).collect::<Vec<u64>>());
}

#[test]
fn a_unit_that_does_not_ask_while_files_wait_is_closed() {
    let run = Run::new();
    run.write(2, 20);
    let summary = served(&run, &options(3, Duration::from_millis(100)), |place| {
        let silent = place.connect().expect("the broker listens");
        // One that has asked, and stands still behind its file.
        let mut stopped = place.connect().expect("the broker listens");
        writeln!(stopped, "want").expect("it listens");
        let mut given = String::new();
        BufReader::new(&stopped).read_line(&mut given).expect("it is given a file");
        writeln!(stopped, "{}", given.replace("give", "failed")).expect("it listens");
        for mut unit in [silent, stopped] {
            assert_eq!(std::io::copy(&mut unit, &mut std::io::sink()).expect("it is closed"), 0);
        }
        one_works(unit(&[], &[]), place);
    });
    assert_eq!((summary.decided, summary.given_back, summary.balanced), (2, 1, true), "{summary:#?}");
    assert_eq!(run.accepted(), (0..40).collect::<Vec<u64>>());
}

#[test]
fn units_that_end_before_they_have_a_file_end_the_broker() {
    let run = Run::new();
    run.write(1, 20);
    let unit = Some(("/bin/false".into(), Vec::new()));
    let options = BrokerOptions { units: 2, unit, ..options(3, Duration::from_secs(60)) };
    let error = serve_files(&run.place(), &options, || false).expect_err("no unit filters").to_string();
    assert!(error.contains("11 times in a row") && error.contains("exit status: 1"), "{error}");
}

#[test]
fn a_directory_has_one_broker() {
    let run = Run::new();
    let (place, stop, options) = (run.place(), AtomicBool::new(false), options(3, Duration::from_secs(60)));
    thread::scope(|scope| {
        let first = scope.spawn(|| serve_files(&place, &options, || stop.load(Ordering::Relaxed)));
        while !place.socket().exists() {
            thread::sleep(Duration::from_millis(2));
        }
        let second = serve_files(&place, &options, || stop.load(Ordering::Relaxed)).expect_err("there is one already");
        assert!(second.to_string().contains("another broker"), "{second}");
        stop.store(true, Ordering::Relaxed);
        let summary = first.join().expect("it does not panic").expect("it can be served");
        assert_eq!((summary.files, summary.balanced), (0, true));
    });
}

#[test]
fn a_damaged_file_is_set_aside_and_the_others_are_not_harmed() {
    let run = Run::new();
    run.write(2, 20);
    let path = run.place().raw(FileId { lumisection: 1, index: 0 });
    let mut bytes = std::fs::read(&path).expect("it is ours");
    bytes.truncate(bytes.len() - 5);
    std::fs::write(&path, bytes).expect("it is ours");
    let summary = served(&run, &options(2, Duration::from_secs(60)), |place| {
        one_works(unit(&[], &[]), place);
    });
    assert_eq!((summary.decided, summary.set_aside, summary.balanced), (1, 1, true), "{summary:#?}");
    let [first, second] = &summary.failures[..] else { panic!("each try says why: {summary:#?}") };
    assert!(first.contains("index000000.raw") && first.ends_with("(try 1)") && second.ends_with("(try 2)"), "{first}");
    assert_eq!(run.accepted(), (20..40).collect::<Vec<u64>>());
}

#[test]
fn documents_are_those_of_the_conventions() {
    let run = Run::new();
    let directory: &Path = &run.0;
    let path = directory.join("run000042_ls0001_index000007.jsn");
    write_numbers(&path, &RawFile { events: 100, bytes: 4096 }, "BU-3").expect("it is ours");
    let text = std::fs::read_to_string(&path).expect("it is ours");
    assert_eq!(text, "{\"data\":[\"100\",\"4096\"],\"definition\":\"rawData.jsd\",\"source\":\"BU-3\"}\n");
    assert_eq!(read_numbers::<RawFile>(&path).expect("it is whole"), RawFile { events: 100, bytes: 4096 });
    assert!(read_numbers::<EndOfRun>(&path).expect_err("it is another one").to_string().contains("LastLumi"));
    write_legend::<EndOfLumisection>(directory).expect("it is ours");
    let legend: serde_json::Value = read_whole(&directory.join("EoLS.jsd")).expect("it is whole");
    let names: Vec<&str> =
        legend["data"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["NEvents", "NFiles", "TotalEvents", "NLostEvents", "NBytes"]);
    assert!(!directory.join("EoLS.jsd.tmp").exists());
    std::fs::write(&path, "{\"data\":[\"-1\",\"2\"],\"definition\":\"\",\"source\":\"\"}").expect("it is ours");
    assert!(read_numbers::<RawFile>(&path).is_err());
    assert!(Place::open(directory).expect_err("it has another name").to_string().contains("run000042"));
}

#[test]
fn lines_come_back_as_they_were_written() {
    let work = Work { file: FileId { lumisection: 1, index: 7 }, attempt: Attempt(2) };
    let failed = |why: &str| FromUnit::Failed(work, why.to_owned());
    for word in [FromUnit::Want, FromUnit::Done(work), failed(""), failed("its end is missing")] {
        assert_eq!(word.to_string().parse(), Ok(word));
    }
    for word in [ToUnit::Give(work), ToUnit::Finish] {
        assert_eq!(word.to_string().parse(), Ok(word));
    }
    for text in ["", "want 1 2 3", "done", "done 1 2", "done 1 2 70000", "done 1 2 3 4", "give 1 2 3"] {
        assert_eq!(text.parse::<FromUnit>(), Err(NotALine), "{text:?}");
    }
}

#[test]
fn triggers_look_at_what_they_say() {
    let bytes = event(20);
    let event = FileEvent::new(frd::Event::parse(&bytes).expect("an event"));
    let passes = |text: &str| text.parse::<TriggerChoice>().expect(text).builtin().passes(&event);
    assert!(passes("all") && passes("every = 10") && !passes("every = 11"));
    assert!(passes("size = { least = \"64\", most = \"64\" }") && !passes("size = { least = \"65\" }"));
    assert!(passes("present = 843") && !passes("present = 844"));
    // Behind the header's eight bytes lies what was sent, seven in each byte.
    assert!(passes("bytes = { source = 841, offset = 8, mask = [255, 255], is = 0x0707 }"));
    assert!(!passes("bytes = { source = 841, offset = 7, mask = [255, 255], is = 0x0707 }"));
    assert!(!passes("bytes = { source = 841, offset = 40, mask = [255], at_least = 0 }"), "it ends before");
    assert!(passes("random = { share = 1.0 }") && !passes("random = { share = 0.0 }"));
    let both = BuiltinFilter::new(vec![Builtin::All, Builtin::Every(3), Builtin::Every(5)]).decide(&event);
    assert_eq!(both.triggers, TriggerBits::of(0).with(TriggerBits::of(2)));
}

const TRIGGERS: &[&str] = &["every = 2", "every = 7"];
const STREAMS: &[&str] =
    &["name = \"physics\"", "name = \"monitoring\", triggers = [0], prescale = 4", "name = \"rare\", triggers = [1]"];

#[test]
fn each_stream_takes_what_it_is_to_have_and_is_added_up_for_itself() {
    let run = Run::new();
    run.write(6, 30);
    let summary = served(&run, &options(3, Duration::from_secs(60)), |place| {
        three_work(|| unit(TRIGGERS, STREAMS), place);
    });
    assert!(summary.balanced, "{summary:#?}");
    let accepted: Vec<u64> = (0..180).filter(|number| number % 2 == 0 || number % 7 == 0).collect();
    assert_eq!((summary.accepted, run.taken("physics")), (accepted.len() as u64, accepted));
    assert_eq!(run.taken("rare"), (0..180).step_by(7).collect::<Vec<u64>>());
    let streams: Vec<_> = summary.streams.iter().map(|sum| (&*sum.stream, sum.selected, sum.written)).collect();
    let kept = run.taken("monitoring");
    assert_eq!(streams, [("monitoring", 90, kept.len() as u64), ("physics", 103, 103), ("rare", 26, 26)]);
    assert!(kept.len().abs_diff(90 / 4) <= 2 && kept.iter().all(|number| number % 2 == 0), "{kept:?}");
    assert_eq!(summary.streams[0].prescaled_away, 90 - kept.len() as u64);
    // For the consumer of a stream: the sum of the stream in a lumisection.
    let output = run.0.join("run000042/output");
    let sum: serde_json::Value = read_whole(&output.join("run000042_ls0002_streamrare.jsn")).expect("a sum");
    assert_eq!((&sum["selected"], &sum["written"]), (&9.into(), &9.into()), "60 to 119 has nine of them");
}

#[test]
fn a_prescale_keeps_the_same_events_with_any_unit_and_any_number_of_tries() {
    let kept = |deaths: usize| {
        let run = Run::new();
        run.write(6, 10);
        served(&run, &options(9, Duration::from_secs(60)), |place| {
            (0..deaths).for_each(|_| _ = ByHand::new(place).take());
            one_works(unit(TRIGGERS, STREAMS), place);
        });
        run.taken("monitoring")
    };
    assert_eq!(kept(0), kept(2));
    // One in four of 30: were the first one of each file kept, and one in four from there, it would be twelve.
    assert!((6..=9).contains(&kept(0).len()), "{:?}", kept(0));
}

#[test]
fn what_a_unit_says_of_streams_has_to_be_there_and_to_add_up() {
    let right = StreamFile { stream: "selected".to_owned(), selected: 3, prescaled_away: 2, written: 1, bytes: 9 };
    for wrong in [
        StreamFile { prescaled_away: 1, ..right.clone() },
        StreamFile { bytes: 10, ..right.clone() },
        StreamFile { stream: "other".to_owned(), ..right.clone() },
        StreamFile { stream: "no name".to_owned(), ..right.clone() },
        StreamFile { selected: 21, prescaled_away: 20, ..right.clone() },
        right,
    ] {
        let run = Run::new();
        run.write(1, 20);
        let is_right = wrong.prescaled_away == 2 && wrong.bytes == 9 && wrong.stream == "selected";
        let summary = served(&run, &options(2, Duration::from_secs(60)), |place| {
            let mut liar = ByHand::new(place);
            let work = liar.take();
            std::fs::write(place.stream_file(work, selected()), b"one event").expect("it is ours");
            let told = FilteredFile { attempt: 1, processed: 20, accepted: 20, ..Default::default() };
            write_whole(&place.draft(work), &FilteredFile { streams: vec![wrong.clone()], ..told }).expect("ours");
            writeln!(liar.broker, "{}", FromUnit::Done(work)).expect("it listens");
            if is_right {
                assert!(liar.lines.next().is_none(), "nothing is left, and the broker ends");
            } else {
                one_works(unit(&[], &[]), place);
            }
        });
        assert_eq!((summary.given_back, summary.balanced), (u64::from(!is_right), true), "{wrong:?}: {summary:#?}");
        assert_eq!(summary.streams[0].written, if is_right { 1 } else { 20 }, "{wrong:?}");
    }
}

#[test]
fn what_does_not_add_up_says_why_and_files_of_other_runs_are_named() {
    let run = Run::new();
    run.write(3, 20);
    let (place, directory) = (run.place(), run.0.join("run000042"));
    let end = EndOfLumisection { events: 41, files: 2, total_events: 41, ..Default::default() };
    write_numbers(&place.end_of_lumisection(1), &end, "BU-0").expect("it is ours");
    let more = EndOfLumisection { events: 40, files: 2, total_events: 40, ..Default::default() };
    write_numbers(&place.end_of_lumisection(2), &more, "BU-0").expect("it is ours");
    let other = "run000041_ls0002_index000003.raw";
    std::fs::write(directory.join(other), b"of another run").expect("it is ours");
    let summary = served(&run, &options(2, Duration::from_secs(60)), |place| {
        one_works(unit(&[], &[]), place);
    });
    let said = summary.unbalanced.join("\n");
    assert!(
        !summary.balanced && said.contains("lumisection 1: events written = processed + set aside: 41 and 40"),
        "{said}"
    );
    assert!(said.contains("lumisection 2: 2 files were written") && said.contains("and 1 of them"), "{said}");
    assert_eq!(summary.of_other_runs.iter().collect::<Vec<_>>(), [other]);
    assert!(directory.join(other).exists(), "it belongs to another run");
}

fn selected() -> StreamName {
    "selected".parse().expect("a name")
}
