//! Transfer of closed run files by a command of the user: a script that copies, that lies, that fails, that hangs.

use crate::support::{FrontEnd, Held, Setup, expect_everything};
use ropewalk_run::TransferSummary;
use ropewalk_wire::run_file::Checksum;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SOURCE: u32 = 841;
const EVENTS: u64 = 60;
/// Number of events in each segment.
const SEGMENT: u64 = 20;
const SEGMENTS: u64 = EVENTS / SEGMENT;
/// Copies the file, and prints the checksum that its writer recorded beside it.
const COPY: &str = "cp \"$1\" \"$2\" && echo copied >&2 && cat \"$1.crc32c\"";

/// Returns a run of small segments with this script as its transfer command, and further keys; `$1` is the file, `$2`
/// the archive.
fn setup(name: &str, script: &str, keys: &str) -> (Setup, PathBuf) {
    let setup = Setup::new(name, &[SOURCE]);
    let archive = setup.directory().join("archive");
    fs::create_dir_all(&archive).expect("a directory can be made");
    let output = setup.output();
    let text = format!(
        "[run]\noutput = {output:?}\nsync = \"never\"\nsegment_events = {SEGMENT}\n[storage]\nchecksums = true\n\
         [storage.transfer]\ncommand = [\"sh\", \"-c\", '{script}', \"transfer\", \"{{file}}\", {archive:?}]\n{keys}\n"
    );
    (setup.and(&text), archive)
}

/// Executes a whole run of these events. Returns the transfers of its files.
fn run(setup: &Setup) -> TransferSummary {
    let run = setup.start(Some(EVENTS));
    let mut front_end = FrontEnd::ferol(&run.address(), SOURCE);
    front_end.send(1..=EVENTS);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    summary.transfer.expect("a transfer command is configured")
}

/// Returns the files in a directory and its subdirectories whose names have this ending, each with its checksum.
fn files(directory: &Path, end: &str) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if name.ends_with(end) {
            let mut checksum = Checksum::default();
            checksum.update(&fs::read(&path).expect("it can be read"));
            found.insert(name, checksum.value());
        }
    }
    found
}

#[test]
fn a_file_is_deleted_when_what_has_arrived_is_what_was_sent() {
    let (setup, archive) = setup("copies", COPY, "delete = true");
    let run = setup.start(Some(EVENTS));
    let mut front_end = FrontEnd::ferol(&run.address(), SOURCE);
    front_end.send(1..=EVENTS);
    let transfer = run.end().transfer.expect("a transfer command is configured");
    assert_eq!((transfer.transferred, transfer.deleted, transfer.failures, transfer.left), (SEGMENTS, SEGMENTS, 0, 0));
    assert!(transfer.bytes > 0 && transfer.last_failure.is_none());
    assert!(files(&setup.output(), ".rwk").is_empty() && files(&setup.output(), ".crc32c").is_empty());
    expect_everything(&[&front_end], &Held::in_directories(&[archive]), EVENTS);
}

#[test]
fn a_file_that_stays_is_transferred_once_whatever_starts_again() {
    let (setup, archive) = setup("stays", COPY, "");
    assert_eq!(run(&setup).transferred, SEGMENTS);
    let here = files(&setup.output(), ".rwk");
    assert_eq!((here.len() as u64, &files(&archive, ".rwk")), (SEGMENTS, &here));
    assert_eq!(files(&setup.output(), ".rwk.transferred").len() as u64, SEGMENTS);
    let again = run(&setup);
    assert_eq!((again.transferred, again.left), (SEGMENTS, 0), "those of the second run alone");
}

#[test]
fn a_wrong_checksum_deletes_nothing_and_is_reported() {
    let (setup, _) = setup("lies", "cp \"$1\" \"$2\" && echo 00000000", "delete = true");
    let transfer = run(&setup);
    assert_eq!((transfer.transferred, transfer.deleted, transfer.left), (0, 0, SEGMENTS));
    assert!(transfer.failures >= SEGMENTS, "{transfer:?}");
    let told = transfer.last_failure.expect("it is reported");
    assert!(told.contains("run000001-bu0-") && told.ends_with("what has arrived 00000000"), "{told}");
    assert_eq!(files(&setup.output(), ".rwk").len() as u64, SEGMENTS);
}

/// The destination is unavailable for a while, and only returns after the first run.
#[test]
fn what_was_not_transferred_is_found_again_by_the_next_start() {
    let script = "test -e \"$2/open\" || { echo closed >&2; exit 3; }; cp \"$1\" \"$2\" && cat \"$1.crc32c\"";
    let (setup, archive) = setup("fails", script, "delete = true\nat_once = 2");
    let transfer = run(&setup);
    assert_eq!((transfer.transferred, transfer.left), (0, SEGMENTS));
    let told = transfer.remark().expect("it is reported");
    assert!(told.starts_with("3 closed run files") && told.contains("exit status: 3: closed)"), "{told}");
    fs::write(archive.join("open"), "").expect("a file can be written");
    let transfer = run(&setup);
    assert_eq!((transfer.transferred, transfer.left, transfer.failures), (2 * SEGMENTS, 0, 0));
    assert_eq!(files(&archive, ".rwk").len() as u64, 2 * SEGMENTS);
    assert!(files(&setup.output(), ".rwk").is_empty());
}

/// It is ended together with its children, and the run with it.
#[test]
fn a_command_that_hangs_is_ended() {
    let (setup, archive) =
        setup("hangs", "echo $$ >> \"$2/processes\"; sleep 1000; :", "delete = true\ntimeout = \"300ms\"");
    let begin = Instant::now();
    let transfer = run(&setup);
    assert!(begin.elapsed() < Duration::from_secs(15), "the run ends");
    assert_eq!((transfer.transferred, transfer.left), (0, SEGMENTS));
    let told = transfer.last_failure.expect("it is reported");
    assert!(told.contains("it took longer than 300ms") || told.ends_with("was ended with the run"), "{told}");
    let processes = fs::read_to_string(archive.join("processes")).expect("it was begun");
    for process in processes.lines() {
        let group = format!("/proc/{process}");
        assert!(!Path::new(&group).exists(), "process {process} lives on");
    }
}

/// The command prints no checksum; another command provides it.
#[test]
fn a_second_command_tells_the_checksum() {
    let second = "checksum = [\"sh\", \"-c\", 'cat \"$1.crc32c\"', \"checksum\", \"{file}\"]";
    let (setup, archive) = setup("second", "cp \"$1\" \"$2\"", second);
    assert_eq!(run(&setup).transferred, SEGMENTS);
    assert_eq!(files(&archive, ".rwk").len() as u64, SEGMENTS);
}

/// One stream has a separate disk and is compressed, the other one is handed over. The files of both are transferred
/// from their places.
#[test]
fn each_stream_is_taken_from_where_it_is() {
    let (setup, archive) = setup("streams", COPY, "");
    let disk = setup.directory().join("disk");
    let streams = format!(
        "[[stream]]\nname = \"own\"\noutputs = [{disk:?}]\ncompress = \"lz4\"\n[[stream]]\nname = \"other\"\nhand_over = \"done\"\n"
    );
    let setup = setup.and(&streams);
    assert_eq!(run(&setup).transferred, 2 * SEGMENTS);
    let [own, other] = [disk.join("run000001"), setup.output().join("done")].map(|place| files(&place, ".rwk"));
    assert!(own.keys().all(|name| name.contains("-own-")) && other.keys().all(|name| name.contains("-other-")));
    assert_eq!((own.len() as u64, other.len() as u64), (SEGMENTS, SEGMENTS));
    assert_eq!(files(&archive, ".rwk"), own.into_iter().chain(other).collect());
    // The same events, compressed and not.
    let bytes = |directory: &Path| {
        let entries = fs::read_dir(directory).expect("it is there").flatten();
        let segments = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rwk"));
        segments.map(|entry| entry.metadata().map_or(0, |data| data.len())).sum::<u64>()
    };
    assert_ne!(bytes(&disk.join("run000001")), bytes(&setup.output().join("done")));
}
