//! A source's layout or format tried on a capture or a file of what its board sent.

use super::account::{HoleReport, missed, unreadable};
use super::frames::{Carriage, Connections, CutOff, Input, Passing};
use super::recording::capture_has_datagrams;
use crate::OfflineError;
use crate::status::StatusSummary;
use ropewalk_config::{ConfigurationError, Fault, point_at};
use ropewalk_flow::choosing::{Carrier, Wanted};
use ropewalk_flow::readout::DatagramLimits;
use ropewalk_flow::trial::{Arrival, BadPlace, Board, BoardAccount, Divide, Numbers, OwnBoard, Trial, TrialAccount};
use ropewalk_terms::{Asked, Fact, Facts, Status};
use ropewalk_wire::capture::{CaptureReader, Carried, Streams, Stretches};
use ropewalk_wire::description::Description;
use ropewalk_wire::mending::{Mended, Mender};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// The schema of [`TrialReport`] as JSON: `docs/schema/source-test.json`.
pub const TRIAL_SCHEMA: &str = "ropewalk-source-test-1";

/// Bytes of a file that are taken at once.
const PIECE_BYTES: usize = 64 << 10;

/// A description, and the data to try it on.
#[derive(Copy, Clone, Debug)]
pub struct TrialOptions<'a> {
    /// What describes the source's frames.
    pub framing: &'a Description,
    /// Several frames of an event that follow each other are one fragment.
    pub gathers: bool,
    /// Event numbers grow, but not one by one.
    pub grows: bool,
    /// Bits of the event numbers of its splitter.
    pub bits: u8,
    /// The time-outs of its datagrams.
    pub limits: DatagramLimits,
    /// The board whose frames are examined; `None`: all boards.
    pub own: Option<&'a OwnBoard>,
    /// A capture, or the bytes of a stream.
    pub input: &'a Path,
    /// Which packets of a capture are meant.
    pub wanted: &'a Wanted,
}

/// The result of decoding a board's data with the layout or format of its source.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(title = "ropewalk source test --json")]
pub struct TrialReport {
    /// The form's name and version.
    #[schemars(extend("const" = TRIAL_SCHEMA))]
    pub schema: &'static str,
    /// Whole frames of the source.
    pub frames: u64,
    /// Whole frames of other boards.
    pub other_frames: u64,
    /// Datagrams, of a capture.
    pub datagrams: u64,
    /// Bytes that belong to no frame.
    pub skipped_bytes: u64,
    /// Bytes that the format means to stand between frames.
    pub filler_bytes: u64,
    /// Bytes at the end that are no whole frame.
    pub left_over_bytes: u64,
    /// Frames of which only some of their datagrams came.
    pub unfinished_frames: u64,
    /// Losses by cause.
    pub faults: BTreeMap<&'static str, u64>,
    /// Packets of a capture that do not belong to the source, by the reason's name.
    pub aside: BTreeMap<&'static str, u64>,
    /// Packets of a capture that went to other ports than the source's, by port.
    pub other_ports: BTreeMap<u16, u64>,
    /// What each board sent.
    pub boards: Vec<BoardReport>,
    /// Places where something is not as the description wants it.
    pub bad_places: u64,
    /// The first of them; null without any.
    pub first_bad: Option<BadReport>,
    /// Bytes of the connection that a capture misses, and those around them that belong to no whole frame.
    pub missed_bytes: u64,
    /// The first places at which it misses some.
    pub holes: Vec<HoleReport>,
    /// Why the input is truncated; null if it is not.
    pub cut_off: Option<String>,
    /// The exit status of `source test`, and why.
    pub status: StatusSummary,
}

/// What a board sent.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct BoardReport {
    /// Which board.
    pub board: String,
    /// Whole frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the shortest one.
    pub least_bytes: usize,
    /// Bytes of the longest one.
    pub most_bytes: usize,
    /// The frames' own numbers; null if they have none.
    pub sequence: Option<NumbersReport>,
    /// The events' numbers; null if frames do not say them.
    pub event: Option<NumbersReport>,
    /// Frames whose checksum is right, and wrong.
    pub checksums: ChecksumsReport,
    /// The intervals between frames by the board's clock, with the number of each.
    pub intervals: Vec<IntervalReport>,
    /// Events into which a splitter divided the frames.
    pub pieces: u64,
    /// The number of times that the clock went backward.
    pub clock_backward: u64,
    /// The number of times that it proved not to be a clock; 0 if it is one.
    pub clock_wrong: u64,
    /// Why numbers may mean something else.
    pub doubts: Vec<String>,
}

/// What was seen of numbers that should be one more each time.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct NumbersReport {
    /// The first one.
    pub first: u64,
    /// The furthest one.
    pub last: u64,
    /// The number of gaps.
    pub gaps: u64,
    /// The number of skipped numbers.
    pub missing: u64,
    /// The number of wraps of the counter.
    pub wraps: u64,
    /// Numbers that came twice.
    pub duplicates: u64,
    /// Numbers that came late.
    pub out_of_order: u64,
    /// The number of restarts of the counter.
    pub restarts: u64,
}

/// Checksums of a board's frames; frames without one are not counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ChecksumsReport {
    /// Frames whose checksum is right.
    pub right: u64,
    /// Frames whose checksum is wrong.
    pub wrong: u64,
}

/// A step of the histogram.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct IntervalReport {
    /// At least this many nanoseconds.
    pub from_ns: u64,
    /// Less than this many.
    pub to_ns: u64,
    /// The number of occurrences.
    pub count: u64,
}

/// Where something is not as the description wants it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct BadReport {
    /// The rule's key.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// The offset of the frame in the input.
    pub offset: u64,
    /// Line of the rule in the configuration, from 1; 0 if the rule is not in it.
    pub line: usize,
    /// Column of the rule.
    pub column: usize,
    /// The bytes around it, and which of them the rule looks at.
    #[serde(skip)]
    pub place: BadPlace,
}

/// Tries a description; `divide` is the source's splitter. Failed rules are looked up in the configuration, where the
/// source has this key, such as `source[0]`.
///
/// # Errors
/// If the input cannot be read.
pub fn try_layout(
    options: &TrialOptions<'_>,
    divide: Option<Divide<'_>>,
    config: &Path,
    key: &str,
) -> Result<TrialReport, OfflineError> {
    let (account, others) = tried(options, divide)?;
    Ok(report(account, others, |place| rule_of(config, key, place)))
}

/// The parts of an input that are not frames of the source.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// By the reason's name.
    pub(super) aside: BTreeMap<&'static str, u64>,
    /// Packets to other ports, by port.
    pub(super) ports: BTreeMap<u16, u64>,
    /// The input breaks off.
    pub(super) cut_off: Option<CutOff>,
    /// What of the connection a capture misses.
    pub(super) mended: Mended,
}

/// The result, and the packets of a capture that do not belong to the source.
pub(super) fn tried(
    options: &TrialOptions<'_>,
    divide: Option<Divide<'_>>,
) -> Result<(TrialAccount, Others), OfflineError> {
    let trial = Trial::new(options.framing).gathering(options.gathers).growing(options.grows);
    let trial = trial.dividing(divide, options.bits);
    let trial = trial.waiting(options.limits).of(options.own);
    let (mut trial, mut others) = (trial, Others::default());
    let mut input = Input::open(options.input)?;
    if CaptureReader::recognises(input.begin()) {
        try_capture(options, carrier(options)?, &mut input, &mut trial, &mut others);
    } else if options.framing.needs_datagrams() {
        let format = match options.framing {
            Description::Layout(_) => "a layout of datagrams",
            Description::Format(format) | Description::Board(format, _) => format.name(),
        };
        return Err(OfflineError::NeedsCapture { path: options.input.to_owned(), format });
    } else {
        try_stream(&mut input, &mut trial);
        others.cut_off = input.cut_off();
    }
    Ok((trial.end(), others))
}

/// The rule that failed, with its place in the configuration; the error's text says what is wrong and where.
pub fn rule_of(config: &Path, key: &str, place: &BadPlace) -> ConfigurationError {
    point_at(config, &Fault::new(format!("{key}.{}", place.key), place.what.clone()))
}

/// In what of a capture the frames lie: a layout says it, of a format the first packet that is wanted does.
fn carrier(options: &TrialOptions<'_>) -> Result<Carrier, OfflineError> {
    let in_datagrams = match options.framing {
        Description::Format(format) | Description::Board(format, _) if !format.needs_datagrams() => {
            capture_has_datagrams(options.input, options.wanted)? == Some(true)
        }
        framing => framing.needs_datagrams(),
    };
    Ok(if in_datagrams { Carrier::Datagrams } else { Carrier::Connections })
}

fn try_stream(input: &mut Input, trial: &mut Trial<'_>) {
    loop {
        input.fill(PIECE_BYTES);
        let (offset, bytes) = (input.offset(), input.window().len());
        if bytes == 0 {
            return;
        }
        trial.stream(Arrival { offset, ..Arrival::default() }, input.window());
        input.take(bytes);
    }
}

fn try_capture(
    options: &TrialOptions<'_>,
    carrier: Carrier,
    input: &mut Input,
    trial: &mut Trial<'_>,
    others: &mut Others,
) {
    let (mut streams, mut stretches, mut packets) = (Streams::new(), Stretches::default(), 0);
    let (mut connections, mut mender) = (Connections::default(), options.wanted.mender());
    let mut last = Arrival::default();
    let rest = Carriage::default().read(input, &mut |passing| {
        let Passing::Packet { time, carried, .. } = passing else { return ControlFlow::Continue(()) };
        packets += 1;
        let port = carried.port();
        let mut tell = |name| *others.aside.entry(name).or_default() += 1;
        let arrival = |from| Arrival { from: Some(from), time, offset: packets - 1, is_packet: true };
        match options.wanted.pick(carrier, carried) {
            Ok(Carried::Datagram(datagram)) => trial.datagram(arrival(datagram.source.ip()), datagram.payload),
            Ok(Carried::Other(packet)) => trial.datagram(arrival(packet.source), packet.payload),
            Ok(Carried::Segment(segment)) => {
                stretches.clear();
                streams.accept(&segment, &mut stretches);
                match connections.number_of(&segment) {
                    Some(number) if number == options.wanted.connection => {
                        last = arrival(segment.source.ip());
                        try_stretches(&stretches, &mut mender, trial, last);
                    }
                    Some(_) => tell("other_connection"),
                    None => {}
                }
            }
            Ok(Carried::Aside(_)) => {}
            Err(name) => {
                tell(name);
                if let Some(port) = port.filter(|_| name == "other_port") {
                    *others.ports.entry(port).or_default() += 1;
                }
            }
        }
        ControlFlow::Continue(())
    });
    streams.end(&mut |whose, stretches| {
        if connections.known(whose) == Some(options.wanted.connection) {
            try_stretches(stretches, &mut mender, trial, last);
        }
    });
    mender.end(&mut |bytes| {
        trial.stream(last, bytes);
        true
    });
    (others.cut_off, others.mended) = (rest.cut_off, mender.mended().clone());
}

/// Tries the next bytes of a stream; a connection that restarts, or lacks bytes, continues with another frame.
fn try_stretches(stretches: &Stretches, mender: &mut Mender, trial: &mut Trial<'_>, arrival: Arrival) {
    for (piece, bytes) in stretches.iter() {
        if piece.begins || piece.lost_bytes > 0 {
            let mut give = |bytes: &[u8]| {
                trial.stream(arrival, bytes);
                true
            };
            let _ = piece.begins && mender.begin(&mut give);
            let _ = piece.lost_bytes > 0 && mender.miss(piece.lost_bytes, &mut give);
            trial.end_of_stream();
        }
        mender.push(bytes, &mut |bytes| {
            trial.stream(arrival, bytes);
            true
        });
    }
}

fn report(account: TrialAccount, others: Others, rule: impl FnOnce(&BadPlace) -> ConfigurationError) -> TrialReport {
    TrialReport {
        schema: TRIAL_SCHEMA,
        frames: account.frames(),
        other_frames: account.other_frames,
        datagrams: account.datagrams,
        skipped_bytes: account.skipped_bytes,
        filler_bytes: account.filler_bytes,
        left_over_bytes: account.left_over_bytes,
        unfinished_frames: account.unfinished_frames,
        faults: account.faults,
        aside: others.aside,
        other_ports: others.ports,
        boards: account.boards.iter().map(board_report).collect(),
        bad_places: account.bad_places,
        first_bad: account.first_bad.map(|place| {
            let rule = rule(&place);
            let (key, what, offset) = (place.key, place.what.clone(), place.offset);
            BadReport { key, what, offset, line: rule.line, column: rule.column, place }
        }),
        missed_bytes: missed(&others.mended),
        holes: HoleReport::all(&others.mended),
        cut_off: others.cut_off.map(|cut_off| cut_off.why),
        status: StatusSummary::default(),
    }
    .judged()
}

fn board_report((board, account): &(Board, BoardAccount)) -> BoardReport {
    let intervals = account.intervals.counts();
    let numbers_of = [("sequence", &account.sequence), ("event", &account.event)];
    let doubts = numbers_of.into_iter().filter_map(|(key, numbers)| Some(format!("{key}: {}", numbers.doubt()?)));
    BoardReport {
        board: board.to_string(),
        frames: account.frames,
        bytes: account.bytes,
        least_bytes: account.least_bytes,
        most_bytes: account.most_bytes,
        sequence: numbers(&account.sequence),
        event: numbers(&account.event),
        checksums: ChecksumsReport { right: account.right_checksums, wrong: account.wrong_checksums },
        intervals: intervals
            .map(|step| IntervalReport { from_ns: step.from, to_ns: step.to, count: step.count })
            .collect(),
        pieces: account.pieces,
        clock_backward: account.intervals.backward,
        clock_wrong: account.intervals.doubtful_times(),
        doubts: doubts.chain(account.doubt_of_time()).collect(),
    }
}

fn numbers(numbers: &Numbers) -> Option<NumbersReport> {
    Some(NumbersReport {
        first: numbers.first?,
        last: numbers.last?,
        gaps: numbers.gaps,
        missing: numbers.missing,
        wraps: numbers.wraps,
        duplicates: numbers.duplicates,
        out_of_order: numbers.out_of_order,
        restarts: numbers.restarts,
    })
}

impl TrialReport {
    /// Whether nothing is missing, misplaced or doubtful.
    pub fn is_complete(&self) -> bool {
        self.facts().reasons(Asked::Checked).all(|(fact, _)| fact.status(Asked::Checked) != Status::Lost)
    }

    /// What the status depends on.
    fn facts(&self) -> Facts {
        let boards = self.boards.iter().flat_map(|board| {
            let numbers = board.sequence.or(board.event).unwrap_or_default();
            [
                (Fact::CrcErrors, board.checksums.wrong),
                (Fact::FramesMissing, numbers.missing.max(numbers.gaps)),
                (Fact::Duplicate, numbers.duplicates),
                (Fact::OutOfOrder, numbers.out_of_order),
                (Fact::Restarts, numbers.restarts),
                (Fact::ClockBackward, board.clock_wrong),
            ]
        });
        Facts::default().with(boards).with([
            (Fact::Nothing, u64::from(self.frames == 0)),
            (Fact::Faults, self.faults.values().sum()),
            (Fact::GarbageBytes, self.skipped_bytes),
            (Fact::FillerBytes, self.filler_bytes),
            // Bytes left over where the input breaks off are not the board's fault.
            (Fact::LeftOverBytes, if self.cut_off.is_none() { self.left_over_bytes } else { 0 }),
            (Fact::MissedBytes, self.missed_bytes),
            (Fact::InputsCutOff, u64::from(self.cut_off.is_some())),
            (Fact::PacketsUnreadable, unreadable(&self.aside)),
            (Fact::FramesUnfinished, self.unfinished_frames),
        ])
    }

    fn judged(mut self) -> Self {
        self.status = StatusSummary::of(&self.facts(), Asked::Checked);
        self
    }
}
