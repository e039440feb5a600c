//! Machines under random input: bytes become messages, times and failures in an order that no real system would have.
//!
//! ```text
//! bytes --> Choices --> messages from any node, fragments, lost connections, time --> one machine
//!                                                   after each step: accounts balance, bounds hold, no panic
//! ```
//! A machine trusts no other node. On any input it must not panic, its accounts must balance, and it must stop
//! answering. Each function takes any bytes. The fuzz targets call them with bytes that reach new code.

mod framing;
mod gateway;
mod nodes;
mod router;

use ropewalk_flow::control::front_ends::{
    FrontEndAction, FrontEndConfig, FrontEndPhase, FrontEnds, FrontEndsConfig, MOST_INCIDENTS, RunOrder,
};
use ropewalk_flow::control::{ControlAction, RunCommand, RunControl, RunPhase};
use ropewalk_flow::messages::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, Assign, AssignEntry, Batch, Credit, Finished,
    FragmentFlags, FragmentMeta, Lacking, LackingEntry, Mask, Message, ReadoutState, Release, ReleaseEntry, Report,
    Request, RequestEntry, Resync, Setting, Start, SynchronyState, Unreleased, UnreleasedEntry,
};
use ropewalk_terms::{
    AcknowledgementLevel, Attempt, CAUSES, Cause, Ending, EventKey, Instant, NodeId, Outcome, Parameter, RunNumber,
    SourceId, Verdict,
};
use ropewalk_wire::front_end::{Command, FRAME_BYTES, Frame, Held, Hello, Kind, Stage, Status, Stopped, Vetoed, Word};
use ropewalk_wire::message::RefuseReason;
use std::time::Duration;

pub use framing::{framer, layout, sniff};
pub use gateway::gateway;
pub use nodes::{builder, manager, readout, synchrony};
pub use router::router;

/// Maximum actions after one input: more means that a machine answers itself.
const MOST_ACTIONS: usize = 20_000;

// ---- choices from bytes: after the last byte, every choice is the first one

/// A reader of choices.
struct Choices<'a> {
    bytes: &'a [u8],
    now: Instant,
}

impl<'a> Choices<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, now: Instant::ZERO }
    }

    const fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    /// A number below `bound`, which is at least 1.
    fn below(&mut self, bound: u64) -> u64 {
        let number = if bound <= 256 { u64::from(self.byte()) } else { self.wide() };
        number % bound
    }

    fn chance(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Eight bytes.
    fn wide(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Up to `most` bytes as they are.
    fn raw(&mut self, most: usize) -> &'a [u8] {
        let (head, rest) = self.bytes.split_at(most.min(self.bytes.len()));
        self.bytes = rest;
        head
    }

    /// Usually no time passes, sometimes milliseconds, rarely seconds; never backwards.
    fn now(&mut self) -> Instant {
        let passed = match self.byte() {
            0..=180 => Duration::ZERO,
            short @ 181..=250 => Duration::from_millis(u64::from(short - 180)),
            long => Duration::from_secs(u64::from(long - 250)),
        };
        self.now = self.now.after(passed);
        self.now
    }

    /// Usually near the run's beginning, where events are; rarely anything.
    fn key(&mut self) -> EventKey {
        match self.byte() {
            near @ 0..=199 => EventKey::new(0, u64::from(near % 48)),
            resynced @ 200..=239 => EventKey::new(u16::from(resynced % 3), u64::from(resynced % 16)),
            240..=250 => EventKey::from_bits(self.wide()),
            251 | 252 => EventKey::MIN,
            _ => EventKey::MAX,
        }
    }

    fn cause(&mut self) -> Cause {
        CAUSES[self.below(CAUSES.len() as u64) as usize]
    }

    fn level(&mut self) -> AcknowledgementLevel {
        AcknowledgementLevel::from_u8(self.byte() % 5).unwrap_or(AcknowledgementLevel::Written)
    }

    fn outcome(&mut self) -> Outcome {
        match self.below(4) {
            0 | 1 => Outcome::Complete,
            2 => Outcome::IncompleteEmitted,
            _ => Outcome::Dropped(self.cause()),
        }
    }

    fn ending(&mut self) -> Ending {
        let verdict = Verdict::from_u8(self.below(8) as u8).unwrap_or_default();
        Ending { outcome: self.outcome(), verdict }
    }

    fn attempt(&mut self) -> Attempt {
        Attempt(if self.below(16) == 0 { self.wide() as u16 } else { self.below(4) as u16 })
    }

    /// A size, usually a plausible one.
    fn bytes(&mut self) -> u32 {
        if self.below(32) == 0 { self.wide() as u32 } else { self.below(64) as u32 * 64 }
    }

    fn node(&mut self) -> NodeId {
        match self.below(8) {
            0 => NodeId::MANAGER,
            1..=4 => NodeId::readout(self.below(4) as u16),
            _ => NodeId::builder(self.below(4) as u16),
        }
    }

    fn setting(&mut self) -> Setting {
        let parameter = Parameter::ALL[self.below(Parameter::ALL.len() as u64) as usize];
        Setting { parameter, of: self.below(3) as u16, value: self.below(1 << 32) }
    }

    fn source(&mut self, sources: u32) -> SourceId {
        SourceId(1 + self.below(u64::from(sources) + 1) as u32)
    }

    fn meta(&mut self, sources: u32) -> FragmentMeta {
        let source = self.source(sources);
        if self.below(16) == 0 {
            return FragmentMeta::missing(source, self.cause());
        }
        let raw_id = if self.below(16) == 0 { self.wide() } else { self.below(48) };
        let flags = if self.below(8) == 0 { FragmentFlags(self.wide() as u32) } else { FragmentFlags::default() };
        FragmentMeta {
            source,
            length: self.bytes(),
            flags,
            bunch_crossing: raw_id as u16,
            trigger_type: 0,
            raw_id,
            time: 0,
        }
    }

    /// Some entries, at most eight.
    fn batch<T>(&mut self, mut entry: impl FnMut(&mut Self) -> T) -> Batch<T> {
        let mut batch = Batch::new();
        for _ in 0..self.below(9) {
            batch.push(entry(self));
        }
        batch
    }

    /// Any message of the protocol, from any sender.
    fn message(&mut self, sources: u32) -> Message {
        match self.below(25) {
            24 => Message::Set(self.setting()),
            23 => Message::Follows(self.chance()),
            22 => Message::Mask(Mask { source: self.source(sources), is_masked: self.chance() }),
            0 => Message::Start(Start { first: self.key(), origin: self.key() }),
            1 => Message::QueryHighest,
            2 => Message::Highest(self.key()),
            3 => Message::StopAt(self.key()),
            4 => Message::Resync(Resync { first: self.key() }),
            5 | 6 => Message::Announce(Announce {
                settled: self.key(),
                entries: self.batch(|own| AnnounceEntry {
                    key: own.key(),
                    bytes: own.bytes(),
                    fragments: own.below(4) as u16,
                    triggered: own.chance(),
                }),
            }),
            7 => Message::Credit(self.credit()),
            8 | 9 => Message::Assign(Assign {
                entries: self.batch(|own| AssignEntry { key: own.key(), bytes: own.bytes(), attempt: own.attempt() }),
            }),
            10 => Message::Request(self.request()),
            11 | 12 => Message::Acknowledge(Acknowledge {
                level: self.level(),
                entries: self.batch(|own| AcknowledgeEntry {
                    key: own.key(),
                    attempt: own.attempt(),
                    ending: own.ending(),
                }),
            }),
            13 => Message::Release(self.release()),
            14 => Message::ReadoutState(ReadoutState { readout: self.below(4) as u16, present: self.chance() }),
            15 => Message::Recover,
            16 => Message::Unreleased(Unreleased {
                entries: self.batch(|own| UnreleasedEntry {
                    key: own.key(),
                    attempt: own.attempt(),
                    ending: own.chance().then(|| own.ending()),
                }),
                more: self.chance(),
            }),
            17 => Message::Synchrony(SynchronyState {
                source: self.source(sources),
                verdict: self.byte(),
                offset: self.wide() as i16,
                since: self.key(),
            }),
            18 => Message::Finish,
            19 => Message::Finished(Finished { in_flight: self.wide() }),
            20 => Message::Report(Report { entries: Batch::new(), last: self.chance() }),
            _ => self.other_message(),
        }
    }

    fn other_message(&mut self) -> Message {
        match self.below(5) {
            4 => Message::Lacking(Lacking {
                entries: self.batch(|own| LackingEntry {
                    key: own.key(),
                    attempt: own.attempt(),
                    readout: own.below(4) as u16,
                }),
            }),
            0 => Message::Welcome,
            1 => Message::Refuse(RefuseReason::OldEpoch),
            2 => Message::Hello(ropewalk_wire::message::Hello::new("any", self.wide())),
            _ => Message::StopRequest(self.cause()),
        }
    }

    fn credit(&mut self) -> Credit {
        let events = if self.below(16) == 0 { self.wide() } else { self.below(64) };
        let bytes = if self.below(16) == 0 { self.wide() } else { self.below(64) * 1024 };
        Credit { events, bytes }
    }

    /// A request of a builder unit to a readout unit.
    fn request(&mut self) -> Request {
        let entries =
            self.batch(|own| RequestEntry { key: own.key(), slot: own.below(12) as u32, attempt: own.attempt() });
        Request { entries }
    }

    /// A release of an event manager.
    fn release(&mut self) -> Release {
        let entries = self.batch(|own| ReleaseEntry {
            first: own.key(),
            count: if own.below(16) == 0 { own.wide() as u32 } else { own.below(8) as u32 },
            outcome: own.outcome(),
        });
        Release { entries }
    }
}

// ---- run control under commands and messages in any order

/// Feeds run control with commands and messages.
///
/// # Panics
/// If the machine panics, if a run is started twice, or if an ended run continues.
pub fn control(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut control = RunControl::new(vec![NodeId::readout(0), NodeId::readout(1), NodeId::builder(0)]);
    let mut starts = 0;
    while !choices.is_over() {
        let (before, now) = (control.phase(), choices.now());
        match choices.below(8) {
            0 => {
                let last = choices.chance().then(|| choices.key());
                control.command(now, RunCommand::Start { run: RunNumber(1), first: choices.key(), last });
            }
            1 => {
                let last = choices.chance().then(|| choices.key());
                control.command(now, RunCommand::Stop { last });
            }
            2 => control.command(now, RunCommand::ForceStop),
            3 => control.node_lost(now, choices.node()),
            4 => control.stop_requested(now, choices.cause()),
            6 => control.command(now, if choices.chance() { RunCommand::Pause } else { RunCommand::Resume }),
            5 if choices.below(8) == 0 => control.run_ended(now),
            5 if choices.chance() => control.node_begun(now, choices.node()),
            7 if choices.chance() => {
                let (source, is_masked) = (choices.source(4), choices.chance());
                control.command(now, RunCommand::Mask { source, is_masked });
            }
            _ => control.node_connected(now, choices.node()),
        }
        let mut actions = 0;
        while let Some(action) = control.poll(now) {
            starts += usize::from(matches!(action, ControlAction::Start { .. }));
            actions += 1;
            assert!(actions < MOST_ACTIONS, "run control does not come to rest");
        }
        assert!(starts <= 1, "a run is started twice");
        assert!(before != RunPhase::Ended || control.phase() == RunPhase::Ended, "what has ended goes on");
        let _ = (control.next_deadline(), control.stopped_by(), control.nodes().count());
    }
}

/// The number of front ends: the first one is the trigger, the last one is optional.
const FRONT_ENDS: u64 = 3;

/// Feeds run control of front ends, and parses words and commands from arbitrary bytes.
///
/// # Panics
/// If the machine or a parser panics, if a trigger is enabled before all required front ends have started, if a front
/// end is held that is no trigger or does not know the command, or if more is kept than permitted.
pub fn front_ends(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = |number: u64| FrontEndConfig {
        source: SourceId(number as u32 + 1),
        is_trigger: number == 0,
        is_required: number + 1 < FRONT_ENDS,
        settings: "threshold = 12".to_owned(),
    };
    let mut control = FrontEnds::new(FrontEndsConfig {
        front_ends: (0..FRONT_ENDS).map(config).collect(),
        answer: Duration::from_secs(10),
        drain: Duration::from_secs(30),
    });
    let mut run = 0;
    while !choices.is_over() {
        let now = choices.now();
        let place = choices.below(FRONT_ENDS) as usize;
        match choices.below(13) {
            0 if !control.phase().is_active() => {
                run += 1;
                let order = RunOrder {
                    run: RunNumber(run),
                    first: choices.key(),
                    last: choices.chance().then(|| choices.key()),
                    addresses: vec!["127.0.0.1:1".to_owned(); FRONT_ENDS as usize],
                };
                if choices.chance() { control.start(now, order) } else { control.take_over(now, order) }
            }
            1 => {
                let last = choices.chance().then(|| choices.key());
                control.stop(now, last);
            }
            2 if choices.below(8) == 0 => control.force_stop(now),
            3 => control.lost(now, place),
            4 if control.may_connect(now, place) => {
                let stage = Stage::from_u8(choices.below(6) as u8).unwrap_or_default();
                let run = RunNumber(choices.below(u64::from(run) + 2) as u32);
                let (version, is_held) = match choices.below(3) {
                    0 => (1, false),
                    1 => (2, false),
                    _ => (2, true),
                };
                let hello = Hello { version, stage, run, is_held, ..Hello::new(SourceId(place as u32 + 1), "any") };
                control.connected(now, place, hello);
            }
            5 => control.nodes_are(now, phase(choices.below(5))),
            6 => _ = control.reported(now, place, choices.chance()),
            8 => control.pause(now, choices.chance()),
            7 => {
                let kind = choices.below(48) as u8;
                read(kind, choices.raw(60));
            }
            _ => {
                let word = word(&mut choices, run);
                control.heard(now, place, &word);
            }
        }
        let mut actions = 0;
        while let Some(action) = control.poll(now) {
            actions += 1;
            assert!(actions < MOST_ACTIONS, "run control does not come to rest");
            expect_sense(&control, &action);
        }
        let (incidents, _) = control.incidents();
        assert!(incidents.len() <= MOST_INCIDENTS, "{} incidents are kept", incidents.len());
        let _ = (control.next_deadline(), control.members().len());
    }
}

/// Checks that only the trigger is held, during the run, and that it is enabled last: by then every awaited front end
/// has started.
fn expect_sense(control: &FrontEnds, action: &FrontEndAction) {
    if let FrontEndAction::Tell(place, Command::Hold(_) | Command::Release(_)) = action {
        assert_eq!(*place, 0, "only the trigger is held and released");
        let hello = control.members()[0].hello().expect("commands go to connected front ends only");
        assert!(hello.may_be_held(), "version {} knows nothing of it", hello.version);
        assert!((FrontEndPhase::Starting..=FrontEndPhase::Running).contains(&control.phase()));
    }
    let FrontEndAction::Tell(place, Command::Enable(_)) = action else { return };
    assert_eq!(*place, 0, "only the trigger is enabled");
    assert!(control.phase() >= FrontEndPhase::Starting, "enabled while {}", control.phase().name());
}

const fn phase(number: u64) -> RunPhase {
    match number {
        0 => RunPhase::Initial,
        1 => RunPhase::Configured,
        2 => RunPhase::Running,
        3 => RunPhase::Draining,
        _ => RunPhase::Ended,
    }
}

/// A word, usually about the current run.
fn word(choices: &mut Choices<'_>, run: u32) -> Word {
    let run = RunNumber(if choices.below(4) == 0 { choices.below(4) as u32 } else { run });
    match choices.below(8) {
        0 => Word::Ready(run),
        1 => Word::Started(run),
        2 => Word::Enabled(run),
        3 => Word::Vetoed(Vetoed { run, last: choices.wide(), issued: choices.wide(), vetoed: Vec::new() }),
        4 => {
            let numbers = [choices.chance(), choices.chance()].map(|has| has.then(|| choices.wide()));
            Word::Stopped(Stopped { run, first: numbers[0], last: numbers[1], sent: choices.wide() })
        }
        5 => Word::Held(Held { run, last: choices.wide() }),
        6 => Word::Released(run),
        _ => Word::Status(Status { run, sent: choices.wide(), ..Status::default() }),
    }
}

/// Checks that encoding and parsing a parsed message again preserves it.
fn read(kind: u8, body: &[u8]) {
    let _ = body.first_chunk().map(Frame::parse);
    let Some(kind) = Kind::from_u8(kind) else { return };
    let mut again = Vec::new();
    if let Ok(command) = Command::decode(kind, body) {
        command.encode(&mut again);
        assert_eq!(Command::decode(kind, &again[FRAME_BYTES..]), Ok(command));
    } else if let Ok(word) = Word::decode(kind, body) {
        // The time and value of a reading may be NaN, and then differ from themselves.
        let is_reading = matches!(word, Word::Report(_));
        word.encode(&mut again);
        assert!(is_reading || Word::decode(kind, &again[FRAME_BYTES..]) == Ok(word));
    }
}
