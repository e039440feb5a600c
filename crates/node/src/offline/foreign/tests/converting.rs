//! Run files made of other people's files: what comes out is what `verify` reads.

use super::*;
use crate::offline::{RunIndex, verify};
use ropewalk_terms::RunNumber;
use ropewalk_wire::foreign::EMULATED_PACKING;
use std::path::PathBuf;

/// A source's fragment.
type Part = (u32, Vec<u8>);

/// A directory of the test's own, with files of these bytes in it.
struct Files {
    directory: PathBuf,
    files: Vec<PathBuf>,
}

impl Files {
    fn new(name: &str, files: &[Vec<u8>]) -> Self {
        let directory = std::env::temp_dir().join(format!("ropewalk-convert-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory can be made");
        let write = |(bytes, number): (&Vec<u8>, usize)| {
            let file = directory.join(format!("file{number}"));
            std::fs::write(&file, bytes).expect("it is ours");
            file
        };
        Self { files: files.iter().zip(1..).map(write).collect(), directory }
    }

    fn converted(&self, format: Option<ForeignFormat>) -> (Converted, crate::offline::VerifyReport) {
        let told = convert(&self.files, format, &self.directory, RunNumber(1)).expect("they can be read");
        (told, verify(&[&self.directory]).expect("it is a run"))
    }

    /// Each event's number, and its fragments in their order.
    fn events(&self) -> Vec<(u64, Vec<Part>)> {
        let index = RunIndex::build(&[&self.directory]).expect("the files are whole");
        let (mut reader, mut events) = (index.reader(), Vec::new());
        while let Some(found) = reader.next_event().expect("it can be read") {
            let fragments = found.event.fragments().map(|it| (it.entry.source.0, it.payload.to_vec())).collect();
            events.push((found.event.head().key.number(), fragments));
        }
        events
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn files_of_every_format_become_whole_events() {
    for &format in ForeignFormat::ALL {
        let of = |source: u32| {
            let frames = frames(format, source, 1..101);
            let packets: Vec<_> = frames.iter().map(|frame| udp(host(source as u8, 9), 19_522, frame)).collect();
            // Each source has a file of its own, one after the other; what needs datagrams is in captures.
            if format.needs_datagrams() { capture(&packets) } else { frames.concat() }
        };
        let files = Files::new(format.name(), &[of(3), of(5)]);
        let (told, verified) = files.converted(Some(format));
        let packing = if format == ForeignFormat::LhcbMep { u64::from(EMULATED_PACKING) } else { 1 };
        // Of whole events that fall apart: two fragments each. What stands around them is nobody's.
        let (events, fragments) = match format {
            ForeignFormat::Frd | ForeignFormat::Mdf => (200, 400),
            _ if format.holds_whole_events() => (200, 200),
            _ => (100 * packing, 200 * packing),
        };
        assert_eq!(
            (told.events, told.fragments, told.incomplete),
            (events, fragments, 0),
            "{}: {told:?}",
            format.name()
        );
        assert_eq!((told.duplicates, told.left_out, told.skipped_bytes), (0, 0, 0), "{}: {told:?}", format.name());
        assert_eq!((verified.events, verified.fragments, verified.payload_bytes), (events, fragments, told.bytes));
        assert_eq!((verified.incomplete, verified.crc_errors), (0, 0), "{}", format.name());
        assert!(!files.directory.join("convert.spool").exists());
    }
}

#[test]
fn what_comes_late_twice_or_not_at_all_has_its_place() {
    let dune = |source: u32, event: u32| {
        ForeignFormat::Dune.emulate(source, event, &[event as u8; 9]).expect("short").concat()
    };
    let order = [7_u32, 9, 8, 8, 10];
    let one: Vec<u8> = order.iter().flat_map(|&event| dune(1, event)).collect();
    let two: Vec<u8> = [7, 8, 10].iter().flat_map(|&event| dune(2, event)).collect();
    let files = Files::new("disorder", &[one, two]);
    let (told, verified) = files.converted(None);
    assert_eq!((told.events, told.incomplete, told.duplicates, told.fragments), (4, 1, 1, 7), "{told:?}");
    assert_eq!(verified.incomplete, 1);
    let events = files.events();
    // The first event is number 1, whatever the sources call it.
    assert_eq!(events.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(events[1].1, [(1, dune(1, 8)), (2, dune(2, 8))]);
    assert_eq!(events[2].1, [(1, dune(1, 9))]);
}

#[test]
fn events_of_which_segments_are_missing_are_left_out() {
    let of = |event| ForeignFormat::Ejfat.emulate(1, event, &[event as u8; 20_000]).expect("it is short");
    let mut packets: Vec<_> = (1..=9).flat_map(of).map(|segment| udp(host(7, 9000), 6006, &segment)).collect();
    packets.swap(0, 2);
    packets.remove(13);
    let (told, verified) = Files::new("segments", &[capture(&packets)]).converted(Some(ForeignFormat::Ejfat));
    assert_eq!((told.frames, told.events, told.left_out), (8, 8, 1), "{told:?}");
    assert!(verified.payload_bytes > 8 * 20_000, "{verified:?}");
}

#[test]
fn blocks_are_put_together_to_the_fragments_that_they_carry() {
    let payload = |event: u32| vec![event as u8; 8 * (1 + event as usize * 53 % 900)];
    let of = |source: u32| {
        (1..=60)
            .flat_map(|event| ForeignFormat::Ferol.emulate(source, event, &payload(event)).expect("short").concat())
            .collect()
    };
    let fed =
        |source: u32, event: u32| ForeignFormat::Fed.emulate(source, event, &payload(event)).expect("short").concat();
    let files = Files::new("blocks", &[of(841), of(843)]);
    let (told, verified) = files.converted(None);
    assert_eq!((told.format, told.events, told.fragments, verified.crc_errors), ("ferol", 60, 120, 0), "{told:?}");
    assert!(told.frames > 150, "some take several blocks: {told:?}");
    let events = files.events();
    assert!(
        events.iter().all(|(number, parts)| *parts == [841, 843].map(|source| (source, fed(source, *number as u32))))
    );
}

#[test]
fn narrow_counters_go_on_counting() {
    let fed = |event: u32| ForeignFormat::Fed.emulate(841, event & 0xff_ffff, &[1; 8]).expect("short").concat();
    let bytes: Vec<u8> = (0..20).flat_map(|event| fed(0xff_fff6 + event)).collect();
    let (told, verified) = Files::new("narrow", &[bytes]).converted(None);
    assert_eq!((told.events, verified.first_key.as_deref(), verified.last_key.as_deref()), (20, Some("1"), Some("20")));
}

#[test]
fn real_files_give_the_figures_that_are_known_of_them() {
    let Some(data) = ropewalk_tidy::real_data("converting::real_files", "cms_csc") else { return };
    let csc =
        ["csc_00307511_EmuRUI01_Local_000.raw", "csc_00307511_EmuRUI03_Local_000.raw"].map(|name| data.join(name));
    let mut files = Files::new("cms", &[]);
    files.files = csc.to_vec();
    let (told, verified) = files.converted(None);
    assert_eq!((told.events, told.fragments, told.bytes, told.incomplete), (4685, 9370, 4_327_200, 0));
    assert_eq!((verified.events, verified.crc_errors), (4685, 0));
    assert_eq!(verified.payload_sha256, "cf4275b12a06f72972b35441c8941c7d0460f286e608d498625993de0f1b180f");
    let data = data.parent().expect("it lies beside the others");
    for (file, events, fragments) in
        [("vmm/example_LET.pcapng", 100, 200), ("midas/run00407sub0000.mid.lz4", 8227, 8227)]
    {
        let mut files = Files::new("real", &[]);
        files.files = vec![data.join(file)];
        let (told, verified) = files.converted(None);
        assert_eq!((told.events, told.fragments, told.incomplete), (events, fragments, 0), "{file}");
        assert_eq!((verified.events, verified.incomplete), (events, 0), "{file}");
    }
}
