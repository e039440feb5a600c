//! `bench machines`: the protocol alone. Framer, readout unit, manager and builder unit on one core, over fragments in
//! memory; no socket, no thread, no encoded message.

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
/// Events in work at once, as in a builder unit.
const SLOTS: u32 = 2048;
/// No time-out expires here.
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

/// Measures on a pinned thread.
pub(crate) fn on_one_core<T: Send>(
    scale: Scale,
    measuring: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let pinned = || {
        if scale != Scale::Tiny {
            // A moved thread would cost more than the measured work; without permission it runs unpinned.
            let _ = pin_to_cpu(0);
        }
        measuring()
    };
    let measured = std::thread::scope(|scope| scope.spawn(pinned).join());
    measured.unwrap_or_else(|_| Err(BenchError::wrong("a panic")))
}

#[derive(Copy, Clone)]
struct Variant {
    fragment_bytes: usize,
    /// With the check of synchrony.
    watched: bool,
    /// The number of histograms per source: of a field, of sizes, of times between fragments, of another field.
    histograms: usize,
}

const USUAL: Variant = Variant { fragment_bytes: 2048, watched: false, histograms: 0 };

/// The usual fragment with and without the check, two and six FEROL blocks, and the usual one with histograms.
const VARIANTS: [Variant; 6] = [
    USUAL,
    Variant { watched: true, ..USUAL },
    Variant { fragment_bytes: 4096, ..USUAL },
    Variant { fragment_bytes: 23_000, ..USUAL },
    Variant { histograms: 1, ..USUAL },
    Variant { histograms: 4, ..USUAL },
];

/// What users are expected to configure: a field of the header, sizes, times, and bits of a field.
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

/// The configuration of the machines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) sources: u16,
    pub(crate) fragment_bytes: usize,
    /// Events in work at once in a builder unit.
    pub(crate) in_flight: u32,
    /// Events that the readout unit reads beyond the oldest incomplete one.
    pub(crate) window: u32,
    /// Fragments framed from one source before the next, as in the drive.
    pub(crate) batch: usize,
    pub(crate) builders: u16,
    /// With the check of synchrony.
    pub(crate) watched: bool,
    /// Histograms per source.
    pub(crate) histograms: usize,
}

impl Shape {
    /// As in a usual run.
    pub(crate) const USUAL: Self = Self {
        sources: SOURCES,
        fragment_bytes: 2048,
        in_flight: SLOTS,
        window: 4096,
        batch: 256,
        builders: 1,
        watched: false,
        histograms: 0,
    };

    fn ids(self) -> impl Iterator<Item = SourceId> {
        (0..self.sources).map(|source| SourceId(source.into()))
    }
}

impl Variant {
    const fn shape(self) -> Shape {
        let Self { fragment_bytes, watched, histograms } = self;
        Shape { fragment_bytes, watched, histograms, ..Shape::USUAL }
    }

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
        let rate = |seconds: f64| [prepared.fragments() as f64 / seconds];
        let ours = || seconds_of_machines(&prepared, self.shape()).map(rate);
        let bare = || seconds_of_walk(&prepared).map(rate);
        let [series] = alternate(scale.choose(1, 9, 25), ours, bare)?;
        Ok(series)
    }
}

/// The thread's own seconds for `work`: time that other programs take from the core does not count.
fn timed(work: impl FnOnce() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let begin = thread_cpu_seconds();
    work().map(|()| (thread_cpu_seconds() - begin).max(1e-9))
}

/// Processor seconds to build everything. Tables are allocated before a run, and do not count.
pub(crate) fn seconds_of_machines(prepared: &Prepared, shape: Shape) -> Result<f64, BenchError> {
    let mut machines = Machines::new(prepared, shape);
    timed(|| machines.run())
}

/// The same for a bare walk.
pub(crate) fn seconds_of_walk(prepared: &Prepared) -> Result<f64, BenchError> {
    timed(|| prepared.walk().map(drop))
}

/// One readout unit, builder units and their manager, connected directly.
struct Machines<'a> {
    prepared: &'a Prepared,
    shape: Shape,
    framers: Vec<Framer>,
    /// The number of slices pushed, per source.
    pushed: Vec<usize>,
    readout: Readout,
    manager: Manager,
    builders: Vec<Builder>,
    received: Vec<Received>,
    /// The super-fragment in flight to the builder unit.
    answer: Vec<Fragment>,
    /// Events to be verified, collected as a drive collects those to be written.
    emitted: Vec<u32>,
    built: u64,
    /// The last event of each builder unit, and the sum of all numbers.
    last: Vec<u64>,
    sum: u64,
}

impl<'a> Machines<'a> {
    fn new(prepared: &'a Prepared, shape: Shape) -> Self {
        let (builders, window) = (shape.builders, shape.window);
        let sources = shape.ids().map(|id| SourceConfig::new(id, Format::Ferol)).collect();
        let histograms = histogram_configs(shape.histograms);
        // The maximum held: eight windows.
        let usual = ReadoutConfig { window, capacity: 8 * window, ..ReadoutConfig::new(0, sources) };
        let readout = ReadoutConfig { builders, histograms, ..usual };
        let limits = FramerLimits { max_fragment: 1 << 20, check_crc: false, gather: None };
        let manager =
            ManagerConfig { event_timeout: PATIENCE, drain_timeout: PATIENCE, ..ManagerConfig::new(1, builders) };
        Self {
            prepared,
            shape,
            framers: shape.ids().map(|_| Framer::new(limits)).collect(),
            pushed: vec![0; usize::from(shape.sources)],
            readout: Readout::new(readout),
            manager: Manager::new(manager),
            builders: (0..builders).map(|index| Builder::new(builder_config(shape, index))).collect(),
            received: Vec::with_capacity(shape.batch),
            answer: Vec::with_capacity(usize::from(shape.sources)),
            emitted: Vec::with_capacity(shape.in_flight as usize),
            built: 0,
            last: vec![0; usize::from(builders)],
            sum: 0,
        }
    }

    /// Builds every event; an error if one differs from the input.
    fn run(&mut self) -> Result<(), BenchError> {
        let now = MonotonicClock.now();
        self.manager.node_connected(now, NodeId::readout(0), Incarnation(1));
        for (index, builder) in (0..).zip(&mut self.builders) {
            self.manager.node_connected(now, NodeId::builder(index), Incarnation(1));
            builder.manager_connected(now);
            builder.readout_connected(now, 0);
        }
        (0..self.framers.len()).for_each(|source| self.readout.source_connected(now, source));
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
        // Everything is released: nothing may remain.
        let now = MonotonicClock.now();
        self.take_turns(now)?;
        self.take_turns(now)?;
        let (account, events) = (self.readout.total(), u64::from(self.prepared.events));
        if self.sum != events * (events + 1) / 2 {
            return Err(BenchError::wrong("not every event was built once"));
        }
        if account.in_complete_events != self.prepared.fragments() {
            return Err(BenchError::wrong(format!("the account of fragments: {account:?}")));
        }
        Ok(())
    }

    fn take_turns(&mut self, now: Instant) -> Result<(), BenchError> {
        self.receive(now)?;
        self.turn_readout(now);
        self.turn_manager(now);
        (0..self.builders.len()).try_for_each(|index| self.turn_builder(now, index))
    }

    /// Frames what each source has room for.
    fn receive(&mut self, now: Instant) -> Result<(), BenchError> {
        for source in 0..self.framers.len() {
            let room = self.readout.room(source).min(self.shape.batch);
            if room == 0 {
                continue;
            }
            let framer = &mut self.framers[source];
            if framer.buffered() < self.shape.fragment_bytes + 128 {
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
                ReadoutAction::Answer { builder, entry } => {
                    let held = self.readout.super_fragment(entry.key);
                    held.inspect(|held| held.append_to(&mut self.answer));
                    self.builders[usize::from(builder)].super_fragment(now, 0, &entry, &mut self.answer);
                    self.answer.clear();
                }
            }
        }
    }

    fn turn_manager(&mut self, now: Instant) {
        while let Some(action) = self.manager.poll(now) {
            let ManagerAction::Send { to, message } = action else { return };
            match (to.role, message) {
                // The end of the run and its last reports are not measured.
                (_, Message::Finish) => {}
                (Role::Readout, message) => self.readout.message(now, NodeId::MANAGER, &message),
                (_, message) => self.builders[usize::from(to.index)].message(now, &message),
            }
        }
    }

    fn turn_builder(&mut self, now: Instant, index: usize) -> Result<(), BenchError> {
        let from = NodeId::builder(index as u16);
        while let Some(action) = self.builders[index].poll(now) {
            match action {
                BuilderAction::ToManager(message) => self.manager.message(now, from, &message),
                BuilderAction::ToReadout { message, .. } => self.readout.message(now, from, &message),
                BuilderAction::EndLumisection(_) => {}
                BuilderAction::StopRun { cause } => return Err(BenchError::wrong(cause)),
            }
        }
        self.emitted.extend(std::iter::from_fn(|| self.builders[index].next_event()));
        for place in 0..self.emitted.len() {
            self.verify(index, self.emitted[place])?;
        }
        self.builders[index].all_reached(now, self.emitted.drain(..), AcknowledgementLevel::Written);
        Ok(())
    }

    /// Checks that a builder unit's events ascend, and that each has the right fragment of each source. A single
    /// builder unit gets all events.
    fn verify(&mut self, builder: usize, slot: u32) -> Result<(), BenchError> {
        self.built += 1;
        let event = self.builders[builder].event(slot);
        let number = event.key.number();
        let right = |(source, fragment): (u32, &Fragment)| {
            fragment.meta.raw_id == number
                && fragment.meta.source == SourceId(source)
                && fragment.payload.len() == self.shape.fragment_bytes
        };
        let is_next = number > self.last[builder] && (self.builders.len() > 1 || number == self.built);
        if event.complete && is_next && (0..).zip(event.fragments()).all(right) {
            self.last[builder] = number;
            self.sum += number;
            return Ok(());
        }
        Err(BenchError::wrong(format!("event {}", event.key)))
    }
}

fn builder_config(shape: Shape, index: u16) -> BuilderConfig {
    let source = |id| BuilderSource::new(id, 0);
    BuilderConfig {
        slots: shape.in_flight,
        // Events in work are limited only by their number.
        credit_bytes: 1 << 32,
        event_timeout: PATIENCE,
        level: AcknowledgementLevel::Built,
        synchrony: shape.watched.then(|| synchrony::Config::new(shape.ids().map(synchrony::SourceConfig::new))),
        ..BuilderConfig::new(index, 1, shape.ids().map(source).collect())
    }
}
