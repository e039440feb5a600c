//! The seeds of the parsers' fuzz targets in `fuzz/seeds`: small outputs of our own encoders, so that a fuzzer starts
//! behind the checksums and lengths that it cannot guess.
//!
//! The test requires that they equal the present output. After an intended change, this command writes them again:
//! `ROPEWALK_BLESS=1 cargo test -p ropewalk-wire --test external fuzz_seeds`.

use ropewalk_terms::{
    AcknowledgementLevel, Attempt, ByCause, Cause, Counter, Epoch, EventKey, Incarnation, NodeId, Outcome, Parameter,
    RunNumber, SourceId, TriggerBits, Utc,
};
use ropewalk_wire::capture::{LinkType, encode_interface, encode_packet};
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::internet::{IpFragOffset, IpNumber, Ipv4Header};
use ropewalk_wire::message::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, Assign, AssignEntry, Credit, Ended, Finished,
    FragmentEntry, FragmentFlags, FragmentMeta, Header, Hello, Kind, Lacking, LackingEntry, Lumisection,
    LumisectionEnd, Mask, Message, ReadoutState, RefuseReason, Release, ReleaseEntry, Report, ReportEntry, Request,
    RequestEntry, Resync, Setting, Start, SuperFragmentEntry, SuperFragmentsEncoder, SynchronyState, Unreleased,
    UnreleasedEntry,
};
use ropewalk_wire::{fed, felix, ferol, filter_node, generic, run_file, stream};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const SOURCE: SourceId = SourceId(841);
/// Maximum bytes of a seed: fuzzers are faster with small inputs.
const MOST: usize = 6 << 10;

/// Seeds by name.
type Seeds = BTreeMap<String, Vec<u8>>;

fn seeds<const N: usize>(all: [(&str, Vec<u8>); N]) -> Seeds {
    all.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

/// A FED fragment with these words of payload.
fn fed_fragment(level1_id: u32, payload: &[u64]) -> Vec<u8> {
    let words: Vec<u8> = payload.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut bytes = Vec::new();
    fed::encode(fed::Header::new(SOURCE, level1_id, 100), &words, fed::Trailer::new(), &mut bytes)
        .expect("it is short");
    bytes
}

fn fed_seeds() -> Seeds {
    let mut wrong_crc = fed_fragment(4, &[1, 2]);
    wrong_crc[12] ^= 1;
    // A word of payload that looks like a trailer, as often in real files.
    let trailer = u64::from_le_bytes(fed::Trailer::new().with_length_in_words(3).to_bytes());
    let file = [fed_fragment(1, &[]), fed_fragment(2, &[7, 8, 9]), fed_fragment(3, &[trailer, 5])].concat();
    seeds([
        ("empty", fed_fragment(1, &[])),
        ("fragment", fed_fragment(2, &[0x0011_2233_4455_6677])),
        ("wrong-crc", [wrong_crc, fed_fragment(5, &[3])].concat()),
        ("cut", file[..file.len() - 5].to_vec()),
        ("file", file),
    ])
}

/// FEROL blocks of one word each, those for which `keep` returns true.
fn blocks(count: u16, event_number: u32, keep: impl Fn(u16) -> bool) -> Vec<u8> {
    let header = |packet| ferol::BlockHeader {
        payload_bytes: 8,
        first: packet == 0,
        last: packet + 1 == count,
        packet,
        source: SOURCE,
        event_number,
    };
    let kept = (0..count).filter(|packet| keep(*packet));
    kept.flat_map(|packet| [&header(packet).to_bytes()[..], &[packet as u8; 8]].concat()).collect()
}

fn ferol_seeds() -> Seeds {
    let mut long = Vec::new();
    ferol::encode_fragment(&[0x5A; ferol::MAX_PAYLOAD_BYTES + 8], SOURCE, 17, &mut long);
    let three = blocks(3, 2, |_| true);
    seeds([
        ("block", blocks(1, 1, |_| true)),
        ("blocks", [&blocks(1, 1, |_| true)[..], &three, &blocks(2, 3, |_| true)].concat()),
        ("lost-block", [blocks(4, 1, |packet| packet != 2), blocks(1, 2, |_| true)].concat()),
        ("lost-end", [blocks(3, 1, |packet| packet != 2), blocks(1, 2, |_| true)].concat()),
        ("two-blocks", long),
        ("cut", three[..three.len() - 3].to_vec()),
    ])
}

/// Blocks of one e-link, from the calls to an encoder.
fn felix_blocks(format: felix::BlockFormat, say: impl Fn(&mut felix::Encoder, &mut Vec<u8>)) -> Vec<u8> {
    let (mut out, mut encoder) = (Vec::new(), felix::Encoder::new(format, felix::ELink::of(1, 2, 3)));
    say(&mut encoder, &mut out);
    encoder.flush(&mut out);
    out
}

fn felix_seeds() -> Seeds {
    use felix::{BlockFormat, Status, SubChunkType, Trailer};
    let trailer = |kind| Trailer::new(kind, 2, Status::GOOD);
    let small = |format| {
        felix_blocks(format, |encoder, out| {
            encoder.chunk(&[1; 600], Status::CRC, out);
            encoder.out_of_band(0x123, out);
            encoder.chunk(&[2; 5], Status::GOOD, out);
            encoder.time_out(out);
        })
    };
    let long = felix_blocks(BlockFormat::NARROW, |encoder, out| encoder.chunk(&[7; 2500], Status::GOOD, out));
    let order = felix_blocks(BlockFormat::WIDE, |encoder, out| {
        use SubChunkType::{First, Last, Middle, Timeout};
        for kind in [Last, First, Middle, First, Last, Middle] {
            encoder.sub_chunk(trailer(kind), &[3, 4], out);
        }
        encoder.chunk(&[5], Status::TIMED_OUT, out);
        encoder.sub_chunk(trailer(Timeout), &[6, 7], out);
    });
    let undefined = felix_blocks(BlockFormat::NARROW, |encoder, out| {
        encoder.sub_chunk(trailer(SubChunkType::Undefined), &[8, 9], out);
    });
    seeds([
        ("narrow", small(BlockFormat::NARROW)),
        ("wide", small(BlockFormat::WIDE)),
        ("sized", small(BlockFormat::sized(2).expect("a size"))),
        ("lost-block", [&long[..1024], &long[2048..]].concat()),
        ("long", long),
        ("order", order),
        ("undefined", undefined),
        // Its last trailer extends in front of the header.
        ("past-header", [&small(BlockFormat::NARROW)[..1022], &[0xFF, 0x63]].concat()),
    ])
}

fn generic_seeds() -> Seeds {
    let fragment = |event_number, flags, payload: &[u8]| {
        let header = generic::Header {
            source: SOURCE,
            flags,
            event_number,
            timestamp: 1_000 * event_number,
            payload_bytes: payload.len() as u32,
        };
        let mut bytes = Vec::new();
        generic::encode(&header, payload, &mut bytes).expect("it is short");
        bytes
    };
    let none = generic::Flags(0);
    let hello = generic::Hello::new(SOURCE, generic::HelloFlags::UTC, "counter").expect("the name is short");
    let stream = [fragment(1, none, b"one"), fragment(2, none, b""), fragment(1, generic::Flags::RESYNC, b"again")];
    seeds([
        ("hello", hello.to_bytes().to_vec()),
        ("fragment", fragment(1, none, b"hello")),
        ("stream", [&hello.to_bytes()[..], &stream.concat()].concat()),
        ("cut", stream.concat()[..100].to_vec()),
    ])
}

/// The outcome of the events before a key.
fn ended(below: EventKey) -> Ended {
    let mut dropped = ByCause::default();
    dropped.set(Cause::Late, 3);
    Ended { below, built: 16, incomplete_emitted: 1, dropped, unselected: 2, rejected: 3, quarantined: 4 }
}

/// A message of each kind with a distinct form of body.
fn messages() -> Vec<Message> {
    let (key, attempt) = (EventKey::new(1, 17), Attempt(2));
    let (dropped, complete) = (Outcome::Dropped(Cause::TimedOut), Outcome::Complete);
    let ended = ended(key);
    let reported = |source, what| ReportEntry { source, what, value: 9 };
    vec![
        Message::Hello(Hello::new("ru0", 0x1234)),
        Message::Welcome,
        Message::Refuse(RefuseReason::OldEpoch),
        Message::Start(Start::of_run(EventKey::new(0, 1))),
        Message::QueryHighest,
        Message::Highest(key),
        Message::StopAt(key),
        Message::Resync(Resync { first: EventKey::new(2, 0) }),
        Message::Announce(Announce {
            settled: key,
            entries: [AnnounceEntry { key, bytes: 300, fragments: 2, triggered: true }].into_iter().collect(),
        }),
        Message::Credit(Credit { events: 64, bytes: 1 << 20 }),
        Message::Assign(Assign { entries: [AssignEntry { key, bytes: 300, attempt }].into_iter().collect() }),
        Message::Request(Request { entries: [RequestEntry { key, slot: 5, attempt }].into_iter().collect() }),
        Message::Acknowledge(Acknowledge {
            level: AcknowledgementLevel::Written,
            entries: [complete, dropped]
                .map(|outcome| AcknowledgeEntry { key, attempt, ending: outcome.into() })
                .into_iter()
                .collect(),
        }),
        Message::Lacking(Lacking { entries: [LackingEntry { key, attempt, readout: 1 }].into_iter().collect() }),
        Message::Release(Release {
            entries: [complete, dropped]
                .map(|outcome| ReleaseEntry { first: key, count: 8, outcome })
                .into_iter()
                .collect(),
        }),
        Message::ReadoutState(ReadoutState { readout: 1, present: false }),
        Message::Recover,
        Message::Unreleased(Unreleased {
            entries: [None, Some(complete)]
                .map(|outcome| UnreleasedEntry { key, attempt, ending: outcome.map(Into::into) })
                .into_iter()
                .collect(),
            more: true,
        }),
        Message::Synchrony(SynchronyState { source: SOURCE, verdict: 2, offset: -1, since: key }),
        Message::Finish,
        Message::Finished(Finished { in_flight: 0 }),
        Message::Report(Report {
            entries: [
                reported(Some(SOURCE), Counter::PayloadBytesReceived as u16),
                reported(None, ReportEntry::cause(Cause::Late)),
            ]
            .into_iter()
            .collect(),
            last: true,
        }),
        Message::StopRequest(Cause::SynchronyLost),
        Message::Ended(ended),
        Message::Lumisection(Lumisection { number: 2, first: key }),
        Message::Set(Setting { parameter: Parameter::SourceTimeout, of: 0, value: 1_000_000_000 }),
        Message::Follows(true),
        Message::Mask(Mask { source: SourceId(7), is_masked: true }),
        Message::LumisectionEnd(LumisectionEnd { number: 1, before: Ended { built: 3, ..ended }, ended }),
    ]
}

/// Two super-fragments, of which one is not held: prefix and tables, as they precede the payloads.
fn super_fragments() -> Vec<u8> {
    let meta = |source, length| FragmentMeta {
        source: SourceId(source),
        length,
        flags: FragmentFlags::HAS_BUNCH_CROSSING,
        bunch_crossing: 100,
        trigger_type: 1,
        raw_id: 17,
        time: 0,
    };
    let key = EventKey::new(1, 17);
    let held = SuperFragmentEntry { key, slot: 5, attempt: Attempt(2), fragments: 2, bytes: 300, not_held: None };
    let absent = SuperFragmentEntry { fragments: 0, bytes: 0, not_held: Some(Cause::NotHeld), ..held };
    let missing = FragmentMeta::missing(SourceId(2), Cause::TimedOut);
    let mut head = Vec::new();
    let mut encoder = SuperFragmentsEncoder::new(&mut head);
    encoder.add(held, [meta(1, 100), missing].map(|meta| FragmentEntry { meta, offset: 0 }));
    encoder.add(absent, []);
    encoder.finish();
    head
}

fn message_seeds() -> Seeds {
    let framed = |kind: Kind, body: &[u8]| {
        let header = Header {
            kind,
            body: body.len() as u32,
            run: RunNumber(3),
            epoch: Epoch(2),
            sender: NodeId::builder(7),
            incarnation: Incarnation(1 << 60),
        };
        (format!("{:02}-{kind:?}", kind as u8).to_lowercase(), [&header.to_bytes()[..], body].concat())
    };
    let mut all: Seeds = messages()
        .iter()
        .map(|message| {
            let mut body = Vec::new();
            message.encode(&mut body);
            framed(message.kind(), &body)
        })
        .collect();
    all.extend([framed(Kind::SuperFragments, &super_fragments()), ("tables".to_owned(), super_fragments())]);
    assert_eq!(all.len(), Kind::ALL.len() + 1, "a kind of message has no seed");
    all
}

/// The segment that `docs/run-file-example.md` shows, whole, cut, and record by record.
fn run_file_seeds() -> Seeds {
    let segment = include_bytes!("../../golden/run-file-1.0/run000001-bu0-000001.rwk");
    let records = run_file::Items::new(segment).enumerate().map(|(index, item)| {
        let run_file::Item::Record { record, .. } = item else { panic!("{item:?}") };
        (format!("{index}-{}", record.kind().name().replace(' ', "-")), record.bytes().to_vec())
    });
    let mut all: Seeds = records.collect();
    all.insert("segment".to_owned(), segment.to_vec());
    all.insert("cut".to_owned(), segment[segment.len() / 2..segment.len() - 9].to_vec());
    all
}

/// A message of each kind of a stream of chunks.
fn stream_seeds() -> Seeds {
    use stream::Message;
    let elink = felix::ELink::of(1, 2, 3);
    let share = stream::Share::Group(3, stream::Balance::ByEvent);
    let ranges = vec![stream::Range { first: felix::ELink::new(8), last: elink }];
    let head = |length| stream::ChunkHead { elink, status: felix::Status::CRC, sequence: 9, length };
    let mut chunks = Vec::new();
    stream::encode_heads([head(3), head(0), head(2)].into_iter(), &mut chunks);
    chunks.extend([1, 2, 3, 4, 5]);
    let messages = [
        Message::Hello(stream::Hello::new("monitor")),
        Message::Welcome,
        Message::Refuse(stream::RefuseReason::Version(1)),
        Message::Subscribe(stream::Subscribe { ranges, policy: stream::Policy::Drop, share, one_in: 10 }),
        Message::Subscribed(stream::Subscribed { elinks: 17 }),
        Message::Loss(stream::Loss { chunks: 3, bytes: 300 }),
        Message::End(stream::End { offered: 9, sent: 6, dropped: 3 }),
        Message::Down(stream::Down { elink, bytes: b"reset".to_vec() }),
        Message::DownRefused(stream::DownRefused { elink, why: stream::DownRefusal::NoDownLink }),
    ];
    let encoded = messages.iter().map(|message| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        (format!("{:02}-{:?}", message.kind() as u8, message.kind()).to_lowercase(), bytes)
    });
    let mut all: Seeds = encoded.collect();
    all.insert("06-chunks".to_owned(), chunks);
    assert_eq!(all.len(), stream::Kind::ALL.len(), "a kind of message has no seed");
    all
}

/// Two frames of each format, behind the byte that chooses it.
fn foreign_seeds() -> Seeds {
    let seed = |(format, choice): (&ForeignFormat, u8)| {
        let frames = (1..3).flat_map(|event| format.emulate(3, event, &[7; 24]).expect("it is short"));
        let mut bytes = vec![choice];
        frames.for_each(|frame| bytes.extend_from_slice(&frame));
        (format.name().to_owned(), bytes)
    };
    ForeignFormat::ALL.iter().zip(0..).map(seed).collect()
}

/// A message of each kind between builder units and filter nodes.
fn filter_node_seeds() -> Seeds {
    use filter_node::{DecisionHead, DeclaredHistogram, EventHead};
    let (key, attempt, triggers) = (EventKey::new(1, 2), Attempt(1), TriggerBits::of(77));
    let made = |make: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        make(&mut bytes);
        bytes
    };
    let histogram = DeclaredHistogram { name: "sum".to_owned(), bins: 100, low: 0.0, high: 1e6 };
    let fragment = FragmentMeta { length: 16, ..FragmentMeta::missing(SOURCE, Cause::TimedOut) };
    let event = EventHead { sequence: 1, key, attempt, trigger_type: 3, is_complete: true, fragments: 2 };
    let decision = DecisionHead { sequence: 1, key, attempt, accept: Some(true), triggers, dropped_fills: 0 };
    let fills = [(0, 0.5), (1, f64::NAN)];
    seeds([
        ("hello", made(&|to| filter_node::encode_hello(7, to))),
        ("welcome", made(&|to| filter_node::encode_welcome(64, std::slice::from_ref(&histogram), to))),
        ("begin", made(&|to| filter_node::encode_begin(RunNumber(1), to))),
        ("event", made(&|to| filter_node::encode_event(&event, [fragment; 2].iter(), to))),
        ("decision", made(&|to| filter_node::encode_decision(&decision, fills.iter().copied(), b"own", to))),
    ])
}

/// Captures with a whole datagram, one in two parts, and a segment.
fn capture_seeds() -> Seeds {
    let address = [127, 0, 0, 1];
    let packet = |protocol, payload: &[u8], offset: u16, has_more| {
        let (length, protocol) = (payload.len() as u16, IpNumber(protocol));
        let mut header = Ipv4Header::new(length, 64, protocol, address, address).expect("it is short");
        header.fragment_offset = IpFragOffset::try_new(offset / 8).expect("13 bits");
        header.more_fragments = has_more;
        header.header_checksum = header.calc_header_checksum();
        [&header.to_bytes()[..], payload].concat()
    };
    let datagram = b"\x0f\xa0\x17\x76\0\x18\0\0sixteen bytes in";
    let segment = b"\x0f\xa0\x13\x88\0\0\0\x01\0\0\0\0\x50\0\0\0\0\0\0\0a segment";
    let file = |packets: &[Vec<u8>]| {
        let mut bytes = Vec::new();
        encode_interface(LinkType::RAW, &mut bytes);
        packets.iter().for_each(|packet| encode_packet(Utc(5), packet, &mut bytes));
        bytes
    };
    let parts = [packet(17, &datagram[..16], 0, true), packet(17, &datagram[16..], 16, false)];
    seeds([
        ("datagram", file(&[packet(17, datagram, 0, false)])),
        ("parts", file(&parts)),
        ("segment", file(&[packet(6, segment, 0, false), packet(1, &[0; 8], 0, false)])),
    ])
}

#[test]
fn every_parsers_fuzzer_begins_with_what_our_encoders_write() {
    let targets = [
        ("fed", fed_seeds()),
        ("felix", felix_seeds()),
        ("ferol", ferol_seeds()),
        ("generic", generic_seeds()),
        ("message", message_seeds()),
        ("run_file", run_file_seeds()),
        ("stream", stream_seeds()),
        ("foreign", foreign_seeds()),
        ("capture", capture_seeds()),
        ("filter_node", filter_node_seeds()),
    ];
    for (target, seeds) in targets {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
        if std::env::var_os("ROPEWALK_BLESS").is_some() {
            fs::create_dir_all(&directory).expect("a directory can be made");
            seeds.iter().for_each(|(name, bytes)| fs::write(directory.join(name), bytes).expect("it can be written"));
        }
        assert!(seeds.values().all(|bytes| bytes.len() <= MOST), "{target}: a seed is too long");
        let files = fs::read_dir(&directory).expect("the target has seeds").flatten();
        let committed: Seeds = files
            .map(|file| {
                let name = file.file_name().into_string().expect("the names are plain");
                (name, fs::read(file.path()).expect("a seed can be read"))
            })
            .collect();
        assert!(committed == seeds, "{target}: the encoders write other seeds: see the head of this test");
    }
}
