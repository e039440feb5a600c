//! Files of every format, in every wrapping; damage; and the real files, with the figures that are known of them.

mod sniffing;

use super::*;
use crate::origin::tests::{noise, packed};
use crate::{RunIndex, verify};
use ropewalk_terms::{RunNumber, Status, Utc};
use ropewalk_wire::capture::{LinkType, encode_interface, encode_packet};
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::EMULATED_PACKING;
use ropewalk_wire::internet::{IpNumber, PacketBuilder};
use std::io::{Cursor, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

impl ForeignReport {
    /// Whether every byte belongs to a frame that is as it should be.
    pub(crate) fn is_intact(&self) -> bool {
        self.status.code != Status::Wrong as u8
    }
}

impl TrialReport {
    /// Whether every byte belongs to a frame that is as it should be.
    pub(crate) fn is_intact(&self) -> bool {
        self.status.code != Status::Wrong as u8
    }
}

/// What is in some bytes.
fn report(bytes: &[u8], format: Option<ForeignFormat>) -> Result<ForeignReport, OfflineError> {
    let options = ForeignOptions { format, ..ForeignOptions::default() };
    let input = Input::of(Path::new("memory"), Box::new(Cursor::new(bytes.to_vec())));
    inspect_inputs([input].into_iter(), &options).map(|(report, _)| report)
}

fn frames(format: ForeignFormat, source: u32, events: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    events.flat_map(|event| format.emulate(source, event, &[event as u8; 24]).expect("it is short")).collect()
}

/// A host of the captures.
fn host(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
}

fn ip(protocol: u8, source: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let addresses = PacketBuilder::ipv4(source.ip().octets(), host(1, 0).ip().octets(), 64);
    let mut packet = Vec::new();
    addresses.write(&mut packet, IpNumber(protocol), payload).expect("it is short");
    packet
}

fn udp(source: SocketAddrV4, port: u16, payload: &[u8]) -> Vec<u8> {
    let addresses = PacketBuilder::ipv4(source.ip().octets(), host(1, 0).ip().octets(), 64);
    let mut packet = Vec::new();
    addresses.udp(source.port(), port).write(&mut packet, payload).expect("it is short");
    packet
}

fn tcp(source: SocketAddrV4, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut segment = [source.port().to_be_bytes(), 5000_u16.to_be_bytes()].concat();
    segment.extend_from_slice(&sequence.to_be_bytes());
    segment.extend_from_slice(&[0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    segment.extend_from_slice(payload);
    ip(6, source, &segment)
}

fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    encode_interface(LinkType::RAW, &mut file);
    for (packet, time) in packets.iter().zip(0..) {
        encode_packet(Utc(1_000_000 * time), packet, &mut file);
    }
    file
}

fn streams() -> impl Iterator<Item = ForeignFormat> {
    ForeignFormat::ALL.iter().copied().filter(|format| !format.needs_datagrams())
}

#[test]
fn a_file_of_every_format_is_counted() {
    for format in streams() {
        let frames = frames(format, 3, 1..201);
        let found = report(&frames.concat(), Some(format)).expect("it can be read");
        assert_eq!((found.format, found.frames), (Some(format.name()), frames.len() as u64));
        assert!(found.is_intact() && found.is_complete(), "{found:#?}");
        assert_eq!((found.sources.len(), found.same_events), (1, false), "{found:#?}");
        let source = &found.sources[0];
        assert_eq!((source.duplicates, source.out_of_order, source.restarts), (0, 0, 0), "{source:#?}");
        assert!(!source.kinds.is_empty() && !source.parts.is_empty(), "{source:#?}");
    }
}

#[test]
fn sources_of_a_file_are_told_apart_and_their_events_compared() {
    for (later, same) in [(0, true), (1, false)] {
        let one = frames(ForeignFormat::Dune, 1, 0..100);
        let two = frames(ForeignFormat::Dune, 2, later..100 + later);
        let mixed: Vec<u8> = one.iter().zip(&two).flat_map(|(one, two)| [&one[..], two].concat()).collect();
        let found = report(&mixed, None).expect("it can be read");
        assert_eq!(found.sources.iter().map(|source| source.events).collect::<Vec<_>>(), [100, 100]);
        assert_eq!(found.same_events, same);
    }
}

#[test]
fn several_files_are_taken_together() {
    let inputs = [1, 2].map(|source| {
        let bytes = frames(ForeignFormat::Fed, source, 1..50).concat();
        Input::of(Path::new("memory"), Box::new(Cursor::new(bytes)))
    });
    let options = ForeignOptions { first_record: 60, records: 2, payload_bytes: 4, ..ForeignOptions::default() };
    let (found, records) = inspect_inputs(inputs.into_iter(), &options).expect("they can be read");
    assert_eq!((found.files.len(), found.frames, found.same_events), (2, 98, true));
    assert_eq!(found.checksums, Checksums { right: 98, wrong: 0 });
    assert_eq!(records.iter().map(|record| (record.number, record.offset)).collect::<Vec<_>>(), [(60, 440), (61, 480)]);
    let mut text = Vec::new();
    show_record(&records[0], &mut text).expect("a vector takes everything");
    let text = String::from_utf8(text).expect("it is a text");
    assert!(text.contains("frame 60 at 440: fragment, 40 B") && text.contains("L1 id = 12"), "{text}");
    assert!(text.contains("... 36 more bytes"), "{text}");
}

#[test]
fn a_packed_file_is_read_as_if_it_were_not() {
    let bytes = frames(ForeignFormat::Nscldaq, 3, 0..5000).concat();
    for (packing, packed) in packed(&bytes) {
        let found = report(&packed, None).expect("it can be read");
        assert_eq!((found.files[0].packing, found.files[0].bytes, found.frames), (packing, bytes.len() as u64, 5000));
        assert_eq!((found.files[0].packed, &found.files[0].cut_off, found.status.code), (true, &None, 0));
    }
}

#[test]
fn a_packed_file_that_is_cut_off_is_read_up_to_there_and_named() {
    // Payloads that do not pack: so that much stands before the cut.
    let noise = noise(400_000);
    let frames: Vec<Vec<u8>> = (0..100)
        .zip(noise.chunks_exact(4000))
        .flat_map(|(event, payload)| ForeignFormat::Artdaq.emulate(3, event, payload).expect("it is short"))
        .collect();
    let captured = capture(&frames.iter().map(|frame| udp(host(2, 77), 6000, frame)).collect::<Vec<_>>());
    for bytes in [frames.concat(), captured] {
        for (packing, packed) in packed(&bytes) {
            let found = report(&packed[..packed.len() - 1000], None).expect("it can be read");
            let why = found.files[0].cut_off.as_deref().unwrap_or_default();
            assert!(why.contains(packing.name()), "{packing:?}: {why}");
            assert!((1..100).contains(&found.frames), "{packing:?}: {} frames", found.frames);
            assert_eq!(found.status.reasons, [("inputs_cut_off", 1)].into(), "{packing:?}");
            assert_eq!(found.status.code, 3);
        }
        // Of what is cut off within its first bytes nothing can be read.
        let (_, gzip) = &packed(&bytes)[0];
        assert!(matches!(report(&gzip[..8], None), Err(OfflineError::Unreadable { .. })));
    }
}

#[test]
fn a_capture_that_ends_within_a_packet_says_so() {
    let packets: Vec<Vec<u8>> =
        frames(ForeignFormat::Ess, 1, 1..50).iter().map(|one| udp(host(2, 77), 9000, one)).collect();
    let whole = capture(&packets);
    let last = capture(&packets[..packets.len() - 1]).len();
    for end in [last + 1, last + 9, last + 30, whole.len() - 1] {
        let found = report(&whole[..end], None).expect("it can be read");
        assert_eq!((found.frames, found.files[0].cut_off_bytes), (48, (end - last) as u64));
        let why = found.files[0].cut_off.as_deref().unwrap_or_default();
        assert!(why.starts_with("the capture ends within a packet"), "{why}");
        assert_eq!(found.status.reasons, [("inputs_cut_off", 1)].into());
    }
}

#[test]
fn behind_bytes_that_a_capture_misses_frames_of_every_format_go_on() {
    for format in streams() {
        let noise = noise(20_000);
        let frames: Vec<Vec<u8>> = (1..=100)
            .zip(noise.chunks_exact(200))
            .flat_map(|(event, payload)| format.emulate(3, event, payload).expect("it is short"))
            .collect();
        let stream = frames.concat();
        let segments = stream.chunks(130).enumerate().filter(|(index, _)| ![40, 41, 60].contains(index));
        let packets: Vec<_> = segments.map(|(index, part)| tcp(host(2, 77), 1 + 130 * index as u32, part)).collect();
        let found = report(&capture(&packets), Some(format)).expect("it can be read");
        let mut at = 0;
        let is_whole = |frame: &&Vec<u8>| {
            at += frame.len();
            [(5200, 5460), (7800, 7930)].iter().all(|(from, to)| at <= *from || at - frame.len() >= *to)
        };
        let whole = frames.iter().filter(is_whole).count() as u64;
        assert_eq!((found.frames, found.skipped_bytes), (whole, 0), "{format:?}: {found:#?}");
        let capture = found.files[0].capture.as_ref().expect("it is one");
        assert_eq!(capture.missed_bytes, stream.len() as u64 - found.frame_bytes, "{format:?}: {found:#?}");
        let holes: Vec<_> = capture.holes.iter().map(|hole| (hole.hole.at, hole.hole.bytes)).collect();
        assert_eq!(holes, [(5200, 260), (7800, 130)], "{format:?}");
    }
}

#[test]
fn packets_that_cannot_be_read_are_counted_and_lead_to_a_status() {
    let mut packets: Vec<Vec<u8>> =
        frames(ForeignFormat::Ess, 1, 1..50).iter().map(|one| udp(host(2, 77), 9000, one)).collect();
    // An invalid length of an IP header.
    packets[7][0] = 0x42;
    let found = report(&capture(&packets), None).expect("it can be read");
    assert_eq!((found.frames, found.status.reasons.get("packets_unreadable")), (48, Some(&1)));
}

#[test]
fn datagrams_of_every_format_are_found_in_a_capture() {
    for &format in ForeignFormat::ALL.iter().filter(|&&format| format != ForeignFormat::Midas) {
        let hosts = [(7, 1), (8, 1), (8, 2)];
        let of_host = |(last, source)| frames(format, source, 2..42).into_iter().map(move |frame| (last, frame));
        let packets: Vec<_> = hosts.into_iter().flat_map(of_host).collect();
        let packets: Vec<_> = packets.iter().map(|(last, frame)| udp(host(*last, 9000), 6006, frame)).collect();
        let found = report(&capture(&packets), None).expect("it can be read");
        assert_eq!((found.format, found.frames), (Some(format.name()), packets.len() as u64));
        assert!(found.is_intact() && found.is_complete(), "{found:#?}");
        let sources = found.sources.iter().map(|source| (source.peer.as_deref().unwrap_or_default(), source.source));
        let [one, two] = ["10.0.0.7:9000", "10.0.0.8:9000"];
        let expected = match format {
            // They are events of all sources, and their frames say of none.
            ForeignFormat::Frd | ForeignFormat::Mdf => vec![(one, None), (two, None)],
            _ => vec![(one, Some(1)), (two, Some(1)), (two, Some(2))],
        };
        assert_eq!(sources.collect::<Vec<_>>(), expected);
        let capture = found.files[0].capture.as_ref().expect("it is one");
        assert_eq!(capture.packets, packets.len() as u64);
        assert_eq!(capture.first_time.as_deref(), Some("1970-01-01T00:00:00.000000000Z"));
    }
}

/// Three segments each, those of one source backwards and between those of the other; one does not come.
#[test]
fn events_of_several_datagrams_are_put_together() {
    let of = |source, event| ForeignFormat::Ejfat.emulate(source, event, &[event as u8; 20_000]).expect("it is short");
    let mut packets = Vec::new();
    for event in 1..=20 {
        let both = of(1, event).into_iter().rev().zip(of(2, event));
        packets.extend(both.flat_map(|(one, two)| [one, two]).map(|segment| udp(host(7, 9000), 6006, &segment)));
    }
    let found = report(&capture(&packets), Some(ForeignFormat::Ejfat)).expect("it can be read");
    assert!(found.is_intact() && found.is_complete() && found.same_events, "{found:#?}");
    assert_eq!((found.frames, found.sources.len(), found.sources[0].events), (40, 2, 20), "{found:#?}");
    assert_eq!(found.sources[0].kinds, [("event".to_owned(), 20)].into());
    assert!(found.sources.iter().all(|source| source.least_bytes > 20_000), "{found:#?}");
    packets.remove(3);
    let found = report(&capture(&packets), Some(ForeignFormat::Ejfat)).expect("it can be read");
    let capture = found.files[0].capture.as_ref().expect("it is one");
    assert_eq!((found.frames, capture.unfinished_frames), (39, 1), "{found:#?}");
    assert!(found.is_intact() && !found.is_complete(), "{found:#?}");
}

#[test]
fn connections_in_a_capture_are_put_in_order() {
    for format in streams().filter(|&format| format != ForeignFormat::Midas) {
        let stream = frames(format, 5, 1..60).concat();
        let segments = stream.chunks(50).zip(0..).map(|(chunk, index)| tcp(host(7, 99), 1000 + 50 * index, chunk));
        let mut packets: Vec<_> = segments.collect();
        let expected = report(&stream, Some(format)).expect("it can be read").frames;
        for swap in (1..packets.len() - 1).step_by(2) {
            packets.swap(swap, swap + 1);
        }
        let found = report(&capture(&packets), Some(format)).expect("it can be read");
        assert_eq!((found.frames, found.is_intact(), found.is_complete()), (expected, true, true), "{found:#?}");
    }
}

#[test]
fn what_is_no_frame_is_told_apart_in_a_capture() {
    let mut packets: Vec<_> =
        frames(ForeignFormat::Srs, 3, 0..10).iter().map(|frame| udp(host(7, 6006), 6006, frame)).collect();
    packets.insert(4, ip(1, host(9, 0), &packets[3].clone()));
    packets.insert(5, udp(host(7, 53), 53, b"a question"));
    packets.remove(7);
    let found = report(&capture(&packets), None).expect("it can be read");
    let capture = found.files[0].capture.clone().expect("it is one");
    assert_eq!((found.frames, &capture.aside), (9, &[("icmp", 1)].into()));
    assert_eq!(capture.other_datagrams, [(53, 1)].into());
    assert_eq!((found.sources[0].missing, found.is_intact(), found.is_complete()), (1, true, false));
}

#[test]
fn damage_is_counted_with_its_places() {
    let frames = frames(ForeignFormat::Dune, 1, 0..5);
    let stream = [&frames[0][..], b"garbage", &frames[1], &frames[2], &frames[4], &frames[4][..30]].concat();
    let found = report(&stream, None).expect("it can be read");
    assert_eq!((found.frames, found.skipped_bytes, found.left_over_bytes), (4, 7, 30));
    assert_eq!(found.first_faults[0].offset, frames[0].len() as u64);
    assert_eq!((found.sources[0].missing, found.is_intact()), (1, false));
    let mut wrong = frames_with_a_wrong_bank();
    let found = report(&wrong, Some(ForeignFormat::Midas)).expect("it can be read");
    assert_eq!(found.faults, [("a bank goes beyond its event".to_owned(), 1)].into());
    wrong.truncate(20);
    wrong[12..16].fill(0xFF);
    let found = report(&wrong, Some(ForeignFormat::Midas)).expect("it can be read");
    assert_eq!((found.faults, found.left_over_bytes), ([("oversize".to_owned(), 1)].into(), 20));
}

fn frames_with_a_wrong_bank() -> Vec<u8> {
    let mut stream = frames(ForeignFormat::Midas, 1, 0..3).concat();
    stream[32..36].copy_from_slice(&5000_u32.to_le_bytes());
    stream
}

#[test]
fn a_wrong_checksum_is_a_fault_of_its_source() {
    let mut stream = frames(ForeignFormat::Fed, 1, 1..4).concat();
    stream[9] ^= 1;
    let found = report(&stream, None).expect("it can be read");
    assert_eq!((found.frames, found.checksums), (3, Checksums { right: 2, wrong: 1 }));
    assert_eq!((found.sources[0].wrong_checksums, found.is_intact()), (1, false));
    assert_eq!(found.faults, [("crc_error".to_owned(), 1)].into());
}

#[test]
fn what_cannot_be_read_says_what_would_be_right() {
    let error = |bytes: &[u8], format| report(bytes, format).expect_err("it is nothing").to_string();
    assert!(error(b"something else altogether", None).contains("--format"));
    assert!(error(b"", None).contains("--format"));
    assert!(error(&capture(&[udp(host(7, 1), 1, b"nothing")]), None).contains("--format"));
    assert!(error(b"anything", Some(ForeignFormat::Srs)).contains("capture"));
    let missing = inspect_foreign(&["no-such-file"], &ForeignOptions::default()).expect_err("it is not there");
    assert!(missing.to_string().contains("no-such-file"));
}

#[test]
fn records_around_events_of_atlas_are_no_damage() {
    let separator: Vec<u8> = [0x1234_CCCC_u32, 4, 1, 500].iter().flat_map(|word| word.to_le_bytes()).collect();
    let events = frames(ForeignFormat::Atlas, 1, 0..5);
    let file: Vec<u8> = events.iter().flat_map(|event| [&separator[..], event].concat()).collect();
    let found = report(&file, Some(ForeignFormat::Atlas)).expect("it can be read");
    assert_eq!((found.frames, found.filler_bytes, found.skipped_bytes, found.is_intact()), (5, 80, 0, true));
    assert_eq!(found.sources[0].parts, [("ROB".to_owned(), 10), ("ROD".to_owned(), 10)].into());
}

/// The report of real files, unless `test` must be skipped.
fn real(test: &str, directory: &str, names: &[&str]) -> Option<ForeignReport> {
    let directory = ropewalk_tidy::real_data(test, directory)?;
    let paths: Vec<_> = names.iter().map(|name| directory.join(name)).collect();
    assert!(paths.iter().all(|path| is_foreign(path).expect("it can be read")));
    Some(inspect_foreign(&paths, &ForeignOptions::default()).expect("they can be read").0)
}

#[test]
fn the_cms_files_hold_what_is_known_of_them() {
    let names = ["csc_00307511_EmuRUI01_Local_000.raw", "csc_00307511_EmuRUI03_Local_000.raw"];
    let test = "foreign::tests::the_cms_files_hold_what_is_known_of_them";
    let Some(found) = real(test, "cms_csc", &names) else { return };
    assert_eq!((found.format, found.frames, found.frame_bytes), (Some("fed"), 9370, 4_327_200));
    assert_eq!(found.checksums, Checksums { right: 9370, wrong: 0 });
    assert!(found.is_intact() && found.is_complete() && found.same_events, "{found:#?}");
    for (source, (id, most)) in found.sources.iter().zip([(841, 23_104), (843, 10_544)]) {
        assert_eq!((source.source, source.frames, source.events), (Some(id), 4685, 4685));
        assert_eq!((source.first_event, source.last_event), (Some(1), Some(4685)));
        assert_eq!((source.least_bytes, source.most_bytes), (48, most));
    }
}

#[test]
fn the_ess_capture_holds_what_is_known_of_it() {
    let test = "foreign::tests::the_ess_capture_holds_what_is_known_of_it";
    let Some(found) = real(test, "vmm", &["example_LET.pcapng"]) else { return };
    assert_eq!((found.format, found.frames, found.same_events), (Some("ess"), 200, true));
    assert!(found.is_intact() && found.is_complete(), "{found:#?}");
    let pulse = |seconds: u64, ticks: u64| Some(seconds << 32 | ticks);
    for (source, (peer, readouts)) in
        found.sources.iter().zip([("192.168.10.1:9000", 12_431), ("192.168.10.2:9000", 13_189)])
    {
        assert!(source.peer.as_deref().is_some_and(|found| found.starts_with(&peer[..12])), "{source:#?}");
        assert_eq!((source.frames, source.events), (100, 100));
        assert_eq!((source.first_sequence, source.last_sequence), (Some(943_997), Some(944_096)));
        assert_eq!((source.first_event, source.last_event), (pulse(67_484, 1_619_617), pulse(67_491, 7_909_251)));
        assert_eq!(source.parts, [("readout".to_owned(), readouts)].into());
    }
    assert_eq!(found.sources.len(), 2);
}

#[test]
fn the_srs_capture_holds_what_is_known_of_it() {
    let test = "foreign::tests::the_srs_capture_holds_what_is_known_of_it";
    let Some(found) = real(test, "vmm", &["example_xyu.pcapng"]) else { return };
    assert_eq!((found.format, found.frames), (Some("srs"), 50));
    assert!(found.is_intact(), "{found:#?}");
    let sources =
        found.sources.iter().map(|source| (source.peer.clone().unwrap_or_default(), source.source, source.frames));
    let expected = [("10.0.0.6:6006".to_owned(), Some(6), 29), ("10.0.0.7:6006".to_owned(), Some(7), 21)];
    assert_eq!(sources.collect::<Vec<_>>(), expected);
}

#[test]
fn the_midas_run_holds_what_is_known_of_it() {
    let test = "foreign::tests::the_midas_run_holds_what_is_known_of_it";
    let Some(found) = real(test, "midas", &["run00407sub0000.mid.lz4"]) else { return };
    assert_eq!((found.format, found.frames), (Some("midas"), 8227));
    assert_eq!((found.files[0].bytes, found.files[0].packed), (793_827, true));
    assert!(found.is_intact() && found.is_complete(), "{found:#?}");
    let ids = found.sources.iter().map(|source| (source.source.unwrap_or_default(), source.frames));
    assert_eq!(ids.collect::<Vec<_>>(), [(1, 8192), (2, 13), (3, 13), (4, 7), (0x8000, 1), (0x8001, 1)]);
    let detector = &found.sources[0];
    assert_eq!((detector.first_event, detector.last_event), (Some(0), Some(8191)));
    assert_eq!(detector.parts, [("bank PMT".to_owned(), 8172), ("bank PPS".to_owned(), 20)].into());
    // Slow equipments went on counting from the run before, until this one began.
    let anew = found.sources.iter().map(|source| (source.restarts, source.out_of_order));
    assert_eq!(anew.collect::<Vec<_>>(), [(0, 0), (1, 0), (1, 0), (1, 0), (0, 0), (0, 0)]);
    assert_eq!(found.sources[4].kinds, [("begin of run".to_owned(), 1)].into());
}

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

    fn converted(&self, format: Option<ForeignFormat>) -> (Converted, crate::VerifyReport) {
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
        // Whole events fall apart into two fragments each. The data around the fragments belongs to no source.
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
    // The first event is number 1, with any numbers of the sources.
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

/// A file in the system's temporary directory, removed when it is dropped.
struct Temporary(std::path::PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("ropewalk-replaying-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a file can be written");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn options(target: Target) -> ForeignReplayOptions {
    ForeignReplayOptions { target, pace: Pace::Most, port: None, format: None, by: None, times: 1 }
}

fn receiver() -> (UdpSocket, Target) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time above 0");
    let target = Target::Udp(socket.local_addr().expect("it is bound"));
    (socket, target)
}

fn received(socket: &UdpSocket, count: usize) -> Vec<(IpAddr, Vec<u8>)> {
    let mut room = [0; 2048];
    let mut next = || socket.recv_from(&mut room).map(|(bytes, from)| (from.ip(), room[..bytes].to_vec()));
    (0..count).map(|_| next().expect("it was sent")).collect()
}

#[test]
fn datagrams_go_out_in_order_from_an_address_for_each_sender() {
    let sent: Vec<(u8, Vec<u8>)> = (0..20).map(|index| (7 + index % 2, vec![index; 30])).collect();
    let mut packets: Vec<_> = sent.iter().map(|(last, bytes)| udp(host(*last, 9000), 9001, bytes)).collect();
    packets.insert(3, udp(host(9, 53), 53, b"another service"));
    packets.insert(5, ip(1, host(9, 0), b"a complaint"));
    packets.insert(9, tcp(host(9, 80), 1, b"a connection"));
    let file = Temporary::new("order", &capture(&packets));
    let (socket, target) = receiver();
    let wanted = ForeignReplayOptions { port: Some(9001), times: 2, ..options(target) };
    let played = replay_foreign(&file.0, &wanted).expect("it goes out");
    assert_eq!((played.messages, played.bytes), (40, 1200));
    assert_eq!(played.aside, [("icmp", 2), ("other_port", 4)].into());
    let locals = played.lines.iter().map(|(peer, local)| (peer.as_str(), local.ip().to_string()));
    let expected = [("10.0.0.7:9000", "127.0.0.7".to_owned()), ("10.0.0.8:9000", "127.0.0.8".to_owned())];
    assert_eq!(locals.collect::<Vec<_>>(), expected);
    let expected = sent.iter().map(|(last, bytes)| (IpAddr::from([127, 0, 0, *last]), bytes.clone()));
    let expected: Vec<_> = expected.collect();
    assert_eq!(received(&socket, 40), [expected.clone(), expected].concat());
}

/// Sources that name the addresses of their boards know them again.
#[test]
fn boards_with_addresses_of_this_machine_send_from_them_again() {
    let own = SocketAddrV4::new(Ipv4Addr::new(127, 1, 2, 3), 9000);
    let file = Temporary::new("own", &capture(&[udp(own, 9001, b"one"), udp(host(7, 9000), 9001, b"two")]));
    let (socket, target) = receiver();
    replay_foreign(&file.0, &options(target)).expect("it goes out");
    let from = |address: [u8; 4], bytes: &[u8]| (IpAddr::from(address), bytes.to_vec());
    assert_eq!(received(&socket, 2), [from([127, 1, 2, 3], b"one"), from([127, 0, 0, 7], b"two")]);
}

/// A thread that returns what comes over one connection, and where to connect.
fn connection() -> (std::thread::JoinHandle<Vec<u8>>, Target) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let target = Target::Tcp(listener.local_addr().expect("it is bound"));
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let (mut stream, _) = listener.accept().expect("the replay connects");
        stream.read_to_end(&mut bytes).expect("it ends well");
        bytes
    });
    (reader, target)
}

#[test]
fn a_connection_goes_out_byte_for_byte() {
    let stream: Vec<u8> = (0..3000_u32).map(|index| index as u8).collect();
    let mut packets: Vec<_> =
        stream.chunks(100).zip(0..).map(|(chunk, index)| tcp(host(7, 99), 100 * index, chunk)).collect();
    packets.swap(4, 6);
    packets.push(udp(host(7, 1), 2, b"a datagram"));
    let file = Temporary::new("connection", &capture(&packets));
    let (reader, target) = connection();
    let played = replay_foreign(&file.0, &options(target)).expect("it goes out");
    assert_eq!((played.bytes, played.lines.len()), (3000, 1));
    assert_eq!(played.aside, [("other_protocol", 1)].into());
    assert_eq!(reader.join().expect("it does not fail"), stream);
}

#[test]
fn a_file_goes_out_frame_by_frame_and_no_faster_than_asked() {
    let sent = frames(ForeignFormat::Fed, 3, 1..21);
    let file = Temporary::new("frames", &sent.concat());
    let (socket, target) = receiver();
    let begin = Instant::now();
    let wanted = ForeignReplayOptions { pace: Pace::Hertz(500.0), ..options(target) };
    replay_foreign(&file.0, &wanted).expect("it goes out");
    assert!(begin.elapsed() >= Duration::from_millis(38), "19 times 2 ms: {:?}", begin.elapsed());
    assert!(received(&socket, 20).into_iter().map(|(_, bytes)| bytes).eq(sent));
}

/// A frame with a length, a marker and a number; the last one is cut.
fn raw_recording() -> (Vec<Vec<u8>>, Vec<u8>) {
    let frame = |number: u8| {
        [&[0xa5, 0xc3, number, 0, 8 + number % 3, 0, 0, 0][..], &vec![number; usize::from(number % 3)]].concat()
    };
    let sent: Vec<_> = (1..20).map(frame).collect();
    let recording = [&sent[..9].concat()[..], b"noise", &sent[9..].concat(), &frame(20)[..5]].concat();
    (sent, recording)
}

fn layout_of(recording: &Path) -> Description {
    let text = format!(
        "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nname = \"adc\"\nid = 1\nreadout = \"ru0\"\n\
         input = {recording:?}\nframe = {{ length = {{ at = 4, type = \"u16le\" }}, max = \"64B\" }}\n\
         match = {{ at = 0, bytes = [0xa5, 0xc3] }}\nevent = {{ at = 2, type = \"u16le\" }}\n"
    );
    let configuration = ropewalk_config::parse("replay", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    configuration.source[0].framing().expect("it describes frames")
}

#[test]
fn a_recording_of_a_described_source_goes_to_a_connection_byte_for_byte() {
    let (sent, recording) = raw_recording();
    let file = Temporary::new("described-tcp", &recording);
    let (reader, target) = connection();
    let wanted = ForeignReplayOptions { by: Some(layout_of(&file.0)), ..options(target) };
    let played = replay_foreign(&file.0, &wanted).expect("it goes out");
    assert_eq!((played.bytes, played.skipped_bytes), (recording.len() as u64, 0), "faults of the recording, too");
    assert!(played.messages as usize >= sent.len(), "frame by frame");
    assert_eq!(reader.join().expect("it does not fail"), recording);
}

#[test]
fn a_recording_of_a_described_source_goes_out_as_datagrams_of_a_frame_each() {
    let (sent, recording) = raw_recording();
    let file = Temporary::new("described-udp", &recording);
    let (socket, target) = receiver();
    let wanted = ForeignReplayOptions { by: Some(layout_of(&file.0)), ..options(target) };
    let played = replay_foreign(&file.0, &wanted).expect("it goes out");
    assert!(received(&socket, sent.len()).into_iter().map(|(_, bytes)| bytes).eq(sent));
    assert_eq!((played.messages, played.skipped_bytes), (19, 10), "the noise and the cut frame");
}

#[test]
fn what_was_recorded_keeps_its_distances() {
    let mut bytes = Vec::new();
    encode_interface(LinkType::RAW, &mut bytes);
    for time in [5, 6, 45] {
        encode_packet(Utc(1_000_000 * time), &udp(host(7, 1), 2, &[time as u8]), &mut bytes);
    }
    let file = Temporary::new("recorded", &bytes);
    let (socket, target) = receiver();
    let begin = Instant::now();
    replay_foreign(&file.0, &ForeignReplayOptions { pace: Pace::Recorded, ..options(target) }).expect("it goes out");
    assert!(begin.elapsed() >= Duration::from_millis(40), "{:?}", begin.elapsed());
    assert_eq!(received(&socket, 3).len(), 3);
}

#[test]
fn what_cannot_go_out_says_why() {
    for text in ["127.0.0.1:5000", "udp:127.0.0.1:5000", "http://127.0.0.1:80", "udp://nowhere", "tcp://127.0.0.1"] {
        let error = text.parse::<Target>().expect_err("it is no target").to_string();
        assert!(error.contains("udp://HOST:PORT"), "{error}");
    }
    assert_eq!("tcp://127.0.0.1:5".parse::<Target>().map(|target| target.to_string()), Ok("tcp://127.0.0.1:5".into()));
    let file = Temporary::new("refused", &frames(ForeignFormat::Fed, 3, 1..3).concat());
    let (_socket, target) = receiver();
    let error = replay_foreign(&file.0, &ForeignReplayOptions { pace: Pace::Recorded, ..options(target) });
    assert!(matches!(error, Err(OfflineError::NoTimes)), "{error:?}");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let target = Target::Tcp(listener.local_addr().expect("it is bound"));
    drop(listener);
    let error = replay_foreign(&file.0, &options(target)).expect_err("no server listens").to_string();
    assert!(error.contains("is a server listening"), "{error}");
    let empty = Temporary::new("empty", &capture(&[]));
    let played = replay_foreign(&empty.0, &ForeignReplayOptions { times: 0, ..options(target) });
    assert_eq!(played.expect("there is nothing to send").messages, 0, "and it ends");
}

#[test]
fn the_ess_capture_goes_out_from_two_addresses() {
    let test = "foreign::tests::replaying::the_ess_capture_goes_out_from_two_addresses";
    let Some(directory) = ropewalk_tidy::real_data(test, "vmm") else { return };
    let (socket, target) = receiver();
    let path = directory.join("example_LET.pcapng");
    let player = std::thread::spawn(move || {
        // Send slowly enough that the socket's queue holds what has not been read yet.
        replay_foreign(&path, &ForeignReplayOptions { pace: Pace::Hertz(2000.0), ..options(target) })
    });
    let received = {
        let mut room = vec![0; 65_536];
        let mut next = || socket.recv_from(&mut room).map(|(bytes, from)| (from.ip(), bytes, room[2..5].to_vec()));
        (0..200).map(|_| next().expect("it was sent")).collect::<Vec<_>>()
    };
    let played = player.join().expect("it does not fail").expect("it goes out");
    assert_eq!((played.messages, played.lines.len()), (200, 2));
    for last in [1, 2] {
        let of_host =
            received.iter().filter(|(from, _, cookie)| *from == IpAddr::from([127, 0, 0, last]) && cookie == b"ESS");
        assert_eq!(of_host.count(), 100);
    }
}
