//! Sources with separate entrances, in whole runs: TCP in both directions, a file, a FIFO, a program.

use crate::support::{Run, TemporaryDirectory, ess_pulses, free_address, free_port, wait_for};
use ropewalk_config::parse;
use ropewalk_flow::control::RunPhase;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Counter, EventKey, SourceId};
use ropewalk_tools::RunIndex;
use ropewalk_tools::foreign::{ForeignReplayOptions, Pace, replay_foreign};
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::generic::{Flags, Header, Hello, HelloFlags, encode};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

const EVENTS: u64 = 500;

/// Returns the stream of a source of generic fragments, from its hello on: events `first` to `last`.
fn stream(source: u32, first: u64, last: u64) -> Vec<u8> {
    let hello = Hello::new(SourceId(source), HelloFlags::default(), "board").expect("a short name");
    let mut bytes = hello.to_bytes().to_vec();
    for event_number in first..=last {
        let payload = payload(source, event_number);
        let payload_bytes = payload.len() as u32;
        let (source, flags) = (SourceId(source), Flags::default());
        let header = Header { source, flags, event_number, timestamp: 0, payload_bytes };
        encode(&header, &payload, &mut bytes).expect("a small payload");
    }
    bytes
}

fn payload(source: u32, event: u64) -> Vec<u8> {
    let length = 1 + (event as usize * 37 + source as usize) % 900;
    (0..length).map(|place| (place as u64 * event + u64::from(source)) as u8).collect()
}

/// Launches a run of sources with these keys and the default ones; their ids begin with 1.
fn launched(output: &TemporaryDirectory, sources: &[String]) -> RunHandle {
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\npool = \"64MiB\"\nblock = \"64KiB\"\n\
         [[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    for (id, keys) in (1..).zip(sources) {
        text +=
            &format!("[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\nformat = \"generic\"\n{keys}\n");
    }
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS)));
    handle
}

/// Waits for the end, and checks every byte in the files.
fn expect_everything(handle: RunHandle, sources: u32) -> RunSummary {
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let (mut reader, mut events) = (index.reader(), 0);
    while let Some(event) = reader.next_event().expect("it can be read") {
        let number = event.event.head().key.number();
        let found: Vec<_> =
            event.event.fragments().map(|found| (found.entry.source.0, found.payload.to_vec())).collect();
        let wanted: Vec<_> = (1..=sources).map(|source| (source, payload(source, number))).collect();
        assert!(found == wanted, "event {number}");
        events += 1;
    }
    assert_eq!(events, EVENTS);
    summary
}

fn address_of(handle: &RunHandle, name: &str) -> String {
    let named = handle.addresses().iter().find(|(known, _)| known == name);
    named.unwrap_or_else(|| panic!("{name} is not one of {:?}", handle.addresses())).1.clone()
}

fn write_file(path: &Path, source: u32) {
    std::fs::write(path, stream(source, 1, EVENTS)).expect("the directory is ours");
}

#[test]
fn sources_come_in_by_every_way_there_is_and_are_built_together() {
    let output = TemporaryDirectory::new("entrances");
    let board = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let [file, fifo, read] = ["file", "fifo", "read"].map(|name| output.path().join(name));
    write_file(&file, 3);
    write_file(&read, 5);
    let sources = [
        "listen = \"tcp://127.0.0.1:0\"".to_owned(),
        format!("connect = \"tcp://{}\"", board.local_addr().expect("it is bound")),
        format!("input = {:?}", file.display().to_string()),
        format!("input = \"fifo:{}\"", fifo.display()),
        format!("program = [\"cat\", {:?}]", read.display().to_string()),
    ];
    let handle = launched(&output, &sources);
    let address = address_of(&handle, "board1");
    std::thread::scope(|scope| {
        scope.spawn(|| TcpStream::connect(address).expect("it listens").write_all(&stream(1, 1, EVENTS)));
        scope.spawn(|| board.accept().expect("it is called").0.write_all(&stream(2, 1, EVENTS)));
        scope.spawn(|| {
            wait_for("the FIFO", || fifo.exists().then_some(()));
            let mut fifo = std::fs::OpenOptions::new().write(true).open(&fifo).expect("it was made");
            fifo.write_all(&stream(4, 1, EVENTS)).expect("it is read");
        });
    });
    let summary = expect_everything(handle, 5);
    assert_eq!(summary.warnings, Vec::<String>::new());
}

/// The board begins to listen late, and disconnects in between.
#[test]
fn a_board_that_listens_is_called_until_it_answers_and_again_when_it_has_hung_up() {
    let output = TemporaryDirectory::new("entrances-call");
    let address = free_address();
    let handle = launched(&output, &[format!("connect = \"tcp://{address}\"")]);
    std::thread::sleep(Duration::from_millis(300));
    let board = TcpListener::bind(&address).expect("still free");
    let half = EVENTS / 2;
    board.accept().expect("it is called").0.write_all(&stream(1, 1, half)).expect("it is read");
    board.accept().expect("it is called again").0.write_all(&stream(1, half + 1, EVENTS)).expect("it is read");
    expect_everything(handle, 1);
}

#[test]
fn a_source_that_comes_by_the_entrance_of_another_one_is_turned_away() {
    let output = TemporaryDirectory::new("entrances-strangers");
    let listen = "listen = \"tcp://127.0.0.1:0\"".to_owned();
    let handle = launched(&output, &[listen.clone(), listen]);
    let [first, second] = ["board1", "board2"].map(|name| address_of(&handle, name));
    let mut stranger = TcpStream::connect(&first).expect("it listens");
    let _ = stranger.write_all(&stream(2, 1, EVENTS));
    assert!(crate::support::is_closed(&stranger), "the other source has another port");
    for (source, address) in [(1, first), (2, second)] {
        TcpStream::connect(address).expect("it listens").write_all(&stream(source, 1, EVENTS)).expect("it is read");
    }
    expect_everything(handle, 2);
}

/// Two files of real fragments, without frames around them.
#[test]
fn files_of_a_named_format_are_sources_as_they_lie_there() {
    let Some(data) = ropewalk_tidy::real_data("entrances::files_of_a_named_format", "cms_csc") else { return };
    let output = TemporaryDirectory::new("entrances-fed");
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n\
         [[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    for (id, name) in [(841, "csc_00307511_EmuRUI01_Local_000.raw"), (843, "csc_00307511_EmuRUI03_Local_000.raw")] {
        text += &format!(
            "[[source]]\nid = {id}\nreadout = \"ru0\"\nformat = \"fed\"\ninput = {:?}\n",
            data.join(name).display().to_string()
        );
    }
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 4685)));
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.fragments.counts.get(Counter::CrcErrors)), (4685, 0));
    assert_eq!(summary.bytes.payload_received, 4_327_200);
}

/// Executes a run of one source that reads this file of MIDAS events, the last of which has this number.
fn midas(name: &str, file: &Path, last: u64) -> RunSummary {
    let output = TemporaryDirectory::new(name);
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
         [[source]]\nid = 1\nreadout = \"ru0\"\nformat = \"midas\"\ninput = {:?}\n",
        output.path().display().to_string(),
        file.display().to_string()
    );
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, last)));
    let summary = Run { handle }.end();
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let (mut reader, mut written) = (index.reader(), Vec::new());
    while let Some(event) = reader.next_event().expect("it can be read") {
        for fragment in event.event.fragments() {
            assert!(!fragment.entry.flags.has_error(), "{:?}", fragment.entry);
            written.extend_from_slice(fragment.payload);
        }
    }
    let (bytes, mut whole) = (std::fs::read(file).expect("it is there"), Vec::new());
    if file.extension().is_some_and(|end| end == "lz4") {
        lz4_flex::frame::FrameDecoder::new(&bytes[..]).read_to_end(&mut whole).expect("it is whole");
    } else {
        whole = bytes;
    }
    assert!(written == whole, "every byte of the file, in its order");
    summary
}

/// Each id has its own serial numbers, some of which begin in the middle or restart.
#[test]
fn events_of_several_ids_in_one_stream_are_an_event_each() {
    let directory = TemporaryDirectory::new("entrances-ids");
    let file = directory.path().join("run.mid");
    let frames = |id: u32, serial: u32| ForeignFormat::Midas.emulate(id, serial, &payload(id, 7)).expect("short");
    let mixed = (0..100).flat_map(|serial| [frames(1, serial), frames(2, 900 + serial % 30), frames(0x8002, 5)]);
    std::fs::write(&file, mixed.flatten().flatten().collect::<Vec<u8>>()).expect("the directory is ours");
    let summary = midas("entrances-midas-ids", &file, 300);
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.fragments.stale), (300, 0));
}

#[test]
fn a_real_run_of_midas_is_a_source() {
    let Some(data) = ropewalk_tidy::real_data("entrances::a_real_run_of_midas", "midas") else { return };
    let summary = midas("entrances-midas", &data.join("run00407sub0000.mid.lz4"), 8227);
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.bytes.payload_received), (8227, 793_827));
}

/// Datagrams of two boards on separate ports, in the format of DUNE. One datagram is no frame, and one is empty.
#[test]
fn datagrams_are_frames_and_what_is_no_frame_is_named() {
    let output = TemporaryDirectory::new("entrances-udp");
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"300ms\"\n[[readout]]\nname = \"ru0\"\n\
         [[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    for id in [1, 2] {
        text += &format!(
            "[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\nformat = \"dune\"\nlisten = \"udp://127.0.0.1:0\"\n"
        );
    }
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    let [one, two] = ["board1", "board2"].map(|name| address_of(&handle, name));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let send = |board: u32, event: u32, to: &str| {
        let frames = ForeignFormat::Dune.emulate(board, event, &payload(board, event.into())).expect("they are short");
        for frame in &frames {
            socket.send_to(frame, to).expect("it is sent");
        }
    };
    // Boards do not know about runs: data from before a run is stale.
    (990..1000).for_each(|event| send(1, event, &one));
    wait_for("what was sent before the run", || (handle.snapshot().ledger.fragments.stale == 10).then_some(()));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 100)));
    wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
    for event in 1..=100 {
        send(1, event, &one);
        if event == 50 {
            socket
                .send_to(b"no frame, and long enough for a head of seventy-two bytes, which it is not.", &two)
                .expect("it is sent");
        } else {
            send(2, event, &two);
        }
        if event == 70 {
            socket.send_to(b"", &two).expect("it is sent");
        }
    }
    let summary = Run { handle }.end();
    assert!(summary.is_balanced(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.events.incomplete_emitted), (100, 1), "{summary:#?}");
    assert_eq!(summary.fragments.dropped.total(), 2, "the last one is empty: {summary:#?}");
}

/// Returns a frame of a digitiser: the number of words in the first one, a 24-bit event number in the third.
fn digitiser_frame(event: u32) -> Vec<u8> {
    let words = 4 + event % 5;
    let mut frame: Vec<u8> = [0xa000_0000 | words, 0x55, event & 0xff_ffff, 125 * event].map(u32::to_le_bytes).concat();
    frame.resize(4 * words as usize, event as u8);
    frame
}

/// Returns a datagram of a board: two letters, the event, the number of the packet.
fn board_frame(event: u32, sequence: u16) -> Vec<u8> {
    [&b"RB"[..], &event.to_be_bytes(), &sequence.to_be_bytes(), &[7; 20]].concat()
}

/// Returns a frame of a board that listens: a word, the number of the following bytes, the event, and the sum of all
/// words before it.
fn tracker_frame(event: u32) -> Vec<u8> {
    let number = event.to_be_bytes();
    let mut frame = [&[0xca, 0xfe, 0xba, 0xbe, 0, 18][..], &number, &[event as u8; 12]].concat();
    let words = frame.chunks_exact(2).map(|word| u16::from_le_bytes([word[0], word[1]]));
    let sum = words.fold(0, u16::wrapping_add);
    frame.extend(sum.to_le_bytes());
    frame
}

/// Launches a run of a digitiser that connects, a board that sends datagrams to this port, and a tracker that is called
/// at this address.
fn launch_three_layouts(output: &TemporaryDirectory, port: u16, tracker: std::net::SocketAddr) -> RunHandle {
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"200ms\"\n[[readout]]\nname = \"ru0\"\n\
         [[builder]]\nname = \"bu0\"\n[[source]]\nid = 7\nname = \"digitiser\"\nreadout = \"ru0\"\n\
         listen = \"tcp://127.0.0.1:0\"\n\
         frame = {{ length = {{ at = 0, type = \"u32le\", mask = 0x0fffffff, unit = 4 }}, max = \"1MiB\" }}\n\
         event = {{ at = 8, type = \"u32le\", mask = 0xffffff }}\n\
         time = {{ at = 12, type = \"u32le\", mask = 0x7fffffff, tick = \"8ns\" }}\n\
         [[source]]\nid = 8\nreadout = \"ru0\"\nlisten = \"udp://127.0.0.1:{port}\"\nframe = \"datagram\"\n\
         max_fragment = \"1KiB\"\nmatch = {{ at = 0, bytes = \"RB\" }}\nevent = {{ at = 2, type = \"u32be\" }}\n\
         sequence = {{ at = 6, type = \"u16be\" }}\ndemux = {{ at = \"ip.source\", is = \"127.0.0.2\" }}\n\
         [[source]]\nid = 9\nreadout = \"ru0\"\nconnect = \"tcp://{tracker}\"\n\
         frame = {{ sync = [0xca, 0xfe, 0xba, 0xbe], length = {{ at = 4, type = \"u16be\", counts = \"after-field\" }} }}\n\
         event = {{ at = 6, type = \"u32be\" }}\nchecksum = {{ kind = \"sum16le\", at = -2, type = \"u16le\" }}\n",
        output.path().display().to_string()
    );
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 300)));
    wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
    handle
}

/// Three boards of three layouts, which only the configuration has. One of them is unplugged and returns, one loses
/// datagrams, and an unknown sender sends as well.
#[test]
fn boards_whose_layouts_stand_in_the_configuration_are_built_together() {
    let output = TemporaryDirectory::new("entrances-layouts");
    let port = free_port();
    let tracker = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let handle = launch_three_layouts(&output, port, tracker.local_addr().expect("it is bound"));
    let mut digitiser = TcpStream::connect(address_of(&handle, "digitiser")).expect("it listens");
    let [board, stranger] =
        ["127.0.0.2:0", "127.0.0.4:0"].map(|address| std::net::UdpSocket::bind(address).expect("all of 127/8 is ours"));
    let (unplugged, lost) = (101..=150, [37, 38, 200]);
    let mut plugged = Some(tracker.accept().expect("it is called").0);
    for event in 1..=300 {
        if event == *unplugged.start() {
            plugged = None;
        } else if event == unplugged.end() + 1 {
            plugged = Some(tracker.accept().expect("it is called again").0);
        }
        plugged.iter_mut().for_each(|tracker| tracker.write_all(&tracker_frame(event)).expect("it is read"));
        if event == unplugged.end() + 1 {
            // A board that is gone is not awaited before it sends again.
            wait_for("the first word of the board that is back", || {
                (handle.snapshot().sources.get(&SourceId(9))?.received == 101).then_some(())
            });
        }
        digitiser.write_all(&digitiser_frame(event)).expect("it is read");
        let frame = board_frame(event, event as u16);
        let senders = [Some(&stranger), (!lost.contains(&event)).then_some(&board)];
        for sender in senders.into_iter().flatten() {
            sender.send_to(&frame, ("127.0.0.1", port)).expect("it is sent");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let summary = Run { handle }.end();
    assert!(summary.is_balanced(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.events.incomplete_emitted), (300, 53), "{summary:#?}");
    let count = |id: &str, counter| summary.by_source[id].counts.get(counter);
    let missing = |id| count(id, Counter::FramesMissing);
    assert_eq!((missing("8"), missing("9"), count("9", Counter::CrcErrors)), (3, 0, 0));
    assert_eq!((summary.datagrams.lost, summary.datagrams.nobodys), (0, 300));
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let mut reader = index.reader();
    while let Some(event) = reader.next_event().expect("it can be read") {
        let number = event.event.head().key.number() as u32;
        let found: Vec<_> =
            event.event.fragments().map(|found| (found.entry.source.0, found.payload.to_vec())).collect();
        let mut wanted = vec![(7, digitiser_frame(number))];
        wanted.extend((!lost.contains(&number)).then(|| (8, board_frame(number, number as u16))));
        wanted.extend((!unplugged.contains(&number)).then(|| (9, tracker_frame(number))));
        assert_eq!(found, wanted, "event {number}");
    }
}

/// Two boards that number events by the times of pulses; each misses some.
#[test]
fn events_whose_numbers_only_grow_are_numbered_together() {
    let output = TemporaryDirectory::new("entrances-growing");
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"200ms\"\n[[readout]]\nname = \"ru0\"\n\
         [[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    let pulse = |number: u32| (1000 + number / 14, number % 14 * 6_289_464);
    for id in [1, 2] {
        let file = output.path().join(format!("board{id}"));
        let seen = (1..=200).filter(|number| number % (10 + id) != 0).map(pulse);
        let frames = seen.flat_map(|(seconds, ticks)| [seconds, ticks, id, 0xabcd].map(u32::to_le_bytes).concat());
        std::fs::write(&file, frames.collect::<Vec<u8>>()).expect("the directory is ours");
        text += &format!(
            "[[source]]\nid = {id}\nreadout = \"ru0\"\ninput = {:?}\nframe = {{ fixed = \"16\" }}\n\
             event = {{ fields = [ {{ at = 0, type = \"u32le\" }}, {{ at = 4, type = \"u32le\" }} ], numbers = \"growing\" }}\n",
            file.display().to_string()
        );
    }
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    // Only every 132nd pulse is missed by both, and then the run does not know it.
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 199)));
    let summary = Run { handle }.end();
    // Each misses its own, and pulse 132 is missed by both.
    let missed = 200 / 11 + 200 / 12 - 2;
    assert!(summary.is_balanced(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.events.incomplete_emitted), (199, missed), "{summary:#?}");
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let mut reader = index.reader();
    let mut seen = (1..=200).filter(|number| number % 132 != 0).map(pulse);
    while let Some(event) = reader.next_event().expect("it can be read") {
        let pulse = seen.next().expect("as many as there were");
        for fragment in event.event.fragments() {
            let told = [pulse.0, pulse.1, fragment.entry.source.0, 0xabcd].map(u32::to_le_bytes).concat();
            assert_eq!(fragment.payload, told);
        }
    }
}

/// Executes a run of 300 events of two boards that send these numbers, in fields of this many bits. Counts complete,
/// incomplete, dropped and out-of-order events, and returns the kinds of anomalies of the second board.
fn taken_growing(name: &str, bits: u32, boards: [&[u64]; 2]) -> ([u64; 4], Vec<String>) {
    let output = TemporaryDirectory::new(name);
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\nuntil_sources_end = true\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    let mask = u64::MAX >> (64 - bits);
    for (id, numbers) in (1..).zip(boards) {
        let file = output.path().join(format!("board{id}"));
        let frames = numbers.iter().flat_map(|number| [(number & mask).to_le_bytes(), [id; 8]].concat());
        std::fs::write(&file, frames.collect::<Vec<u8>>()).expect("the directory is ours");
        text += &format!(
            "[[source]]\nid = {id}\nreadout = \"ru0\"\ninput = {:?}\nframe = {{ fixed = \"16\" }}\n\
             event = {{ at = 0, type = \"u64le\", mask = {mask:#x}, numbers = \"growing\" }}\n",
            file.display().to_string()
        );
    }
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 300)));
    let summary = Run { handle }.end();
    assert!(summary.is_balanced(), "{summary:#?}");
    let dropped = summary.fragments.dropped.total();
    let complete = summary.events.written - summary.events.incomplete_emitted;
    let anomalies = summary.numbering.get("2").into_iter().flatten();
    let kinds = anomalies.map(|one| format!("{} {} at {}", one.size, one.kind, one.event)).collect();
    (
        [complete, summary.events.incomplete_emitted, dropped, summary.fragments.counts.get(Counter::FramesOutOfOrder)],
        kinds,
    )
}

/// Times left over from the previous run, wrong ones, a field that wraps, and reordered frames affect nothing else.
#[test]
fn times_that_are_not_of_the_run_or_wrap_or_are_shuffled_unpair_nothing() {
    let times: Vec<u64> = (0..300).map(|pulse| (1 << 32) - 15_000 + 100 * pulse).collect();
    let with = |place: usize, numbers: &[u64]| [&times[..place], numbers, &times[place..]].concat();
    assert_eq!(taken_growing("growing-wrap", 32, [&times, &times]), ([300, 0, 0, 0], vec![]));
    let left_over = with(0, &[5_000_000_000, 5_000_000_100, 5_000_000_200]);
    let named = |text: &str| vec![text.to_owned()];
    assert_eq!(taken_growing("growing-left", 43, [&times, &left_over]), ([300, 0, 3, 0], named("3 left_over at 1")));
    let wrong: Vec<u64> = (0..10).map(|one| 7_000_000_000 + 100 * one).collect();
    let (counts, kinds) = taken_growing("growing-wrong", 43, [&times, &with(150, &wrong)]);
    assert_eq!(counts, [300, 0, 10, 0]);
    assert!(kinds[0].starts_with("10 wrong_number"), "{kinds:?}");
    let mut shuffled = times.clone();
    shuffled[20..].chunks_mut(4).for_each(<[u64]>::reverse);
    let (counts, kinds) = taken_growing("growing-shuffled", 32, [&times, &shuffled]);
    assert_eq!((counts[..3].to_vec(), kinds), (vec![300, 0, 0], vec![]));
    assert!(counts[3] > 0, "{counts:?}");
}

/// The second datagram of each frame arrives later than the default time-out, and earlier than the configured one.
#[test]
fn datagrams_of_a_frame_are_waited_for_as_long_as_the_configuration_says() {
    let output = TemporaryDirectory::new("entrances-pieces");
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"4s\"\n[[readout]]\nname = \"ru0\"\n\
         [[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nname = \"board\"\nreadout = \"ru0\"\n\
         listen = \"udp://127.0.0.1:0\"\nevent = {{ at = 0, type = \"u16be\" }}\n[source.frame.pieces]\nheader = 4\n\
         frame = {{ at = 0, type = \"u16be\" }}\nindex = {{ at = 2, type = \"u8\" }}\ncount = {{ at = 3, type = \"u8\" }}\n\
         timeout = \"30s\"\n",
        output.path().display().to_string()
    );
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 3)));
    wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
    let (socket, address) = (std::net::UdpSocket::bind("127.0.0.1:0").expect("a port"), address_of(&handle, "board"));
    let send = |event: u8, index: u8| {
        socket.send_to(&[0, event, index, 2, event, index], &address).expect("it is sent");
    };
    (1..=3).for_each(|event| send(event, 0));
    std::thread::sleep(3 * ropewalk_flow::readout::DatagramLimits::USUAL.pieces_timeout);
    (1..=3).for_each(|event| send(event, 1));
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.bytes.payload_received), (3, 3 * 8));
}

/// A capture of two readout masters that send to one port, played back to a configuration that describes them: each
/// pulse is an event of both. The numbers are from FORMATS section 5 on the file.
#[test]
fn a_capture_of_real_boards_builds_the_events_that_were_in_it() {
    let Some(data) = ropewalk_tidy::real_data("entrances::a_capture_of_real_boards", "vmm") else { return };
    let output = TemporaryDirectory::new("entrances-capture");
    let port = free_port();
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    for id in [1, 2] {
        text += &format!(
            "[[source]]\nid = {id}\nreadout = \"ru0\"\nlisten = \"udp://127.0.0.1:{port}\"\nframe = \"datagram\"\n\
             match = {{ at = 2, bytes = \"ESS\" }}\ndemux = {{ at = \"ip.source\" }}\n\
             event = {{ fields = [ {{ at = 10, type = \"u32le\" }}, {{ at = 14, type = \"u32le\" }} ] }}\n\
             sequence = {{ at = 26, type = \"u32le\" }}\n"
        );
    }
    let configuration = parse("entrances", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 100)));
    wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
    let target = format!("udp://127.0.0.1:{port}").parse().expect("a target");
    let options =
        ForeignReplayOptions { target, pace: Pace::Hertz(2000.0), port: None, format: None, by: None, times: 1 };
    let played = replay_foreign(&data.join("example_LET.pcapng"), &options).expect("it can be read");
    assert_eq!((played.messages, played.lines.len()), (200, 2));
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    let pulses = ess_pulses(&summary.directory);
    let ends = (pulses.len(), pulses.first().copied(), pulses.last().copied());
    assert_eq!(ends, (100, Some([67_484, 1_619_617]), Some([67_491, 7_909_251])));
}

#[test]
fn what_goes_wrong_with_a_file_or_a_program_is_said_with_the_source_s_name() {
    let output = TemporaryDirectory::new("entrances-wrong");
    let [file, pid] = ["file", "pid"].map(|name| output.path().join(name));
    write_file(&file, 1);
    let sources = [
        format!("program = [\"sh\", \"-c\", \"echo $$ > {}; cat {} && exit 7\"]", pid.display(), file.display()),
        "input = \"/nowhere/events.raw\"\nrequirement = \"optional\"".to_owned(),
        "program = [\"/nowhere/read-out\"]\nrequirement = \"optional\"".to_owned(),
        "listen = \"tcp://127.0.0.1:0\"".to_owned(),
    ];
    let handle = launched(&output, &sources);
    // The run is over with the last board's last event, but not before the program has ended and its exit status is
    // known.
    let (all, last) = (stream(4, 1, EVENTS), stream(4, 1, EVENTS - 1).len());
    let mut board = TcpStream::connect(address_of(&handle, "board4")).expect("it listens");
    board.write_all(&all[..last]).expect("it is read");
    let whole_line = || std::fs::read_to_string(&pid).ok().filter(|text| text.ends_with('\n'));
    let process = Path::new("/proc").join(wait_for("the program", whole_line).trim());
    wait_for("the program's end", || (!process.exists()).then_some(()));
    board.write_all(&all[last..]).expect("it is read");
    let summary = Run { handle }.end();
    assert_eq!(summary.events.written, EVENTS);
    let warnings = summary.warnings.join("\n");
    for (name, what) in
        [("board1", "ended with status 7"), ("board2", "/nowhere/events.raw"), ("board3", "/nowhere/read-out")]
    {
        let is_told = |line: &&String| line.starts_with(&format!("{name}: ")) && line.contains(what);
        assert!(summary.warnings.iter().any(|line| is_told(&line)), "{name}: {warnings}");
    }
}
