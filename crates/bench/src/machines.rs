//! `bench machines`: the protocol alone. Framer, readout unit, manager and builder unit on one core, over fragments
//! that lie in memory; no socket, no thread, no encoded message.

use crate::fragments::Prepared;
use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, case};
use crate::{BenchError, Scale};
use ropewalk_flow::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource, synchrony};
use ropewalk_flow::histogram::{FieldOrder, HistogramConfig, Histogrammed, IntegerField};
use ropewalk_flow::manager::{Manager, ManagerAction, ManagerConfig};
use ropewalk_flow::messages::{Fragment, Message, Received};
use ropewalk_flow::readout::{Format, Framer, FramerLimits, Readout, ReadoutAction, ReadoutConfig, SourceConfig};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_limits::{pin_to_cpu, thread_cpu_seconds};
use ropewalk_memory::{Slice, prepare_chains};
use ropewalk_terms::{AcknowledgementLevel, Binning, EventKey, Incarnation, Instant, NodeId, Role, SourceId};
use serde_json::{Map, Value, json};
use std::time::Duration;

const SOURCES: u16 = 16;
/// Bytes of prepared fragments.
const PREPARED: usize = 1 << 30;
/// Fragments framed from one source before the next has its turn, as in the drive.
const FRAME_BATCH: usize = 256;
/// Events in work at once, as in a builder unit.
const SLOTS: u32 = 2048;
/// Nothing is late here.
const PATIENCE: Duration = Duration::from_secs(60);
const NOTE: &str = "limit: a bare walk over the same memory that reads each fragment's headers; target: 5e6 a second";

pub(crate) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    for variant in VARIANTS {
        let case = variant.case();
        session.measure(&case, |session| {
            let series = on_one_core(scale, || variant.measure(scale))?;
            session.row(Row::of(&case, "fragments/s", &series, NOTE))
        })?;
    }
    Ok(())
}

/// Measures on a thread that stays where it is.
fn on_one_core<T: Send>(
    scale: Scale,
    measuring: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let pinned = || {
        if scale != Scale::Tiny {
            // A scheduler that moves the thread costs more than is measured; without rights it must do.
            let _ = pin_to_cpu(0);
        }
        measuring()
    };
    let measured = std::thread::scope(|scope| scope.spawn(pinned).join());
    measured.unwrap_or_else(|_| Err(BenchError::wrong("a panic")))
}

/// What is measured.
#[derive(Copy, Clone)]
struct Variant {
    fragment_bytes: usize,
    /// With the watch over synchrony.
    watched: bool,
    /// This many histograms of each source: of a field, of sizes, of times between fragments, of another field.
    histograms: usize,
}

const USUAL: Variant = Variant { fragment_bytes: 2048, watched: false, histograms: 0 };

/// The usual fragment with and without the watch, then what lies in two FEROL blocks and what lies in six; the usual one in histograms.
const VARIANTS: [Variant; 6] = [
    USUAL,
    Variant { watched: true, ..USUAL },
    Variant { fragment_bytes: 4096, ..USUAL },
    Variant { fragment_bytes: 23_000, ..USUAL },
    Variant { histograms: 1, ..USUAL },
    Variant { histograms: 4, ..USUAL },
];

/// What users are expected to ask for: a field of the header, sizes, times, and bits of a field.
fn histogram_configs(count: usize) -> Vec<HistogramConfig> {
    let field = |offset, bytes, bits| {
        Histogrammed::Field(IntegerField { offset, bytes, order: FieldOrder::Little, lowest_bit: 0, bits })
    };
    let asked = [
        (field(4, 3, 24), Binning::linear(0, 1 << 20, 64)),
        (Histogrammed::Size, Binning::linear(0, 8192, 64)),
        (Histogrammed::Interval, Binning::logarithmic(1_000, 1_000_000_000, 60)),
        (field(0, 4, 8), Binning::linear(0, 256, 64)),
    ];
    let sources: Vec<_> = (0..SOURCES).map(|source| SourceId(source.into())).collect();
    let config = |(index, (of, binning)): (u8, (Histogrammed, _))| {
        let binning: Option<Binning> = binning;
        Some(HistogramConfig { index, sources: sources.clone(), of, binning: binning? })
    };
    (0..).zip(asked).take(count).filter_map(config).collect()
}

impl Variant {
    fn case(self) -> Map<String, Value> {
        let watch = if self.watched { "on" } else { "off" };
        case([
            ("sources", json!(SOURCES)),
            ("fragment_bytes", json!(self.fragment_bytes)),
            ("synchrony", json!(watch)),
            ("histograms", json!(self.histograms)),
        ])
    }

    fn measure(self, scale: Scale) -> Result<Series, BenchError> {
        let all = PREPARED / self.fragment_bytes / usize::from(SOURCES);
        let prepared = Prepared::new(SOURCES, self.fragment_bytes, scale.choose(600, all as u32, all as u32))?;
        prepare_chains(2 * prepared.fragments() as usize);
        let fragments = prepared.fragments() as f64;
        let timed = |work: &mut dyn FnMut() -> Result<(), BenchError>| {
            // The thread's own seconds: what other programs take from the core is not ours to count.
            let begin = thread_cpu_seconds();
            work().map(|()| [fragments / (thread_cpu_seconds() - begin).max(1e-9)])
        };
        let ours = || {
            // Their tables are laid out before a run, and are no part of it.
            let mut machines = Machines::new(&prepared, self);
            timed(&mut || machines.run())
        };
        let bare = || timed(&mut || prepared.walk().map(drop));
        let [series] = alternate(scale.choose(1, 9, 25), ours, bare)?;
        Ok(series)
    }
}

/// One readout unit, one builder unit and their manager, wired by hand.
struct Machines<'a> {
    prepared: &'a Prepared,
    fragment_bytes: usize,
    framers: Vec<Framer>,
    /// Slices of each source that were pushed.
    pushed: Vec<usize>,
    readout: Readout,
    manager: Manager,
    builder: Builder,
    received: Vec<Received>,
    /// The super-fragment on its way to the builder unit.
    answer: Vec<Fragment>,
    /// Events to be verified, as a drive gathers those to be written.
    emitted: Vec<u32>,
    built: u64,
}

impl<'a> Machines<'a> {
    fn new(prepared: &'a Prepared, variant: Variant) -> Self {
        let ids = || (0..SOURCES).map(|source| SourceId(source.into()));
        let sources = ids().map(|id| SourceConfig::new(id, Format::Ferol)).collect();
        let histograms = histogram_configs(variant.histograms);
        let readout = ReadoutConfig { window: 4096, capacity: 1 << 15, histograms, ..ReadoutConfig::new(0, sources) };
        let limits = FramerLimits { max_fragment: 1 << 20, check_crc: false, gather: None };
        let manager = ManagerConfig { event_timeout: PATIENCE, drain_timeout: PATIENCE, ..ManagerConfig::new(1, 1) };
        Self {
            prepared,
            fragment_bytes: variant.fragment_bytes,
            framers: ids().map(|_| Framer::new(limits)).collect(),
            pushed: vec![0; usize::from(SOURCES)],
            readout: Readout::new(readout),
            manager: Manager::new(manager),
            builder: Builder::new(builder_config(variant.watched)),
            received: Vec::with_capacity(FRAME_BATCH),
            answer: Vec::with_capacity(usize::from(SOURCES)),
            emitted: Vec::with_capacity(SLOTS as usize),
            built: 0,
        }
    }

    /// Builds every event; an error where one is not what was put in.
    fn run(&mut self) -> Result<(), BenchError> {
        let (readout, builder) = (NodeId::readout(0), NodeId::builder(0));
        let now = MonotonicClock.now();
        self.manager.node_connected(now, readout, Incarnation(1));
        self.manager.node_connected(now, builder, Incarnation(1));
        self.builder.manager_connected(now);
        self.builder.readout_connected(now, 0);
        (0..usize::from(SOURCES)).for_each(|source| self.readout.source_connected(now, source));
        let last = EventKey::new(0, u64::from(self.prepared.events));
        self.manager.start(now, EventKey::new(0, 1), Some(last));
        let mut idle = 0;
        while self.built < u64::from(self.prepared.events) {
            let now = MonotonicClock.now();
            let before = self.built;
            self.take_turns(now)?;
            idle = if self.built == before { idle + 1 } else { 0 };
            if idle > 1000 {
                return Err(BenchError::wrong(format!("standstill after {} events", self.built)));
            }
        }
        // Everything is released: nothing may be left.
        let now = MonotonicClock.now();
        self.take_turns(now)?;
        self.take_turns(now)?;
        let account = self.readout.total();
        if account.in_complete_events != self.prepared.fragments() {
            return Err(BenchError::wrong(format!("the account of fragments: {account:?}")));
        }
        Ok(())
    }

    fn take_turns(&mut self, now: Instant) -> Result<(), BenchError> {
        self.receive(now)?;
        self.turn_readout(now);
        self.turn_manager(now);
        self.turn_builder(now)
    }

    /// Frames what each source has room for.
    fn receive(&mut self, now: Instant) -> Result<(), BenchError> {
        for source in 0..self.framers.len() {
            let room = self.readout.room(source).min(FRAME_BATCH);
            if room == 0 {
                continue;
            }
            let framer = &mut self.framers[source];
            if framer.buffered() < self.fragment_bytes + 128 {
                let slice = self.prepared.streams[source].get(self.pushed[source]);
                slice.into_iter().for_each(|slice: &Slice| framer.push(slice.clone()));
                self.pushed[source] += 1;
            }
            framer.next_batch(&mut self.received, room).map_err(|error| BenchError::wrong(format!("{error:?}")))?;
            self.readout.receive(now, source, &mut self.received);
        }
        Ok(())
    }

    fn turn_readout(&mut self, now: Instant) {
        while let Some(action) = self.readout.poll(now) {
            match action {
                ReadoutAction::ToManager(message) => self.manager.message(now, NodeId::readout(0), &message),
                ReadoutAction::Answer { entry, .. } => {
                    let held = self.readout.super_fragment(entry.key);
                    held.inspect(|held| held.append_to(&mut self.answer));
                    self.builder.super_fragment(now, 0, &entry, &mut self.answer);
                    self.answer.clear();
                }
            }
        }
    }

    fn turn_manager(&mut self, now: Instant) {
        while let Some(action) = self.manager.poll(now) {
            let ManagerAction::Send { to, message } = action else { return };
            match (to.role, message) {
                // The run's end is not measured, and its last reports with it.
                (_, Message::Finish) => {}
                (Role::Readout, message) => self.readout.message(now, NodeId::MANAGER, &message),
                (_, message) => self.builder.message(now, &message),
            }
        }
    }

    fn turn_builder(&mut self, now: Instant) -> Result<(), BenchError> {
        while let Some(action) = self.builder.poll(now) {
            match action {
                BuilderAction::ToManager(message) => self.manager.message(now, NodeId::builder(0), &message),
                BuilderAction::ToReadout { message, .. } => self.readout.message(now, NodeId::builder(0), &message),
                BuilderAction::EndLumisection(_) => {}
                BuilderAction::StopRun { cause } => return Err(BenchError::wrong(cause)),
            }
        }
        self.emitted.extend(std::iter::from_fn(|| self.builder.next_event()));
        for index in 0..self.emitted.len() {
            self.verify(self.emitted[index])?;
        }
        self.builder.all_reached(now, self.emitted.drain(..), AcknowledgementLevel::Written);
        Ok(())
    }

    /// Every event is the next one, and every fragment in it is the right one of the right source.
    fn verify(&mut self, slot: u32) -> Result<(), BenchError> {
        self.built += 1;
        let event = self.builder.event(slot);
        let right = |(source, fragment): (u32, &Fragment)| {
            fragment.meta.raw_id == self.built
                && fragment.meta.source == SourceId(source)
                && fragment.payload.len() == self.fragment_bytes
        };
        if event.complete && event.key == EventKey::new(0, self.built) && (0..).zip(event.fragments()).all(right) {
            return Ok(());
        }
        Err(BenchError::wrong(format!("event {}", event.key)))
    }
}

fn builder_config(watched: bool) -> BuilderConfig {
    let ids = || (0..SOURCES).map(|source| SourceId(source.into()));
    let source = |id| BuilderSource::new(id, 0);
    BuilderConfig {
        slots: SLOTS,
        event_timeout: PATIENCE,
        level: AcknowledgementLevel::Built,
        synchrony: watched.then(|| synchrony::Config::new(ids().map(synchrony::SourceConfig::new))),
        ..BuilderConfig::new(0, 1, ids().map(source).collect())
    }
}
