//! What one seed means: the system, its settings, and what goes wrong.

use super::cards::{CardSetting, SubscriberSetting};
use super::content::{Contents, Format, Sizes};
use super::event_files::EventFileLimits;
use super::fault::{self, Fault, FaultKind, Place, Scheduled};
use super::filters::Filters;
use super::masking::Masking;
use ropewalk_flow::builder::IncompletePolicy;
use ropewalk_flow::manager::{AssignPolicy, LeaseConfig, LumisectionLength};
use ropewalk_flow::source::Random;
use ropewalk_io::disk::DiskFaults;
use ropewalk_io::simulated::Faults;
use ropewalk_terms::{AcknowledgementLevel, EventKey, SourceId};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// How the run ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// With the sources' last event, which is known from the start.
    Last,
    /// By a command at this time, which drains what is there.
    Stop(Duration),
    /// By a command at this time, which drops what is not done.
    Force(Duration),
}

impl End {
    /// What is not done is dropped.
    pub(super) const fn is_forced(self) -> bool {
        matches!(self, Self::Force(_))
    }
}

/// How the run comes by its event manager.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Managers {
    /// There is one, from beginning to end.
    Alone,
    /// There is one, until an operator starts another one that takes the run over.
    Succession,
    /// There are two, and the one with the lease speaks.
    Standby(LeaseConfig),
}

/// Patience of everybody.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TimeOuts {
    /// Of a readout unit with its sources.
    pub source: Duration,
    /// Of a builder unit with readout units.
    pub builder: Duration,
    /// Of the event manager with readout units.
    pub manager: Duration,
    /// Of draining, and again of finishing.
    pub drain: Duration,
}

/// Room of everybody.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rooms {
    /// Bytes of a block that front ends' data are received in.
    pub block_bytes: usize,
    /// Blocks of each source.
    pub blocks_each: usize,
    /// Blocks that messages and events are received in, in each node.
    pub peer_blocks: usize,
    /// Blocks of 64 KiB in which each node encodes its messages.
    pub staging_blocks: usize,
    /// Event numbers that no source is read past the oldest incomplete event.
    pub window: u32,
    /// Events that a readout unit holds.
    pub capacity: u32,
    /// Events in work in a builder unit.
    pub slots: u32,
    /// Bytes of events in work in a builder unit.
    pub credit_bytes: u64,
    /// Events that the event manager's table holds.
    pub table: u32,
    /// Bytes of a node's send queue.
    pub send_queue: usize,
    /// Events in a run file.
    pub segment_events: u64,
}

/// Which stream of the seed decides on event managers, and which one on what the coordination service does.
const MANAGERS_STREAM: u64 = 202;
pub(super) const COORDINATION_STREAM: u64 = 1000;
/// Which stream decides on a trigger source and its resynchronisation.
const TRIGGER_STREAM: u64 = 303;
/// Which stream decides on a source that comes while no block is free.
const LATECOMER_STREAM: u64 = 606;
const LUMISECTION_STREAM: u64 = 707;
/// Which stream decides on filter units.
const FILTER_STREAM: u64 = 808;
/// When units that were refused at first call again.
pub(super) const SECOND_CALL: Duration = Duration::from_micros(200_500);
/// How far any clock may be wrong, in millionths: see the faults.
const WORST_DRIFT: u32 = 60_000;

/// One run: everything follows from this.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Where it was drawn from, and what decides everything that happens by chance in the run.
    pub seed: u64,
    /// Readout units.
    pub readouts: u16,
    /// Builder units.
    pub builders: u16,
    /// How each source frames its fragments; sources are dealt to the readout units in equal parts.
    pub sources: Vec<Format>,
    /// Events that every source makes.
    pub events: u64,
    /// Time between two events.
    pub pace: Duration,
    /// How large fragments are.
    pub sizes: Sizes,
    /// How the run comes by its event manager.
    pub managers: Managers,
    /// Which readout units have link cards in the place of front ends.
    pub cards: Vec<CardSetting>,
    /// The trigger source, where there is one: it opens events, and may declare resynchronisations.
    pub trigger: Option<u16>,
    /// How long a lumisection is.
    pub lumisection: LumisectionLength,
    /// How the run ends.
    pub end: End,
    /// When an event is acknowledged.
    pub level: AcknowledgementLevel,
    /// What becomes of incomplete events.
    pub incomplete: IncompletePolicy,
    /// Who gets the next events.
    pub assign: AssignPolicy,
    /// The most consecutive events that one builder unit gets at once.
    pub batch: usize,
    /// Bunch crossings of an event's fragments are compared.
    pub bunch_crossings: bool,
    /// Patience of everybody.
    pub time_outs: TimeOuts,
    /// Room of everybody.
    pub rooms: Rooms,
    /// How often nodes report.
    pub report_interval: Duration,
    /// The network, where nothing else is scheduled.
    pub network: Faults,
    /// The disks, where nothing else is scheduled.
    pub disk: DiskFaults,
    /// How wrong each node's monotonic clock is, in millionths: the event manager's, the readout units', the builder
    /// units', and that of a second event manager.
    pub drifts: Vec<i32>,
    /// What goes wrong, in the order of time.
    pub faults: Vec<Scheduled>,
    /// Mask commands, in the order of time.
    pub masks: Vec<Masking>,
    /// Filter units, where events are decided.
    pub filters: Option<Filters>,
    /// Limits of event files, where builder units write these in place of run files.
    pub event_files: Option<EventFileLimits>,
}

impl Scenario {
    /// A system of moderate size in which nothing goes wrong: two readout units with two sources each, two builder
    /// units, 150 events.
    pub fn quiet(seed: u64) -> Self {
        Self {
            seed,
            readouts: 2,
            builders: 2,
            sources: vec![Format::Ferol; 4],
            events: 150,
            pace: Duration::from_micros(20),
            sizes: Sizes { usual: 31, largest: 767 },
            managers: Managers::Alone,
            cards: Vec::new(),
            trigger: None,
            lumisection: LumisectionLength::Run,
            end: End::Last,
            level: AcknowledgementLevel::Written,
            incomplete: IncompletePolicy::Emit,
            assign: AssignPolicy::RoundRobin,
            batch: 8,
            bunch_crossings: true,
            time_outs: TimeOuts {
                source: Duration::from_secs(1),
                builder: Duration::from_secs(3),
                manager: Duration::from_secs(5),
                drain: Duration::from_secs(30),
            },
            rooms: Rooms {
                block_bytes: 4 << 10,
                blocks_each: 24,
                peer_blocks: 128,
                staging_blocks: 8,
                window: 64,
                capacity: 128,
                slots: 32,
                credit_bytes: 512 << 10,
                table: 256,
                send_queue: 4 << 20,
                segment_events: 40,
            },
            report_interval: Duration::from_millis(10),
            network: Faults::default(),
            disk: DiskFaults::default(),
            drifts: vec![0; 5],
            faults: Vec::new(),
            masks: Vec::new(),
            filters: None,
            event_files: None,
        }
    }

    /// The scenario of this seed.
    pub fn draw(seed: u64) -> Self {
        use AcknowledgementLevel::{Built, Synced, Written};
        use IncompletePolicy::{Drop, Emit, Stop};
        let mut draw = Random::new(seed, 1);
        let (readouts, builders) = (draw.between(1, 3) as u16, draw.between(1, 3) as u16);
        let count = u64::from(readouts) * draw.between(1, 3);
        let generic = draw.of(&[0, 0, 1, 2]);
        let format = |draw: &mut Random| if draw.below(2) < generic { Format::Generic } else { Format::Ferol };
        let events = draw.between(20, 120);
        let span = draw.time(Duration::from_millis(5), Duration::from_secs(2));
        let sizes = |usual, largest| Sizes { usual, largest };
        let mut scenario = Self {
            readouts,
            builders,
            sources: (0..count).map(|_| format(&mut draw)).collect(),
            events,
            pace: span / events as u32,
            sizes: draw.of(&[sizes(31, 767), sizes(3, 40), sizes(100, 1500)]),
            end: Self::draw_end(&mut draw, span),
            level: draw.of(&[Written, Written, Synced, Built]),
            incomplete: draw.of(&[Emit, Emit, Emit, Drop, Stop]),
            assign: draw.of(&[AssignPolicy::RoundRobin, AssignPolicy::LeastLoaded, AssignPolicy::FreeBytes]),
            batch: draw.of(&[1, 2, 8, 32]),
            bunch_crossings: draw.one_in(2),
            time_outs: Self::draw_time_outs(&mut draw),
            rooms: Self::draw_rooms(&mut draw),
            report_interval: draw.of(&[Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1)]),
            network: Self::draw_network(&mut draw),
            disk: Self::draw_disk(&mut draw),
            drifts: (0..1 + readouts + builders).map(|_| draw.of(&[0, 0, 50, -50, 20_000, -20_000])).collect(),
            ..Self::quiet(seed)
        };
        scenario.faults = fault::draw(&scenario, span);
        // A receiver with little room, so that send queues fill.
        if Random::new(seed, 4).one_in(4) {
            scenario.network.window = 2 << 10;
        }
        scenario.draw_managers(span);
        scenario.draw_trigger();
        scenario.draw_latecomer();
        scenario.draw_cards();
        scenario.draw_lumisections(span);
        scenario.draw_masks(span);
        scenario.draw_filters();
        scenario.draw_event_files();
        scenario
    }

    /// Whether filter units decide on events, and what goes wrong with them. A stream of its own, as below.
    fn draw_filters(&mut self) {
        let mut draw = Random::new(self.seed, FILTER_STREAM);
        if draw.one_in(4) {
            let filters = Filters::draw(self.seed, &mut draw);
            let span = self.pace * self.events as u32;
            self.faults.extend(fault::draw_of_filters(self, filters.units, span, &mut draw));
            if filters.is_remote {
                self.faults.extend(fault::draw_of_filter_lines(self, filters.units, span));
            }
            self.faults.sort_by_key(|scheduled| scheduled.at);
            self.filters = Some(filters);
        }
    }

    /// How long lumisections are. A stream of its own, as below.
    fn draw_lumisections(&mut self, span: Duration) {
        let mut draw = Random::new(self.seed, LUMISECTION_STREAM);
        self.lumisection = match draw.below(3) {
            0 => LumisectionLength::Run,
            1 => LumisectionLength::Events(draw.between(1, 40)),
            _ => LumisectionLength::Time(draw.time(span / 20, span)),
        };
    }

    /// Whether there is a trigger source, and when it declares a resynchronisation. A stream of its own, as below. Not with
    /// several event managers: one that takes over may start a readout unit behind the declaration.
    fn draw_trigger(&mut self) {
        let mut draw = Random::new(self.seed, TRIGGER_STREAM);
        if self.managers != Managers::Alone || !draw.one_in(8) {
            return;
        }
        let source = draw.below(self.sources.len() as u64) as u16;
        let event = match draw.below(4) {
            0 => draw.between(3, 5),
            1 => self.events - draw.between(0, 3),
            _ => draw.between(3, self.events),
        };
        self.trigger = Some(source);
        self.faults.retain(|scheduled| !Self::hides_the_count(&scheduled.fault));
        let fault = Fault::at(FaultKind::Resync, Place::Source(source)).with_number(event.cast_signed());
        self.faults.push(Scheduled { at: self.pace * event as u32, lasts: Duration::ZERO, fault });
        self.faults.sort_by_key(|scheduled| scheduled.at);
    }

    /// Whether a source comes back while its readout unit has no free block, for longer than events wait for a source that
    /// is absent: chance hardly ever makes that. A stream of its own.
    fn draw_latecomer(&mut self) {
        let mut draw = Random::new(self.seed, LATECOMER_STREAM);
        if self.trigger.is_none() && draw.one_in(16) {
            let span = self.pace * self.events as u32;
            self.faults.extend(fault::draw_latecomer(self, span, &mut draw));
            self.faults.sort_by_key(|scheduled| scheduled.at);
        }
    }

    /// Whether a fault may leave no process that knows which count a source's numbers belong to: where the source leaves out the
    /// fragment with which it begins, or loses it with its connection, or its readout unit begins behind that. No counter
    /// could tell.
    fn hides_the_count(fault: &Fault) -> bool {
        use FaultKind::*;
        match fault.kind {
            Crash | PowerCut | Reconnect => {
                matches!(fault.place(), Place::Readout(_))
            }
            ResetCounter | Skip | HugeLength | Jump | Disconnect => true,
            _ => fault.places.len() == 2 && fault.places.iter().any(|place| place.is_outside()),
        }
    }

    /// Where the run has more than one event manager: their drifts, and what happens to them beside everything else. A
    /// stream of its own: other seeds mean what they meant before there was any.
    fn draw_managers(&mut self, span: Duration) {
        let mut draw = Random::new(self.seed, MANAGERS_STREAM);
        self.managers = match draw.below(8) {
            0 | 1 => Managers::Standby(Self::draw_lease(&mut draw)),
            2 => Managers::Succession,
            _ => return,
        };
        self.drifts.push(draw.of(&[0, 0, 50, -50, 20_000, -20_000]));
        let mut span = span;
        if let Managers::Standby(_) = self.managers {
            self.pace += draw.time(Duration::from_micros(100), Duration::from_millis(20));
            span = self.pace * self.events as u32;
            self.begin_later(&mut draw);
        }
        let begin = if self.managers == Managers::Succession { Duration::ZERO } else { SECOND_CALL };
        self.faults.extend(fault::draw_of_managers(self, begin, span, &mut draw));
        self.faults.sort_by_key(|scheduled| scheduled.at);
    }

    /// No event manager has the lease yet when the units call first: the run begins when they call again.
    fn begin_later(&mut self, draw: &mut Random) {
        for scheduled in &mut self.faults {
            scheduled.at += if draw.one_in(4) { Duration::ZERO } else { SECOND_CALL };
        }
        if let End::Stop(time) | End::Force(time) = &mut self.end {
            *time += SECOND_CALL;
        }
    }

    fn draw_lease(draw: &mut Random) -> LeaseConfig {
        let term = draw.time(Duration::from_millis(100), Duration::from_secs(1));
        LeaseConfig { term, margin: term / 20, drift_ppm: WORST_DRIFT, interval: term / draw.between(4, 12) as u32 }
    }

    fn draw_end(draw: &mut Random, span: Duration) -> End {
        let time = span.mul_f64(draw.between(1, 15) as f64 / 10.0);
        match draw.below(12) {
            0..9 => End::Last,
            9..11 => End::Stop(time),
            _ => End::Force(time),
        }
    }

    fn draw_time_outs(draw: &mut Random) -> TimeOuts {
        let source = draw.of(&[Duration::from_millis(100), Duration::from_millis(400), Duration::from_secs(1)]);
        TimeOuts { source, builder: source * 3, manager: source * 5, drain: Duration::from_secs(20) }
    }

    fn draw_rooms(draw: &mut Random) -> Rooms {
        let usual = Self::quiet(0).rooms;
        let tiny = draw.one_in(3);
        let window = draw.of(&[16, 64]);
        Rooms {
            block_bytes: draw.of(&[4 << 10, 16 << 10]),
            blocks_each: if tiny { 8 } else { usual.blocks_each },
            peer_blocks: if tiny { 24 } else { usual.peer_blocks },
            staging_blocks: if tiny { 2 } else { usual.staging_blocks },
            window,
            capacity: window * 2,
            slots: draw.of(&[2, 8, 32]),
            credit_bytes: draw.of(&[16 << 10, 512 << 10]),
            table: draw.of(&[64, 256]),
            send_queue: draw.of(&[4 << 10, 64 << 10, 4 << 20]),
            segment_events: draw.of(&[10, 40, 1000]),
        }
    }

    fn draw_network(draw: &mut Random) -> Faults {
        let usual = draw.of(&[Faults::default(), Faults::default(), Faults::bumpy()]);
        Faults {
            give_up: draw.of(&[Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3)]),
            connect_timeout: draw.of(&[Duration::from_millis(250), Duration::from_secs(1)]),
            refuse: if draw.one_in(8) { 0.3 } else { 0.0 },
            ..usual
        }
    }

    fn draw_disk(draw: &mut Random) -> DiskFaults {
        let most_latency = draw.of(&[Duration::from_micros(50), Duration::from_millis(2), Duration::from_millis(20)]);
        DiskFaults { most_latency, ..DiskFaults::default() }
    }

    /// The id of a source.
    pub fn source_id(&self, index: usize) -> SourceId {
        SourceId(100 + index as u32)
    }

    /// The fault that resynchronises the run.
    pub(super) fn resynchronisation(&self) -> Option<&Fault> {
        self.faults.iter().map(|scheduled| &scheduled.fault).find(|fault| fault.kind == FaultKind::Resync)
    }

    /// The first event of the second count, where the run is resynchronised.
    pub fn resync(&self) -> Option<u64> {
        self.resynchronisation().map(Fault::count)
    }

    /// The key of an event.
    pub fn key_of(&self, event: u64) -> EventKey {
        match self.resync().filter(|&resync| event >= resync) {
            Some(resync) => EventKey::new(1, event + 1 - resync),
            None => EventKey::new(0, event),
        }
    }

    /// The event with a key, or the last one before it; nothing where there is no such count.
    pub fn event_of(&self, key: EventKey) -> Option<u64> {
        match (key.resync(), self.resync()) {
            (0, None) => Some(key.number()),
            (0, Some(resync)) => Some(key.number().min(resync - 1)),
            (1, Some(resync)) => Some(key.number().saturating_add(resync - 1)),
            _ => None,
        }
    }

    /// How many sources each readout unit has.
    pub fn sources_each(&self) -> usize {
        self.sources.len() / usize::from(self.readouts.max(1))
    }

    /// The readout unit of a source.
    pub fn readout_of(&self, source: usize) -> u16 {
        (source / self.sources_each().max(1)) as u16
    }

    /// The sources that are e-links of a card.
    pub fn sources_of(&self, card: &CardSetting) -> Range<usize> {
        let (first, each) = (usize::from(card.readout) * self.sources_each(), self.sources_each());
        first + card.streams.min(each)..first + each
    }

    /// The card that a source is an e-link of, and which one of its e-links.
    pub fn card_of(&self, source: usize) -> Option<(usize, usize)> {
        let sources = self.cards.iter().map(|card| self.sources_of(card)).enumerate();
        let mut own = sources.filter(|(_, sources)| sources.contains(&source));
        own.next().map(|(card, sources)| (card, source - sources.start))
    }

    /// All subscribers of cards' chunks, each with its card.
    pub fn subscribers(&self) -> impl Iterator<Item = (&CardSetting, &SubscriberSetting)> {
        self.cards.iter().flat_map(|card| card.subscribers.iter().map(move |one| (card, one)))
    }

    /// Whether a member is an e-link of a card.
    pub(super) fn is_on_card(&self, place: Place) -> bool {
        matches!(place, Place::Source(source) if self.card_of(source.into()).is_some())
    }

    /// The filter nodes of all builder units, if filter units are on other machines.
    pub(super) fn filter_nodes(&self) -> impl Iterator<Item = Place> + use<> {
        let units = self.filters.as_ref().filter(|filters| filters.is_remote).map_or(0, |filters| filters.units);
        (0..self.builders).flat_map(move |builder| (0..units).map(move |unit| Place::Filter(builder, unit)))
    }

    /// What the sources make.
    pub const fn contents(&self) -> Contents {
        Contents { seed: self.seed, sizes: self.sizes }
    }

    /// Where there are event managers.
    pub fn manager_places(&self) -> impl Iterator<Item = Place> + use<> {
        let count = if self.managers == Managers::Alone { 1 } else { 2 };
        (0..count).map(Place::Manager)
    }

    /// The drift of a node's clock.
    pub fn drift(&self, place: Place) -> i32 {
        let index = match place {
            Place::Manager(0) => 0,
            Place::Manager(_) => 1 + usize::from(self.readouts) + usize::from(self.builders),
            Place::Readout(index) => 1 + usize::from(index),
            Place::Builder(index) => 1 + usize::from(self.readouts) + usize::from(index),
            _ => return 0,
        };
        self.drifts.get(index).copied().unwrap_or(0)
    }
}

impl fmt::Display for Scenario {
    /// What is needed to understand a schedule of faults, which follows line by line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, readouts, builders, sources, events, pace, end, level, incomplete, time_outs, .. } = self;
        let (sources, Self { managers, cards, filters, .. }) = (sources.len(), self);
        writeln!(
            out,
            "seed {seed}: {readouts} readout and {builders} builder units, {sources} sources, {events} events every {pace:?}, \
             end {end:?}, {level:?}, {incomplete:?}, {time_outs:?}, event managers {managers:?}, cards {cards:?}"
        )?;
        filters.iter().try_for_each(|filters| writeln!(out, "  {filters:?}"))?;
        self.event_files.iter().try_for_each(|limits| writeln!(out, "  {limits:?}"))?;
        for Masking { at, source, is_masked } in &self.masks {
            let what = if *is_masked { "is masked" } else { "takes part again" };
            writeln!(out, "  at {at:?}: source {} {what}", self.source_id((*source).into()))?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(out, "  {fault}"))
    }
}
