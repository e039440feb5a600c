//! Run files and files of others, there and back.

use super::*;
use crate::file_based::documents::read_numbers;
use crate::foreign::{Converted, ForeignOptions, convert, inspect_foreign};
use crate::run_writer::RunWriter;
use crate::verify;
use proptest::prelude::*;
use ropewalk_engine::documents::{EndOfLumisection, EndOfRun, RawFile};
use ropewalk_terms::{Attempt, Utc};
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::frd::{EventHeader, FileHeader, encode_event};
use ropewalk_wire::run_file::{EventHead, FragmentEntry};
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicU32, Ordering};

/// A source's fragment.
type Sent = (u32, Vec<u8>);

const FRD: ExportFormat = frd(Version::V5);

const fn frd(version: Version) -> ExportFormat {
    ExportFormat::Frd(FrdOptions { version, files: None })
}

/// A directory of the test's own.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ropewalk-export-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("run")).expect("a temporary directory can be made");
        Self(path)
    }

    /// Where its run is.
    fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// A file with these bytes.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("it is ours");
        path
    }

    /// Makes its run of these files.
    fn convert(&self, files: &[PathBuf], format: Option<ForeignFormat>) -> Converted {
        convert(files, format, &self.run(), RunNumber(1)).expect("they can be read")
    }

    /// Makes files of its run: the report, and their bytes.
    fn export(&self, format: ExportFormat) -> Result<(Exported, Vec<Vec<u8>>), OfflineError> {
        let told = export(&[self.run()], format, &self.0)?;
        let read = |path: &PathBuf| std::fs::read(path).expect("it was written");
        Ok((told.clone(), told.files.iter().map(read).collect()))
    }

    fn refused(&self, format: ExportFormat) -> String {
        let error = self.export(format).expect_err("it does not fit").to_string();
        let left = std::fs::read_dir(&self.0).expect("it is ours").filter_map(Result::ok);
        let parts = left.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "part"));
        assert_eq!(parts.count(), 0, "nothing half done is left");
        error
    }

    /// A run of these events, each with its key and its fragments.
    fn write(&self, sources: &[(u32, SourceFormat)], events: &[(EventKey, Vec<Sent>)]) {
        let entry = |&(id, format): &(u32, SourceFormat)| SourceEntry { id: SourceId(id), format, name: String::new() };
        let sources = sources.iter().map(entry).collect();
        let mut writer = RunWriter::new(&self.run(), RunNumber(1), Utc(1), sources, String::new());
        for (key, parts) in events {
            let incarnation = writer.incarnation();
            let flags = EventFlags::default();
            let head = EventHead { key: *key, incarnation, attempt: Attempt(1), trigger_type: 0, flags };
            let fragments: Vec<_> = parts.iter().map(|(source, bytes)| (plain(*source), &bytes[..])).collect();
            writer.event(&head, &[], &fragments).expect("there is room");
        }
        writer.finish().expect("there is room");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plain(source: u32) -> FragmentEntry {
    FragmentEntry::bare(SourceId(source), 0, 0)
}

fn fragment(source: u32, event: u32, words: usize) -> Vec<u8> {
    ForeignFormat::Fed.emulate(source, event, &vec![event as u8; 8 * words]).expect("it is short").concat()
}

/// An event with the given header fields and data.
fn event(version: Version, number: u64, data: &[&[u8]], padding: &[u8]) -> Vec<u8> {
    let (run, lumisection) = (307_511, 3);
    let header = EventHeader {
        version,
        flags: 0,
        run,
        lumisection,
        event: number,
        data_bytes: 0,
        padding_bytes: 0,
        checksum: 0,
    };
    let mut bytes = Vec::new();
    encode_event(header, data, &mut bytes).expect("it fits");
    if version.has_padding() {
        let at = version.header_bytes() - 8;
        bytes[at..at + 4].copy_from_slice(&(padding.len() as u32).to_le_bytes());
        bytes.extend_from_slice(padding);
    }
    bytes
}

/// A file of these events, with a header.
fn file(events: &[Vec<u8>]) -> Vec<u8> {
    let file_bytes = 22 + events.iter().map(|event| event.len() as u64).sum::<u64>();
    [FileHeader { events: events.len() as u32, file_bytes }.to_bytes().to_vec(), events.concat()].concat()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn raw_data_come_back_byte_for_byte() {
    let data = |number: u32| [fragment(843, number, 3), fragment(841, number, number as usize)];
    for version in [Version::V3, Version::V4, Version::V5, Version::V6] {
        // Numbers that jump, go back and come twice: they stand in the headers, and the order is the file's.
        let events = [7_u32, 900, 12, 12].map(|number| {
            let [one, two] = data(number);
            event(version, number.into(), &[&one, &two], &vec![0xEE; number as usize % 5])
        });
        for bytes in [events.concat(), file(&events)] {
            let place = Place::new();
            let told = place.convert(&[place.file("in.raw", &bytes)], None);
            assert_eq!((told.format, told.events, told.fragments), ("frd", 4, 8), "{told:?}");
            assert_eq!((told.wrong_checksums, told.left_out, told.incomplete), (0, 0, 0));
            let (exported, files) = place.export(FRD).expect("it fits");
            assert_eq!(files, [bytes], "{version:?}");
            assert_eq!((exported.events, exported.fragments), (4, 8));
            let name = exported.files[0].file_name().expect("a name").to_string_lossy().into_owned();
            assert_eq!(name, "run307511_ls0003_index000000.raw");
        }
    }
}

#[test]
fn several_files_with_headers_come_back_as_several() {
    let events: Vec<_> = (1..6).map(|number| event(Version::V5, number, &[&fragment(1, 1, 2)], &[])).collect();
    let place = Place::new();
    let bytes = [file(&events[..2]), file(&[]), file(&events[2..])];
    let files: Vec<_> =
        bytes.iter().zip(0..).map(|(bytes, number)| place.file(&format!("{number}.raw"), bytes)).collect();
    assert_eq!(place.convert(&files, None).events, 5);
    assert_eq!(place.export(FRD).expect("it fits").1, bytes);
    // After the last event no event follows that could carry a header.
    let place = Place::new();
    let files = [place.file("0.raw", &bytes[0]), place.file("1.raw", &bytes[1])];
    let told = place.convert(&files, None);
    assert_eq!((told.events, told.left_out), (2, 1));
    assert_eq!(place.export(FRD).expect("it fits").1, [bytes[0].clone()]);
}

#[test]
fn what_is_wrong_in_raw_data_is_counted_and_comes_back_as_it_was() {
    let mut wrong = event(Version::V5, 1, &[&fragment(1, 1, 2)], &[]);
    wrong[20] ^= 1;
    let undivided = event(Version::V3, 2, &[b"no fragments at all"], b"pad");
    let empty = event(Version::V5, 3, &[], &[]);
    let mut fed_crc = fragment(5, 4, 2);
    fed_crc[12] ^= 1;
    let fed_crc = event(Version::V5, 4, &[&fed_crc], &[]);
    let bytes = [wrong, undivided, empty, fed_crc].concat();
    let place = Place::new();
    let told = place.convert(&[place.file("in.raw", &bytes)], Some(ForeignFormat::Frd));
    assert_eq!((told.events, told.wrong_checksums, told.skipped_bytes), (4, 2, 0), "{told:?}");
    assert_eq!(verify(&[place.run()]).expect("a run").crc_errors, 1, "the fragment's");
    assert_eq!(place.export(FRD).expect("it fits").1, [bytes]);
}

#[test]
fn a_headers_promise_is_compared_with_the_file() {
    let events: Vec<_> = (1..4).map(|number| event(Version::V5, number, &[&fragment(1, 1, 2)], &[])).collect();
    let good = file(&events);
    let faults = |bytes: &[u8]| {
        let place = Place::new();
        let report = inspect_foreign(&[place.file("in.raw", bytes)], &ForeignOptions::default()).expect("a file").0;
        assert_eq!(report.format, Some("frd"));
        report.faults.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(faults(&good), [""; 0]);
    assert_eq!(faults(&[&good[..], &good].concat()), [""; 0], "one file behind the other");
    let (mut fewer, mut shorter) = (good.clone(), good.clone());
    fewer[10] += 1;
    shorter[14] += 1;
    assert_eq!(faults(&fewer), ["the file's header counts other events than there are"]);
    assert_eq!(faults(&shorter), ["the file's header counts other bytes than there are"]);
    assert_eq!(faults(&[&good[..], &events[0]].concat()).len(), 2);
}

#[test]
fn a_run_of_fed_fragments_becomes_raw_data_and_comes_back() {
    let place = Place::new();
    let events: Vec<_> = (5..40)
        .map(|number: u64| {
            let parts = [843, 841].map(|source| (source, fragment(source, number as u32, number as usize % 7)));
            (EventKey::new(0, number), parts.to_vec())
        })
        .collect();
    place.write(&[(843, SourceFormat::FED), (841, SourceFormat::FED)], &events);
    let digest = verify(&[place.run()]).expect("a run").payload_sha256;
    for version in [Version::V3, Version::V4, Version::V5] {
        let back = Place::new();
        let told = export(&[place.run()], frd(version), &back.0).expect("they fit");
        assert_eq!((told.events, told.fragments, told.not_carried.len()), (35, 70, 0));
        let report = inspect_foreign(&told.files, &ForeignOptions::default()).expect("a file").0;
        assert!(report.is_intact() && report.checksums.right == 35, "{report:#?}");
        assert_eq!((report.sources[0].first_event, report.sources[0].last_event), (Some(5), Some(39)));
        let converted = back.convert(&told.files, None);
        assert_eq!((converted.events, converted.bytes), (35, told.fragment_bytes));
        assert_eq!(verify(&[back.run()]).expect("a run").payload_sha256, digest);
        // What is made of what comes back is what was read.
        let bytes = std::fs::read(&told.files[0]).expect("it was written");
        std::fs::remove_file(&told.files[0]).expect("it is ours");
        assert_eq!(back.export(FRD).expect("it fits").1, [bytes]);
    }
    // Raw: the sources in the order of the run.
    let expected: Vec<u8> =
        events.iter().flat_map(|(_, parts)| parts.iter().flat_map(|(_, bytes)| bytes.clone())).collect();
    let (told, files) = place.export(ExportFormat::Raw).expect("it fits");
    assert_eq!((files, told.not_carried.get("event numbers")), (vec![expected], Some(&(events.len() as u64))));
}

#[test]
fn events_are_divided_among_files_of_lumisections() {
    let place = Place::new();
    let events: Vec<_> =
        (1..=25_u64).map(|number| (EventKey::new(0, number), vec![(1, fragment(1, number as u32, 1))])).collect();
    place.write(&[(1, SourceFormat::FED)], &events);
    let files = RunFiles { events: 4, lumisection_events: 10 };
    let format = ExportFormat::Frd(FrdOptions { version: Version::V5, files: Some(files) });
    let (told, bytes) = place.export(format).expect("it fits");
    let directory = place.0.join("run000001");
    let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!(name(&told.files[3]), "run000001_ls0002_index000003.raw");
    let in_files = bytes.iter().map(|bytes| FileHeader::parse(bytes.first_chunk().expect("a header")));
    let in_files: Vec<u32> = in_files.map(|header| header.expect("a header").events).collect();
    assert_eq!(in_files, [4, 4, 2, 4, 4, 2, 4, 1]);
    let lumisection: EndOfLumisection =
        read_numbers(&directory.join("run000001_ls0003_EoLS.jsn")).expect("it was written");
    assert_eq!((lumisection.events, lumisection.files, lumisection.lost_events), (5, 2, 0));
    let run: EndOfRun = read_numbers(&directory.join("run000001_ls0000_EoR.jsn")).expect("it was written");
    assert_eq!(run, EndOfRun { events: 25, files: 8, lumisections: 3, last_lumisection: 3 });
    let file: RawFile = read_numbers(&directory.join("run000001_ls0001_index000002.jsn")).expect("it was written");
    assert_eq!(file, RawFile { events: 2, bytes: bytes[2].len() as u64 });
    assert!(["rawData.jsd", "EoLS.jsd", "EoR.jsd"].iter().all(|legend| directory.join(legend).exists()));
    assert!(place.refused(format).contains("run000001"), "nothing is written over");
}

/// Events that came out of such files are counted and divided as others are, under the number of the run that they are in now.
#[test]
fn events_that_were_in_files_are_divided_anew() {
    let bytes: Vec<u8> =
        (1..=25).flat_map(|number| event(Version::V5, number, &[&fragment(1, number as u32, 1)], b"")).collect();
    let place = Place::new();
    let converted = place.convert(&[place.file("in.raw", &bytes)], None);
    // What stood around the events was sent by no source.
    assert_eq!((converted.frames, converted.fragments, converted.sources), (25, 25, vec![1]));
    let files = RunFiles { events: 4, lumisection_events: 10 };
    let format = ExportFormat::Frd(FrdOptions { version: Version::V5, files: Some(files) });
    let (told, written) = place.export(format).expect("it fits");
    let directory = told.files[0].parent().expect("a directory").to_owned();
    let run = directory.file_name().expect("a name").to_string_lossy().into_owned();
    let end: EndOfRun = read_numbers(&directory.join(format!("{run}_ls0000_EoR.jsn"))).expect("it was written");
    assert_eq!(end, EndOfRun { events: 25, files: 8, lumisections: 3, last_lumisection: 3 });
    let name = told.files[3].file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!(name, format!("{run}_ls0002_index000003.raw"));
    assert_eq!(FileHeader::parse(written[0].first_chunk().expect("a header")).expect("a header").events, 4);
}

#[test]
fn lumisections_without_events_are_closed_too_and_too_many_of_them_are_refused() {
    let place = Place::new();
    let event = |number: u64| (EventKey::new(0, number), vec![(1, fragment(1, number as u32, 1))]);
    place.write(&[(1, SourceFormat::FED)], &[11, 12, 45].map(event));
    let wanted = |lumisection_events| {
        let files = Some(RunFiles { events: 4, lumisection_events });
        ExportFormat::Frd(FrdOptions { version: Version::V5, files })
    };
    let (told, _) = place.export(wanted(10)).expect("it fits");
    let directory = told.files[0].parent().expect("a directory");
    let end = |number: u32| directory.join(format!("run000001_ls{number:04}_EoLS.jsn"));
    let events: Vec<u64> =
        (2..=5).map(|number| read_numbers::<EndOfLumisection>(&end(number)).expect("it is closed").events).collect();
    assert_eq!((events, end(1).exists(), end(6).exists()), (vec![2, 0, 0, 1], false, false));
    let run: EndOfRun = read_numbers(&directory.join("run000001_ls0000_EoR.jsn")).expect("it was written");
    assert_eq!(run, EndOfRun { events: 3, files: 2, lumisections: 2, last_lumisection: 5 });
    let far = Place::new();
    far.write(&[(1, SourceFormat::FED)], &[1, 1_000_002].map(event));
    let error = far.refused(wanted(1));
    assert!(error.contains("lumisections 2 to 1000001 would be empty"), "{error}");
}

#[test]
fn a_lumisection_whose_number_does_not_fit_is_refused() {
    let place = Place::new();
    place.write(&[(1, SourceFormat::FED)], &[(EventKey::new(0, 1 << 40), vec![(1, fragment(1, 1, 1))])]);
    let files = RunFiles { events: 4, lumisection_events: 2 };
    let error = place.refused(ExportFormat::Frd(FrdOptions { version: Version::V4, files: Some(files) }));
    assert!(error.contains("event 1099511627776") && error.contains("let lumisections be longer"), "{error}");
}

#[test]
fn what_does_not_fit_into_raw_data_is_refused() {
    let run = |key, source: (u32, SourceFormat), bytes: Vec<u8>| {
        let place = Place::new();
        place.write(&[source], &[(key, vec![(source.0, bytes)])]);
        place
    };
    let far = run(EventKey::new(0, 1 << 32), (1, SourceFormat::FED), fragment(1, 1, 1));
    let error = far.refused(FRD);
    assert!(error.contains("event 4294967296") && error.contains("--frd-version 4"), "{error}");
    assert_eq!(far.export(frd(Version::V4)).expect("it fits").0.events, 1);
    let opaque = run(EventKey::new(0, 1), (7, SourceFormat::GENERIC), b"anything".to_vec()).refused(FRD);
    assert!(opaque.contains("source 7 sends generic fragments"), "{opaque}");
    let cut = run(EventKey::new(0, 1), (1, SourceFormat::FED), fragment(1, 1, 1)[..16].to_vec()).refused(FRD);
    assert!(cut.contains("the fragment of source 1"), "{cut}");
    let mut wrong = fragment(1, 1, 1);
    wrong[9] ^= 1;
    let wrong = run(EventKey::new(3, 1), (1, SourceFormat::FED), wrong).export(FRD).expect("it fits").0;
    assert_eq!((wrong.wrong_checksums, wrong.not_carried), (1, [("resync counts", 1)].into()));
    let there = run(EventKey::new(0, 1), (1, SourceFormat::FED), fragment(1, 1, 1));
    there.export(FRD).expect("it fits");
    assert!(there.refused(FRD).contains("exists"), "what is there is not written over");
}

#[test]
fn records_come_back_byte_for_byte() {
    let records: Vec<u8> = (1..30)
        .flat_map(|event| ForeignFormat::Mdf.emulate(3, event, &[7; 9]).expect("it is short").concat())
        .collect();
    let mut packed = ForeignFormat::Mdf.emulate(3, 40, &[7; 9]).expect("it is short").concat();
    packed[16] = 4;
    let bytes = [records, packed].concat();
    let place = Place::new();
    let told = place.convert(&[place.file("in.mdf", &bytes)], None);
    // Two sources each; and one that cannot be divided, whose checksum is wrong now.
    assert_eq!((told.format, told.events, told.fragments, told.wrong_checksums), ("mdf", 30, 29 * 2 + 1, 1));
    assert_eq!(place.export(ExportFormat::Mdf).expect("it fits").1, [bytes]);
}

#[test]
fn fragments_that_are_no_banks_are_wrapped_in_banks() {
    let place = Place::new();
    let banks = ForeignFormat::LhcbBanks.emulate(3, 1, b"data").expect("it is short").concat();
    let with_header = [&1_u16.to_le_bytes()[..], &(banks.len() as u16).to_le_bytes(), &banks].concat();
    let sources = [(3, SourceFormat::BANKS), (4, SourceFormat::BANKS), (65_535, SourceFormat::FED)];
    let largest = vec![9; 65_527];
    let parts = vec![(3, banks.clone()), (4, with_header), (65_535, largest.clone())];
    place.write(&sources, &[(EventKey::new(0, 1), parts)]);
    let (told, files) = place.export(ExportFormat::Mdf).expect("it fits");
    assert_eq!(told.not_carried, [("event numbers", 1)].into());
    let wrapped = [&b"\xCB\xCB\xFF\xFF\xFF\x00\xFF\xFF"[..], &largest, &[0]].concat();
    assert_eq!(files[0][48..], [&banks[..], &banks, &wrapped].concat());
    assert_eq!(ForeignFormat::Mdf.enclosed(&files[0]).expect("a record").members.len(), 2);
    for (source, format, bytes, why) in [
        (1, SourceFormat::FED, vec![0; 65_528], "65528 B"),
        (65_536, SourceFormat::FED, vec![0; 8], "16 bits"),
        (1, SourceFormat::BANKS, b"no bank".to_vec(), "whole banks"),
    ] {
        let place = Place::new();
        place.write(&[(source, format)], &[(EventKey::new(0, 1), vec![(source, bytes)])]);
        let error = place.refused(ExportFormat::Mdf);
        assert!(error.contains(why) && error.contains("event 1"), "{error}");
    }
}

#[test]
fn the_cms_files_go_there_and_back_and_keep_their_digest() {
    const DIGEST: &str = "cf4275b12a06f72972b35441c8941c7d0460f286e608d498625993de0f1b180f";
    let Some(data) = ropewalk_tidy::real_data("export::the_cms_files_go_there_and_back", "cms_csc") else { return };
    let names = ["csc_00307511_EmuRUI01_Local_000.raw", "csc_00307511_EmuRUI03_Local_000.raw"];
    let (first, second) = (Place::new(), Place::new());
    first.convert(&names.map(|name| data.join(name)), None);
    let (told, files) = first.export(FRD).expect("it fits");
    assert_eq!((told.events, told.fragments, told.fragment_bytes, files.len()), (4685, 9370, 4_327_200, 1));
    let report = inspect_foreign(&told.files, &ForeignOptions::default()).expect("a file").0;
    assert!(report.is_intact() && report.checksums.right == 4685, "{report:#?}");
    assert_eq!(report.sources[0].parts, [("FED fragment".to_owned(), 9370)].into());
    second.convert(&told.files, None);
    let verified = verify(&[second.run()]).expect("a run");
    assert_eq!((verified.events, verified.fragments, verified.payload_bytes), (4685, 9370, 4_327_200));
    assert_eq!((verified.payload_sha256.as_str(), verified.crc_errors), (DIGEST, 0));
    let (_, raw) = second.export(ExportFormat::Raw).expect("it fits");
    assert_eq!((raw[0].len(), sha256(&raw[0])), (4_327_200, DIGEST.to_owned()));
    assert_eq!(second.export(FRD).expect("it fits").1, files);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_raw_data_come_back_or_are_counted(
        events in prop::collection::vec((0..4_usize, any::<u32>(), 0..5_usize, 0..9_usize, any::<bool>()), 1..8),
        damage in prop::option::of((any::<prop::sample::Index>(), 0..8_u8)),
        cut in prop::option::of(any::<prop::sample::Index>()),
        with_header in any::<bool>(),
    ) {
        let versions = [Version::V3, Version::V4, Version::V5, Version::V6];
        let make = |&(version, number, fragments, padding, divided): &(usize, u32, usize, usize, bool)| {
            let mut data: Vec<_> = (0..fragments).map(|source| fragment(source as u32, number & 0xFF, source)).collect();
            if !divided {
                data.push(b"something else.".to_vec());
            }
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            event(versions[version], number.into(), &data, &vec![0xEE; padding])
        };
        let events: Vec<_> = events.iter().map(make).collect();
        let mut bytes = if with_header { file(&events) } else { events.concat() };
        let is_whole = damage.is_none() && cut.is_none();
        if let Some((at, bit)) = damage {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let place = Place::new();
        let told = place.convert(&[place.file("in.raw", &bytes)], Some(ForeignFormat::Frd));
        let back = place.export(FRD).expect("what came in fits").1.concat();
        if is_whole {
            prop_assert_eq!(&back, &bytes);
        } else {
            // What is lost is counted, and what is not lost comes back in its order.
            prop_assert!(back.len() as u64 + told.skipped_bytes <= bytes.len() as u64);
            prop_assert!(bytes.starts_with(&back), "events up to the damage");
        }
    }
}

/// FED data of an event whose fragments a run has lost: header and length are those of what is left.
#[test]
fn an_event_of_which_a_fragment_is_gone_gets_a_length_of_its_own() {
    let bytes = event(Version::V3, 17, &[&fragment(1, 17, 1), &fragment(2, 17, 2)], b"pad");
    let first = Place::new();
    first.convert(&[first.file("in.raw", &bytes)], None);
    let index = RunIndex::build(&[first.run()]).expect("a run");
    let (mut reader, second) = (index.reader(), Place::new());
    let found = reader.next_event().expect("it can be read").expect("an event");
    let parts: Vec<_> = found.event.fragments().map(|part| (part.entry.source.0, part.payload.to_vec())).collect();
    let sources = [(2, SourceFormat::FED), (ENVELOPE.0, SourceFormat::ENVELOPE)];
    second.write(&sources, &[(EventKey::new(0, 1), parts[1..].to_vec())]);
    let (told, files) = second.export(FRD).expect("it fits");
    assert_eq!(told.not_carried, [("the event's length, which is another one now", 1)].into());
    assert_eq!(files, [event(Version::V3, 17, &[&fragment(2, 17, 2)], b"")]);
}

/// No other format has a place for what a filter said, and no data are mixed with it.
#[test]
fn what_a_filter_said_is_left_out_and_counted() {
    let fed = fragment(1, 17, 4);
    let said = (SourceId::FILTER.0, b"what it said".to_vec());
    let sources = [(1, SourceFormat::FED), (SourceId::FILTER.0, SourceFormat::FILTER_RESULT)];
    let (with, without) = (Place::new(), Place::new());
    let key = EventKey::new(0, 17);
    with.write(&sources, &[(key, vec![(1, fed.clone()), said])]);
    without.write(&sources[..1], &[(key, vec![(1, fed)])]);
    for format in [FRD, ExportFormat::Mdf, ExportFormat::Raw] {
        let ((told, files), (_, wanted)) =
            (with.export(format).expect("it fits"), without.export(format).expect("it fits"));
        assert_eq!(told.not_carried.get("what a filter said"), Some(&1), "{format:?}");
        assert_eq!(files, wanted, "{format:?}");
    }
}
