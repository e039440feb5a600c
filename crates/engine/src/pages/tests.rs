//! Pages from writer to reader: written, read, left behind, damaged.

use super::*;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::ReportEntry;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_terms::{Cause, Counter, Incarnation, Instant, RunNumber, SourceId, StreamIndex};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory of one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("ropewalk-pages-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        Self(directory)
    }

    fn open(&self, output: &str, life: u64) -> PageDirectory {
        PageDirectory::open(&PagesChoice::In(self.0.clone()), Path::new(output), Incarnation(life))
    }

    fn found(&self) -> Vec<PageReading> {
        let found = find(std::slice::from_ref(&self.0));
        assert!(found.errors.is_empty(), "{:?}", found.errors);
        found.pages
    }

    /// Restores the page that an orderly end removes, as if the process had been killed.
    fn killed(&self, page: NodePage) -> PathBuf {
        let living = self.found().into_iter().find(PageReading::is_written);
        let file = living.expect("it is the only one that lives").file().to_owned();
        let bytes = std::fs::read(&file).expect("it is there");
        drop(page);
        std::fs::write(&file, bytes).expect("it can be written");
        file
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn entry(source: Option<u32>, counter: Counter, value: u64) -> ReportEntry {
    ReportEntry { source: source.map(SourceId), what: counter as u16, value }
}

fn named(shown: &[Shown<'_>]) -> Vec<(String, u64)> {
    shown.iter().map(|one| (one.number.name.clone(), one.value)).collect()
}

fn of(name: &str, value: u64) -> (String, u64) {
    (name.to_owned(), value)
}

#[test]
fn a_page_has_the_numbers_of_its_node_and_sources_and_goes_with_it() {
    let scratch = Scratch::new("told");
    let directory = scratch.open("/data", 7);
    let rows = [843, 841].map(|id| OwnerLabel::source(SourceId(id)));
    let mut page = directory.page("ru0", PageRole::Readout, rows).expect("it can be made");
    let now = MonotonicClock.now();
    page.turn_begins(now);
    page.stands(RunNumber(5), RunPhase::Running);
    page.count(&entry(Some(843), Counter::FragmentsReceived, 10));
    page.count(&entry(Some(841), Counter::FragmentsReceived, 4));
    page.count(&entry(Some(841), Counter::LastEventNumber, 9));
    page.count(&ReportEntry { source: Some(SourceId(841)), what: ReportEntry::cause(Cause::CrcError), value: 3 });
    page.count(&entry(None, Counter::PoolHeld, 2));
    // The configuration has no such source, and pages have no histograms.
    page.count(&entry(Some(7), Counter::FragmentsReceived, 1000));
    page.count(&ReportEntry::histogram(SourceId(841), 0, 0, 1000));
    page.told(now);
    page.turn_ends(6);
    let found = scratch.found();
    let [read] = found.as_slice() else { panic!("{found:?}") };
    let label = read.label();
    assert_eq!((label.node.as_str(), label.role.as_str(), label.output.as_str()), ("ru0", "readout", "/data"));
    assert_eq!((label.pid, label.incarnation, read.is_written()), (std::process::id(), 7, true));
    assert_eq!((read.run(), read.phase(), read.turns(), read.state(now)), (5, "running", (1, 6), PageState::Turns));
    assert_eq!(
        named(&read.numbers(None)),
        [of("fragments_received", 14), of("pool_held", 2), of("dropped:crc_error", 3)],
        "what is of one alone is not added up"
    );
    let sources: Vec<_> = read.rows(OwnerKind::Source, None).map(|(row, shown)| (row.id, named(&shown))).collect();
    let first = vec![of("fragments_received", 4), of("last_event_number", 9), of("dropped:crc_error", 3)];
    assert_eq!(sources, [(841, first), (843, vec![of("fragments_received", 10)])]);
    assert_eq!(directory.trouble(), None);
    drop(page);
    assert!(scratch.found().is_empty(), "what ends in order leaves nothing behind");
}

#[test]
fn hanging_stopped_and_ended_threads_are_told_apart() {
    let scratch = Scratch::new("hangs");
    let page = scratch.open("/data", 1).page("bu0", PageRole::Builder, []).expect("it can be made");
    let at = |milliseconds: u64| Instant::from_nanoseconds(milliseconds * 1_000_000);
    let state = |now| scratch.found()[0].state(at(now));
    assert_eq!(state(90_000), PageState::Turns, "it was just made");
    page.turn_begins(at(1000));
    assert_eq!((state(1999), state(2000)), (PageState::Turns, PageState::Hangs(Duration::from_secs(1))));
    page.turn_ends(0);
    assert_eq!(state(4000), PageState::Stands(Duration::from_secs(3)));
    page.stands(RunNumber(1), RunPhase::Ended);
    assert_eq!(state(4000), PageState::Ended);
    page.stands(RunNumber(1), RunPhase::Draining);
    scratch.killed(page);
    assert_eq!(state(1001), PageState::Gone);
}

#[test]
fn rates_are_those_between_two_tellings_of_one_life() {
    let scratch = Scratch::new("rates");
    let mut page = scratch.open("/data", 1).page("bu0", PageRole::Builder, []).expect("it can be made");
    let tell = |page: &mut NodePage, seconds: u64, built, held| {
        page.count(&entry(None, Counter::EventsBuilt, built));
        page.count(&entry(None, Counter::PoolHeld, held));
        page.told(Instant::from_nanoseconds(seconds * 1_000_000_000));
        scratch.found().pop().expect("it is there")
    };
    let (first, second) = (tell(&mut page, 10, 100, 9), tell(&mut page, 12, 150, 3));
    let rates = |earlier| second.numbers(earlier).iter().map(|one| one.rate).collect::<Vec<_>>();
    assert_eq!(rates(Some(&first)), [Some(25.0), None], "what is held now has no rate");
    assert_eq!(rates(None), [None, None]);
    assert_eq!(rates(Some(&second)), [None, None], "there was no update since");
    drop(page);
    let mut another = scratch.open("/data", 2).page("bu0", PageRole::Builder, []).expect("it can be made");
    let third = tell(&mut another, 13, 1, 1);
    assert!(third.numbers(Some(&second)).iter().all(|one| one.rate.is_none()), "that was another life");
}

#[test]
fn a_node_that_starts_again_replaces_what_its_former_life_left_and_nothing_else() {
    let scratch = Scratch::new("again");
    let lost = scratch.killed(scratch.open("/data", 1).page("bu0", PageRole::Builder, []).expect("it can be made"));
    let living = scratch.open("/data", 2).page("bu0", PageRole::Builder, []).expect("it can be made");
    assert!(!lost.exists());
    let elsewhere = scratch.open("/other", 3);
    let (same_name, other_name) =
        (elsewhere.page("bu0", PageRole::Builder, []), scratch.open("/data", 4).page("bu1", PageRole::Builder, []));
    assert_eq!(scratch.found().len(), 3);
    drop((same_name, other_name, living));
    assert!(scratch.found().is_empty());
}

/// With hundreds of them a start would take as long as a second.
#[test]
fn of_what_others_left_behind_nothing_is_read() {
    let scratch = Scratch::new("others");
    let name = |output: &str| {
        let page = scratch.open(output, 1).page("bu0", PageRole::Builder, []).expect("it can be made");
        let file = scratch.found()[0].file().to_owned();
        drop(page);
        file
    };
    let files = ["/data", "/other"].map(name);
    let begin = |file: &Path| file.file_name().and_then(|name| name.to_str()).map(|name| name[..12].to_owned());
    assert_ne!(begin(&files[0]), begin(&files[1]), "names tell output directories apart");
    let fifo = files[1].with_file_name(format!("{}-1-1.page", begin(&files[1]).expect("a name")));
    // Opening it would wait for a writer that never comes.
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    drop(scratch.open("/data", 2).page("bu0", PageRole::Builder, []).expect("a page"));
    std::fs::remove_file(fifo).expect("it is there");
}

#[test]
fn living_nodes_are_found_before_gone_ones() {
    let scratch = Scratch::new("order");
    let killed = scratch.open("/data", 1).page("bu0", PageRole::Builder, []).expect("a page");
    killed.turn_begins(MonotonicClock.now());
    scratch.killed(killed);
    let _living = scratch.open("/other", 2).page("ru0", PageRole::Readout, []).expect("a page");
    let names = scratch.found().iter().map(|page| (page.label().node.clone(), page.is_written())).collect::<Vec<_>>();
    assert_eq!(names, [("ru0".to_owned(), true), ("bu0".to_owned(), false)]);
}

#[test]
fn what_was_left_behind_for_a_day_goes_when_any_node_starts() {
    let scratch = Scratch::new("day");
    let page = scratch.open("/data", 1).page("bu0", PageRole::Builder, []).expect("it can be made");
    page.turn_begins(MonotonicClock.now());
    let recent = scratch.killed(page);
    // It never turned, and its incarnation began when the clock of the machine was at one nanosecond.
    let old = scratch.killed(scratch.open("/data", 1).page("zz", PageRole::Builder, []).expect("it can be made"));
    // Yesterday's files, as both would be. But the first one's thread had a turn just now.
    let yesterday = std::time::SystemTime::now() - Duration::from_secs(25 * 3600);
    for file in [&recent, &old] {
        let file = std::fs::File::options().append(true).open(file).expect("it is there");
        file.set_modified(yesterday).expect("it is ours");
    }
    drop(scratch.open("/other", 2));
    assert!(recent.exists() && !old.exists());
    let [left] = scratch.found().try_into().expect("one is left");
    assert!(left.remove_if_left().expect("it can be removed") && !recent.exists());
    let _living = scratch.open("/data", 3).page("bu0", PageRole::Builder, []);
    assert!(!scratch.found()[0].remove_if_left().expect("it is there"));
    assert_eq!(scratch.found().len(), 1);
}

#[test]
fn where_no_page_can_be_had_that_is_said_once_and_nodes_go_without() {
    let scratch = Scratch::new("trouble");
    let file = scratch.0.join("file");
    std::fs::write(&file, "").expect("it can be written");
    let open = |choice| PageDirectory::open(&choice, Path::new("/data"), Incarnation(1));
    let broken = open(PagesChoice::In(file.join("below")));
    assert!(broken.page("bu0", PageRole::Builder, []).is_none() && broken.page("bu1", PageRole::Builder, []).is_none());
    let trouble = broken.trouble().expect("it is said");
    assert!(trouble.starts_with(&file.display().to_string()) && trouble.contains("[monitor] pages"), "{trouble}");
    let nowhere = open(PagesChoice::Nowhere);
    assert!(nowhere.page("bu0", PageRole::Builder, []).is_none() && nowhere.trouble().is_none());
}

#[test]
fn damaged_short_and_foreign_pages_are_named_and_the_others_are_read() {
    let scratch = Scratch::new("damaged");
    let _page =
        scratch.open("/data", 1).page("bu0", PageRole::Builder, [OwnerLabel::stream(StreamIndex(0), "physics")]);
    let good = std::fs::read(scratch.found()[0].file()).expect("it is there");
    let put = |name: &str, bytes: &[u8]| std::fs::write(scratch.0.join(name), bytes).expect("it can be written");
    put("empty.page", b"");
    put("foreign.page", &[b'x'; 4096]);
    put("short.page", &good[..good.len() - 1]);
    let replaced = |from: &str, to: &str| {
        let at = good.windows(from.len()).position(|window| window == from.as_bytes()).expect("it is in there");
        let mut bytes = good.clone();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    put("version.page", &replaced("ropewalk-counters-1", "ropewalk-counters-9"));
    put("label.page", &replaced("{\"form\"", "{{form\""));
    put("rows.page", &replaced("{\"of\":\"node\",\"id\":0},", &" ".repeat(21)));
    put("no page", b"");
    let found = find(std::slice::from_ref(&scratch.0));
    assert_eq!(found.pages.len(), 1);
    let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    let told = |name: &str, what: &str| errors.iter().any(|error| error.contains(name) && error.contains(what));
    assert!(told("empty.page", "cut short") && told("short.page", "cut short"), "{errors:#?}");
    assert!(told("foreign.page", "not a counter page"), "{errors:#?}");
    assert!(told("version.page", "read it with the program that wrote it"), "{errors:#?}");
    assert!(told("label.page", "damaged") && told("rows.page", "damaged"), "{errors:#?}");
    assert_eq!(errors.len(), 6);
    let missing = find(&[scratch.0.join("nowhere")]);
    assert!(missing.pages.is_empty() && missing.errors[0].is_not_found());
}

#[test]
fn a_report_has_each_number_by_its_name() {
    let scratch = Scratch::new("report");
    let rows = [OwnerLabel::stream(StreamIndex(0), "physics"), OwnerLabel::stream(StreamIndex(1), "rest")];
    let mut page = scratch.open("/data", 1).page("bu0", PageRole::Builder, rows).expect("it can be made");
    page.count(&entry(None, Counter::EventsBuilt, 8));
    page.count(&entry(Some(1), Counter::StreamSelected, 5));
    let report = PagesReport::new(&scratch.found(), &[], MonotonicClock.now());
    let json = serde_json::to_value(&report).expect("it can be written");
    let one = &json["pages"][0];
    assert_eq!((&one["node"], &one["state"], &one["phase"]), (&"bu0".into(), &"turns".into(), &"initial".into()));
    assert_eq!(one["numbers"], serde_json::json!({ "events_built": 8, "stream_selected": 5 }));
    assert_eq!(one["streams"], serde_json::json!({ "0": {}, "1": { "stream_selected": 5 } }));
    assert!(one["turned_ns"].is_null() && one["still_s"].is_null());
}
