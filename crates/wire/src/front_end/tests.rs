//! Round trips of every message, and robustness against any bytes.

use super::*;
use crate::frame::FrameError;
use proptest::prelude::*;
use ropewalk_terms::{RunNumber, SourceId, Utc};

fn run() -> impl Strategy<Value = RunNumber> {
    any::<u32>().prop_map(RunNumber)
}

fn event() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(0..UNKNOWN)
}

fn numbers() -> impl Strategy<Value = Vec<Named>> {
    prop::collection::vec(("[a-z_]{0,64}", any::<u64>()), 0..=MOST_NUMBERS)
        .prop_map(|list| list.into_iter().map(|(name, count)| Named { name, count }).collect())
}

fn stage() -> impl Strategy<Value = Stage> {
    (0_u8..6).prop_map(|number| Stage::from_u8(number).expect("there are six"))
}

fn command() -> impl Strategy<Value = Command> {
    let reason = prop_oneof![
        any::<u16>().prop_map(RefuseReason::Version),
        Just(RefuseReason::UnknownSource),
        Just(RefuseReason::Taken)
    ];
    prop_oneof![
        (OLDEST_CONTROL_VERSION..=CONTROL_VERSION).prop_map(Command::Welcome),
        reason.prop_map(Command::Refuse),
        (run(), ".{0,40}", ".{0,400}").prop_map(|(run, address, settings)| Command::Configure(Configure {
            run,
            address,
            settings
        })),
        (run(), any::<u64>(), event()).prop_map(|(run, first, last)| Command::Start(Start { run, first, last })),
        run().prop_map(Command::Enable),
        run().prop_map(Command::Veto),
        (run(), event()).prop_map(|(run, last)| Command::Stop(Stop { run, last })),
        Just(Command::Ping),
        run().prop_map(Command::Hold),
        run().prop_map(Command::Release),
    ]
}

fn hello() -> impl Strategy<Value = Hello> {
    let clock = prop_oneof![Just(ClockKind::None), Just(ClockKind::Utc), Just(ClockKind::Own)];
    let version = prop_oneof![Just((1, false)), Just((2, false)), Just((2, true))];
    (any::<u32>(), clock, stage(), run(), "[a-z]{0,40}", ".{0,60}", version).prop_map(
        |(source, clock, stage, run, name, versions, (version, is_held))| Hello {
            version,
            is_held,
            clock,
            stage,
            run,
            versions,
            ..Hello::new(SourceId(source), &name)
        },
    )
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        hello().prop_map(Word::Hello),
        run().prop_map(Word::Ready),
        run().prop_map(Word::Started),
        run().prop_map(Word::Enabled),
        (run(), any::<u64>()).prop_map(|(run, last)| Word::Held(Held { run, last })),
        run().prop_map(Word::Released),
        (run(), ".{0,80}").prop_map(|(run, text)| Word::Failed(Failed { run, text })),
        (run(), any::<u64>(), any::<u64>(), numbers()).prop_map(|(run, last, issued, vetoed)| Word::Vetoed(Vetoed {
            run,
            last,
            issued,
            vetoed
        })),
        (run(), event(), event(), any::<u64>()).prop_map(|(run, first, last, sent)| Word::Stopped(Stopped {
            run,
            first,
            last,
            sent
        })),
        (run(), stage(), any::<[u64; 3]>(), ".{0,80}", numbers()).prop_map(
            |(run, stage, [sent, bytes, waited_ns], text, counters)| Word::Status(Status {
                run,
                stage,
                sent,
                bytes,
                waited_ns,
                text,
                counters
            })
        ),
        (any::<i64>(), -1e300..1e300, "[a-z/0-9]{0,64}", ".{0,8}")
            .prop_map(|(time, value, name, unit)| { Word::Report(Reading { time: Utc(time), value, name, unit }) }),
    ]
}

fn split(bytes: &[u8]) -> (Frame, &[u8]) {
    let (head, body) = bytes.split_first_chunk().expect("a frame");
    (Frame::parse(head).expect("a frame"), body)
}

proptest! {
    #[test]
    fn every_command_comes_back(command in command()) {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let (frame, body) = split(&bytes);
        prop_assert_eq!((frame.kind, frame.body as usize), (command.kind(), body.len()));
        prop_assert_eq!(Command::decode(frame.kind, body), Ok(command));
        prop_assert_eq!(Command::decode(frame.kind, &[body, &[0]].concat()), Err(FrameError::Long));
        prop_assert!((0..body.len()).all(|cut| Command::decode(frame.kind, &body[..cut]) == Err(FrameError::Short)));
        prop_assert_eq!(Word::decode(frame.kind, body), Err(FrameError::Meaning), "no front end says it");
    }

    #[test]
    fn every_word_comes_back(word in word()) {
        let mut bytes = Vec::new();
        word.encode(&mut bytes);
        let (frame, body) = split(&bytes);
        prop_assert_eq!((frame.kind, frame.body as usize), (word.kind(), body.len()));
        prop_assert_eq!(Word::decode(frame.kind, body), Ok(word));
        prop_assert_eq!(Word::decode(frame.kind, &[body, &[0]].concat()), Err(FrameError::Long));
        prop_assert!((0..body.len()).all(|cut| Word::decode(frame.kind, &body[..cut]) == Err(FrameError::Short)));
        prop_assert_eq!(Command::decode(frame.kind, body), Err(FrameError::Meaning), "run control never says it");
    }

    #[test]
    fn anything_is_refused_or_means_the_same_again(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..48) {
        let _ = bytes.first_chunk().map(Frame::parse);
        let Some(kind) = Kind::from_u8(kind) else { return Ok(()) };
        let mut again = Vec::new();
        if let Ok(command) = Command::decode(kind, &bytes) {
            command.encode(&mut again);
            prop_assert_eq!(&again[FRAME_BYTES..], &bytes[..]);
        } else if let Ok(word) = Word::decode(kind, &bytes) {
            word.encode(&mut again);
            let is_other_version = matches!(&word, Word::Hello(hello) if !hello.is_spoken());
            prop_assert!(is_other_version || again[FRAME_BYTES..] == bytes[..]);
        }
    }
}

#[test]
fn what_a_field_cannot_mean_is_refused() {
    let mut bytes = Vec::new();
    Word::Hello(Hello::new(SourceId(7), "telescope")).encode(&mut bytes);
    let body = &bytes[FRAME_BYTES..];
    for (place, value, error) in
        [(0, b'X', FrameError::Magic), (10, 3, FrameError::Meaning), (11, 6, FrameError::Meaning)]
    {
        let mut wrong = body.to_vec();
        wrong[place] = value;
        assert_eq!(Word::decode(Kind::Hello, &wrong), Err(error), "{place}");
    }
    let held = body.len() - 1;
    let strange = [&body[..held], &[2]].concat();
    assert_eq!(Word::decode(Kind::Hello, &strange), Err(FrameError::Meaning), "neither held nor not");
    for version in [0_u16, 3] {
        let welcome = Command::decode(Kind::Welcome, &version.to_le_bytes());
        assert_eq!(welcome, Err(FrameError::Meaning), "version {version} is not spoken");
    }
    let no_text = [&[2, 0][..], &[0xff, 0xfe]].concat();
    let failed = [&7_u32.to_le_bytes()[..], &no_text].concat();
    assert_eq!(Word::decode(Kind::Failed, &failed), Err(FrameError::Meaning));
    let long = [&7_u32.to_le_bytes()[..], &2000_u16.to_le_bytes(), &[b'a'; 2000]].concat();
    assert_eq!(Word::decode(Kind::Failed, &long), Err(FrameError::Long));
    let many = [&[0; 20][..], &33_u16.to_le_bytes()].concat();
    assert_eq!(Word::decode(Kind::Vetoed, &many), Err(FrameError::Long));
    assert_eq!(Frame::parse(b"GET / HT"), Err(FrameError::Magic));
    assert_eq!(Frame::parse(b"RWC\x09\0\0\0\0"), Err(FrameError::Meaning));
    assert_eq!(Frame::parse(b"RWC\x01\x01\0\x01\0"), Err(FrameError::Long));
}

#[test]
fn a_hello_of_another_version_is_read_as_far_as_its_version() {
    let mut bytes = Vec::new();
    Word::Hello(Hello::new(SourceId(7), "telescope")).encode(&mut bytes);
    let mut body = bytes[FRAME_BYTES..].to_vec();
    body[8] = 9;
    body.extend_from_slice(b"and text of a later version");
    let Ok(Word::Hello(hello)) = Word::decode(Kind::Hello, &body) else { panic!("not a hello") };
    assert_eq!((hello.version, hello.source), (9, SourceId(0)));
}

#[test]
fn what_is_too_long_is_cut_where_a_character_ends() {
    let mut bytes = Vec::new();
    let text = "ä".repeat(LARGEST_TEXT_BYTES);
    Word::Failed(Failed { run: RunNumber(1), text: format!("x{text}") }).encode(&mut bytes);
    let (frame, body) = split(&bytes);
    let Ok(Word::Failed(failed)) = Word::decode(frame.kind, body) else { panic!("not read") };
    assert_eq!(failed.text.len(), LARGEST_TEXT_BYTES - 1);
    let numbers = vec![Named { name: "busy".to_owned(), count: 1 }; MOST_NUMBERS + 1];
    bytes.clear();
    Word::Vetoed(Vetoed { run: RunNumber(1), last: 0, issued: 0, vetoed: numbers }).encode(&mut bytes);
    let (frame, body) = split(&bytes);
    let Ok(Word::Vetoed(vetoed)) = Word::decode(frame.kind, body) else { panic!("not read") };
    assert_eq!(vetoed.vetoed.len(), MOST_NUMBERS);
}

/// As sent by a program that was built when there was only version 1.
#[test]
fn a_hello_of_version_1_ends_with_its_versions_and_cannot_be_held() {
    let mut body = b"RWSOURCE\x01\0\x01\x03\x07\0\0\0\x05\0\0\0telescope".to_vec();
    body.resize(52, 0);
    body.extend_from_slice(b"\x02\0v3");
    let Ok(Word::Hello(hello)) = Word::decode(Kind::Hello, &body) else { panic!("not a hello") };
    assert_eq!((hello.version, hello.stage, hello.run), (1, Stage::Triggering, RunNumber(5)));
    assert_eq!((hello.source, hello.name().as_str(), hello.versions.as_str()), (SourceId(7), "telescope", "v3"));
    assert_eq!((hello.is_spoken(), hello.may_be_held(), hello.is_held), (true, false, false));
    let longer = [&body[..], &[1]].concat();
    assert_eq!(Word::decode(Kind::Hello, &longer), Err(FrameError::Long));
}
