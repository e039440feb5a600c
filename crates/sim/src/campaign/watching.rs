//! Alarms by random rules, and the search for what limits a run, each on invented runs.
//!
//! ```text
//!   AlarmCourse: blocks, limits, clerks ──► monitor's Alarms ──► states, changes      a referee knows what the documentation says of them
//!   LimitCourse: one trouble of a run ───► monitor's Finder ──► a sentence            must name the trouble and its place, in time
//! ```

use super::draw::Draw;
use super::outcome::{Broken, Checker};
use ropewalk_monitor::alarms::{Alarms, Condition, Quantity, Rule, Severity, State};
use ropewalk_monitor::bottleneck::{Finder, Limit};
use ropewalk_monitor::{NodeSample, Sample, SourceSample};
use ropewalk_terms::{ByCause, Cause, Counter, FragmentAccount, Instant, NodeId, RunNumber, SourceId, Utc};
use std::cmp::Reverse;
use std::time::Duration;

/// What is watched for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// Steps of alarms: looks, and what people do.
    pub steps: u64,
    /// Runs whose limits are looked for.
    pub runs: u64,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x0a1a);
        Self { seed, steps: draw.between(20, 200), runs: draw.between(1, 3) }
    }
}

/// Watches to the end.
///
/// # Errors
/// What does not hold.
pub fn watch(scenario: &Scenario) -> Result<(), Broken> {
    AlarmCourse::new(scenario.seed).run(scenario.steps)?;
    LimitCourse::new(scenario.seed).run(scenario.runs)
}

const ALARM_LIMITS: [Limit; 3] = [Limit::DiskFull, Limit::SourceSilent, Limit::NoData];

fn rule(draw: &mut Draw, number: u64) -> Rule {
    let blocks = draw.of(&[Condition::Above(10.0), Condition::Below(5.0)]);
    let limited = (Quantity::LimitedBy(draw.of(&ALARM_LIMITS)), Condition::Above(0.0));
    let (quantity, condition) = draw.of(&[(Quantity::Value(Counter::PoolHeld), blocks), limited]);
    Rule {
        name: format!("alarm{number}"),
        severity: draw.of(&[Severity::Notice, Severity::Warning, Severity::Critical]),
        quantity,
        condition,
        hold: Duration::from_secs(draw.of(&[0, 0, 1, 2, 5])),
        is_latched: draw.one_in(2),
    }
}

/// What the referee knows of an alarm. Times are those of the simulated clock.
#[derive(Clone, Default)]
struct Known {
    /// Since when the condition holds; none while it does not.
    holds_since: Option<Duration>,
    /// It was raised, and is not done with.
    is_open: bool,
    /// It has been acknowledged since.
    is_acknowledged: bool,
    shelved: Option<Shelved>,
}

/// How long an alarm is shelved.
#[derive(Copy, Clone)]
enum Shelved {
    Until(Duration),
    /// From the first look on: the time is not known before it.
    For(Duration),
}

impl Known {
    fn look(&mut self, rule: &Rule, holds: bool, now: Duration) {
        if !holds {
            self.holds_since = None;
            let stays = rule.is_latched && !self.is_acknowledged;
            self.is_open &= stays;
        } else {
            let since = *self.holds_since.get_or_insert(now);
            self.is_open |= now - since >= rule.hold;
        }
        self.is_acknowledged &= self.is_open;
    }

    /// Whether there was something to be acknowledged.
    fn acknowledge(&mut self) -> bool {
        let was_open = self.is_open;
        // What is over is done with; what goes on is known of until it is over.
        self.is_open &= self.holds_since.is_some();
        self.is_acknowledged = self.is_open;
        was_open
    }

    fn tell_time(&mut self, now: Duration) {
        let until = match self.shelved {
            Some(Shelved::For(time)) => Some(now + time),
            Some(Shelved::Until(until)) => Some(until),
            None => None,
        };
        self.shelved = until.filter(|&until| until > now).map(Shelved::Until);
    }

    const fn state(&self) -> State {
        match (self.is_open, self.holds_since.is_some()) {
            (false, false) => State::Normal,
            (false, true) => State::Pending,
            (true, false) => State::Latched,
            (true, true) if self.is_acknowledged => State::Acknowledged,
            (true, true) => State::Active,
        }
    }
}

/// A run: the machine, what the referee knows, and which changes must have been told.
struct AlarmCourse {
    draw: Draw,
    rules: Vec<Rule>,
    alarms: Alarms,
    known: Vec<Known>,
    told: Vec<(String, State, State)>,
    heard: Vec<(String, State, State)>,
    next: u64,
    now: Duration,
    has_looked: bool,
    blocks: u64,
    limit: Option<Limit>,
}

impl AlarmCourse {
    fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x0a1b);
        let rules: Vec<_> = (0..draw.between(1, 5)).map(|number| rule(&mut draw, number)).collect();
        Self {
            alarms: Alarms::new(rules.clone()).expect("names are numbered"),
            known: vec![Known::default(); rules.len()],
            told: Vec::new(),
            heard: Vec::new(),
            next: 0,
            now: Duration::from_secs(draw.below(100_000)),
            has_looked: false,
            blocks: 7,
            limit: None,
            rules,
            draw,
        }
    }

    fn run(mut self, steps: u64) -> Result<(), Broken> {
        for _ in 0..steps {
            let place = self.draw.below(self.rules.len() as u64) as usize;
            match self.draw.below(10) {
                0 => self.acknowledge(place)?,
                1 => self.shelve(place)?,
                _ => self.observe(),
            }
            self.check()?;
            if self.draw.one_in(4) {
                self.hear()?;
            }
        }
        self.hear()?;
        Broken::unless(self.heard == self.told, Checker::Content, || {
            format!("told were {:?}, and it should be {:?}", self.heard, self.told)
        })
    }

    /// Does `what` to one alarm that the referee knows, and notes how it changed.
    fn update(&mut self, place: usize, what: impl FnOnce(&mut Known, &Rule)) {
        let before = self.known[place].state();
        what(&mut self.known[place], &self.rules[place]);
        let after = self.known[place].state();
        if before != after {
            self.told.push((self.rules[place].name.clone(), before, after));
        }
    }

    fn observe(&mut self) {
        self.now += Duration::from_secs(self.draw.below(3));
        self.has_looked = true;
        if self.draw.one_in(3) {
            self.blocks = self.draw.below(20);
            // Now and then the limit of the run is not known.
            self.limit = self.draw.of(&[
                None,
                Some(ALARM_LIMITS[0]),
                Some(ALARM_LIMITS[1]),
                Some(ALARM_LIMITS[2]),
                Some(Limit::Sources),
            ]);
        }
        let nodes = vec![node(NodeId::readout(0), &[(Counter::PoolHeld, self.blocks)])];
        self.alarms.observe(running(3, self.now, nodes, Vec::new()), self.limit);
        let (now, blocks, limit) = (self.now, self.blocks as f64, self.limit);
        for place in 0..self.rules.len() {
            self.update(place, |known, rule| {
                known.tell_time(now);
                let holds = match (rule.quantity, rule.condition) {
                    (Quantity::LimitedBy(of), _) => limit.map(|limit| limit == of),
                    (_, Condition::Above(most)) => Some(blocks > most),
                    (_, Condition::Below(least)) => Some(blocks < least),
                };
                if let Some(holds) = holds {
                    known.look(rule, holds, now);
                }
            });
        }
    }

    fn acknowledge(&mut self, place: usize) -> Result<(), Broken> {
        let mut was_open = false;
        self.update(place, |known, _| was_open = known.acknowledge());
        let is_done = self.alarms.acknowledge(&self.rules[place].name, "Ada").is_ok();
        let words = || format!("alarm {place} is acknowledged: {is_done}, and it was raised: {was_open}");
        Broken::unless(is_done == was_open, Checker::Content, words)
    }

    fn shelve(&mut self, place: usize) -> Result<(), Broken> {
        let time = Duration::from_secs(self.draw.below(6));
        let shelved = if self.has_looked { Shelved::Until(self.now + time) } else { Shelved::For(time) };
        self.known[place].shelved = (!time.is_zero()).then_some(shelved);
        let is_there = self.alarms.shelve(&self.rules[place].name, time, "Ada").is_ok();
        Broken::unless(is_there, Checker::Content, || format!("there is no alarm {place}"))
    }

    fn check(&self) -> Result<(), Broken> {
        let states: Vec<_> = self.alarms.all().iter().map(|alarm| alarm.state).collect();
        let should: Vec<_> = self.known.iter().map(Known::state).collect();
        let words = || format!("alarms are {states:?}, and should be {should:?}, by {:?}", self.rules);
        Broken::unless(states == should, Checker::Content, words)?;
        let mut open: Vec<_> = self.known.iter().zip(&self.rules).collect();
        open.retain(|(known, _)| known.is_open && known.shelved.is_none());
        open.sort_by_key(|(_, rule)| Reverse(rule.severity));
        let open: Vec<_> = open.into_iter().map(|(_, rule)| &rule.name).collect();
        let shown: Vec<_> = self.alarms.shown().into_iter().map(|alarm| &alarm.rule.name).collect();
        Broken::unless(shown == open, Checker::Content, || format!("{shown:?} are shown, and should be {open:?}"))
    }

    /// A client reads on where it stopped, as the sender of alarms does.
    fn hear(&mut self) -> Result<(), Broken> {
        for change in self.alarms.changes_from(self.next) {
            let words = || format!("change {} comes, and the next one is {}", change.number, self.next);
            Broken::unless(change.number == self.next, Checker::Keys, words)?;
            self.next += 1;
            self.heard.push((change.name.clone(), change.from, change.to));
        }
        Ok(())
    }
}

/// From one look to the next, about.
const LOOK: Duration = Duration::from_secs(1);
/// A finding is shown at the latest so long after its numbers are there: it has to hold for three seconds, silence has to last for two, and
/// looks are a second apart.
const NAMED: Duration = Duration::from_secs(9);
/// Blocks of each pool.
const BLOCKS: u64 = 1_000;
/// Filter units of each builder unit.
const UNITS: u64 = 2;

/// Made-up runs, and who looks at them.
struct LimitCourse {
    draw: Draw,
    finder: Finder,
    now: Duration,
    run: u32,
    readouts: Vec<NodeSample>,
    builders: Vec<NodeSample>,
    sources: Vec<SourceSample>,
    /// Until when each source that is held back is not read at all.
    unread_until: Vec<Duration>,
}

impl LimitCourse {
    fn new(seed: u64) -> Self {
        let draw = Draw::new(seed, 0x0a1c);
        Self {
            draw,
            finder: Finder::default(),
            now: Duration::from_secs(100),
            run: 0,
            readouts: Vec::new(),
            builders: Vec::new(),
            sources: Vec::new(),
            unread_until: Vec::new(),
        }
    }

    fn run(mut self, runs: u64) -> Result<(), Broken> {
        for _ in 0..runs {
            self.begin()?;
            let parts = [self.readouts.len(), self.builders.len(), self.sources.len()];
            let trouble = Trouble::draw(&mut self.draw, parts);
            self.healthy(true)?;
            self.troubled(trouble)?;
            self.mend(trouble);
            self.settle()?;
        }
        Ok(())
    }

    /// Another run, of another system. Of the last one nothing is said any more.
    fn begin(&mut self) -> Result<(), Broken> {
        self.run += 1;
        let [readouts, builders] = [(); 2].map(|()| self.draw.between(1, 3) as u16);
        let sources = self.draw.between(2, 6).max(readouts.into());
        let pool = [(Counter::PoolBlocks, BLOCKS), (Counter::PoolHeld, 0)];
        self.readouts = (0..readouts).map(|place| node(NodeId::readout(place), &pool)).collect();
        let units = [(Counter::FilterUnits, UNITS)];
        self.builders = (0..builders).map(|place| node(NodeId::builder(place), &units)).collect();
        let readout = |place: u64| NodeId::readout((place % u64::from(readouts)) as u16);
        self.sources = (0..sources).map(|place| source(place as u32 + 1, readout(place))).collect();
        self.unread_until = vec![Duration::ZERO; sources as usize];
        self.look(None);
        let shown = self.finder.finding();
        Broken::unless(shown.is_none(), Checker::Content, || {
            format!("of a run that has just begun it is said: {shown:?}")
        })
    }

    /// Nothing limits it. Now and then something looks bad for a moment.
    fn healthy(&mut self, may_blink: bool) -> Result<(), Broken> {
        for look in 0..self.draw.between(4, 10) {
            // For a look or two at most: what lasts is a limit.
            let blink = may_blink && look % 4 > 1 && self.draw.one_in(3);
            let blink = blink.then_some(Trouble { limit: Limit::PoolFull, place: 0 });
            self.look(blink);
            self.expect(Limit::Sources, "")?;
        }
        Ok(())
    }

    fn troubled(&mut self, trouble: Trouble) -> Result<(), Broken> {
        let since = self.now;
        while self.now < since + 3 * NAMED {
            self.look(Some(trouble));
            if self.now >= since + NAMED {
                self.expect(trouble.limit, &trouble.subject())?;
            }
        }
        Ok(())
    }

    /// What was wrong is right again.
    fn mend(&mut self, trouble: Trouble) {
        if let Some(builder) = self.builders.get_mut(trouble.place) {
            builder.is_connected = true;
            let keep = |counter| (counter, builder.numbers.get(counter));
            if matches!(trouble.limit, Limit::DiskFailing | Limit::DiskFull) {
                builder.numbers =
                    [Counter::FilterUnits, Counter::EventsBuilt, Counter::BytesWritten, Counter::ThreadBusyTime]
                        .map(keep)
                        .into_iter()
                        .collect();
            }
        }
    }

    /// After a while nothing is said of it any more.
    fn settle(&mut self) -> Result<(), Broken> {
        let since = self.now;
        while self.now < since + NAMED {
            self.look(None);
        }
        self.healthy(false)
    }

    fn expect(&self, limit: Limit, subject: &str) -> Result<(), Broken> {
        let shown = self.finder.finding();
        let is_so = shown.is_some_and(|shown| shown.limit == limit && shown.subject == subject);
        Broken::unless(is_so, Checker::Content, || {
            format!("{limit:?} of `{subject}` limits run {}, and it is said: {shown:?}", self.run)
        })
    }

    /// Time goes on, and the finder gets a sample.
    fn look(&mut self, trouble: Option<Trouble>) {
        let time = LOOK.mul_f64(share(&mut self.draw, 800, 1_200));
        self.now += time;
        (0..self.sources.len()).for_each(|place| self.move_source(place, time, trouble));
        (0..self.readouts.len()).for_each(|place| self.move_readout(place, time, trouble));
        (0..self.builders.len()).for_each(|place| self.move_builder(place, time, trouble));
        let nodes = self.readouts.iter().chain(&self.builders).cloned().collect();
        let sample: Sample = running(self.run, self.now, nodes, self.sources.clone());
        self.finder.observe(sample);
    }

    fn move_source(&mut self, place: usize, time: Duration, trouble: Option<Trouble>) {
        let draw = &mut self.draw;
        let is = |limit| trouble.is_some_and(|trouble| trouble.is_of(limit, place));
        let is_held_back = trouble.is_some_and(|trouble| trouble.holds_all_back() || trouble.waits_for(place));
        let (mut rate, mut held_back) = (1000.0 * share(draw, 900, 1_100), share(draw, 0, 120));
        if is_held_back {
            held_back = share(draw, 300, 1_000);
            // The others wait for the slowest, and are read in gusts.
            if self.now >= self.unread_until[place] + LOOK && draw.one_in(3) {
                self.unread_until[place] = self.now + LOOK.mul_f64(share(draw, 0, 5_000));
            }
            rate = if self.now < self.unread_until[place] { 0.0 } else { 0.3 * rate };
            held_back = if rate == 0.0 { 1.0 } else { held_back };
        }
        if is(Limit::SourceSilent) {
            rate = 0.0;
        }
        if is(Limit::SourceSlow) {
            rate *= 0.1;
        }
        let source = &mut self.sources[place];
        let count = (rate * time.as_secs_f64()).ceil() as u64;
        source.account.received += count;
        source.numbers.add(Counter::FragmentsReceived, count);
        source.numbers.add(Counter::PayloadBytesReceived, 100 * count);
        source.numbers.add(Counter::BackPressureTime, time.mul_f64(held_back).as_nanos() as u64);
        if is(Limit::DatagramsLost) {
            source.lost_datagrams.add(Cause::SocketQueueFull, self.draw.between(1, 5_000));
        }
    }

    fn move_readout(&mut self, place: usize, time: Duration, trouble: Option<Trouble>) {
        let draw = &mut self.draw;
        let is = |limit| trouble.is_some_and(|trouble| trouble.is_of(limit, place));
        let busy = if is(Limit::Readout) { share(draw, 975, 1_000) } else { share(draw, 0, 930) };
        let waits = if is(Limit::Link) { share(draw, 600, 1_000) } else { share(draw, 0, 400) };
        let held = if is(Limit::PoolFull) { draw.between(950, BLOCKS) } else { draw.between(0, 850) };
        let readout = &mut self.readouts[place];
        let keep = [Counter::PoolBlocks, Counter::ThreadBusyTime, Counter::LinkWaitTime]
            .map(|counter| (counter, readout.numbers.get(counter)));
        readout.numbers = keep.into_iter().chain([(Counter::PoolHeld, held)]).collect();
        readout.numbers.add(Counter::ThreadBusyTime, time.mul_f64(busy).as_nanos() as u64);
        readout.numbers.add(Counter::LinkWaitTime, time.mul_f64(waits).as_nanos() as u64);
    }

    fn move_builder(&mut self, place: usize, time: Duration, trouble: Option<Trouble>) {
        let draw = &mut self.draw;
        let is = |limit| trouble.is_some_and(|trouble| trouble.is_of(limit, place));
        let mut part = |limit, busy: [u64; 2], otherwise: u64| {
            // A neighbour may be nearly as busy.
            let [least, most] = if is(limit) { busy } else { [0, otherwise] };
            share(draw, least, most)
        };
        let all_full = trouble.is_some_and(Trouble::fills_builders);
        let behind = |limit| trouble.is_some_and(|trouble| trouble.limit == limit);
        let disk = part(
            Limit::Disk,
            [930, 1_000],
            if behind(Limit::Disk) {
                900
            } else if all_full {
                780
            } else {
                950
            },
        );
        let filter = part(
            Limit::Filter,
            [930, 1_000],
            if behind(Limit::Filter) {
                900
            } else if all_full {
                780
            } else {
                950
            },
        );
        let busy = part(Limit::Builder, [980, 1_000], if behind(Limit::Builder) { 965 } else { 930 });
        let small = part(Limit::BuilderSmall, [900, 1_000], 0);
        let full = if small > 0.0 {
            small
        } else if all_full {
            share(draw, 350, 850)
        } else {
            share(draw, 0, 250)
        };
        let builder = &mut self.builders[place];
        let shares = [
            (Counter::DiskBusyTime, disk),
            (Counter::FilterBusyTime, UNITS as f64 * filter),
            (Counter::ThreadBusyTime, busy),
            (Counter::BuilderFullTime, full),
        ];
        for (counter, share) in shares {
            builder.numbers.add(counter, time.mul_f64(share).as_nanos() as u64);
        }
        builder.numbers.add(Counter::EventsBuilt, 100);
        builder.numbers.add(Counter::BytesWritten, 100_000);
        let now = |numbers: &ropewalk_monitor::Numbers, counter| numbers.get(counter) == 0;
        if is(Limit::DiskFailing) && now(&builder.numbers, Counter::DiskFailing) {
            builder.numbers.add(Counter::DiskFailing, 5);
        }
        if is(Limit::DiskFull) && now(&builder.numbers, Counter::DiskFull) {
            builder.numbers.add(Counter::DiskFull, 1);
        }
        builder.is_connected = !is(Limit::NodeMissing);
    }
}

/// What limits a run: one thing, of one node or source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Trouble {
    limit: Limit,
    /// Which readout unit, builder unit or source.
    place: usize,
}

/// What is drawn.
const LIMITS: [Limit; 13] = [
    Limit::DiskFailing,
    Limit::DiskFull,
    Limit::NodeMissing,
    Limit::DatagramsLost,
    Limit::SourceSilent,
    Limit::Disk,
    Limit::Filter,
    Limit::Link,
    Limit::Builder,
    Limit::BuilderSmall,
    Limit::PoolFull,
    Limit::Readout,
    Limit::SourceSlow,
];

impl Trouble {
    /// One of a system with so many readout units, builder units and sources.
    fn draw(draw: &mut Draw, [readouts, builders, sources]: [usize; 3]) -> Self {
        let limit = draw.of(&LIMITS);
        let places = match limit {
            Limit::Link | Limit::PoolFull | Limit::Readout => readouts,
            Limit::DatagramsLost | Limit::SourceSilent | Limit::SourceSlow => sources,
            _ => builders,
        };
        Self { limit, place: draw.below(places as u64) as usize }
    }

    /// Whose it is, as the finder calls it.
    fn subject(self) -> String {
        match self.limit {
            Limit::Link | Limit::PoolFull | Limit::Readout => format!("ru{}", self.place),
            Limit::DatagramsLost | Limit::SourceSilent | Limit::SourceSlow => format!("source {}", self.place + 1),
            _ => format!("bu{}", self.place),
        }
    }

    /// Builder units have no room: whatever they wait for is behind them.
    const fn fills_builders(self) -> bool {
        matches!(self.limit, Limit::Disk | Limit::Filter | Limit::Builder | Limit::BuilderSmall)
    }

    /// Every source is held back.
    const fn holds_all_back(self) -> bool {
        self.fills_builders() || matches!(self.limit, Limit::Link | Limit::PoolFull)
    }

    /// Sources are held back that wait for this one.
    const fn waits_for(self, source: usize) -> bool {
        matches!(self.limit, Limit::SourceSlow | Limit::SourceSilent) && self.place != source
    }

    const fn is_of(self, limit: Limit, place: usize) -> bool {
        self.place == place && self.limit as u8 == limit as u8
    }
}

/// A share of the time, in thousandths, between two.
fn share(draw: &mut Draw, least: u64, most: u64) -> f64 {
    draw.between(least, most) as f64 / 1000.0
}

/// A source of this readout unit that has sent nothing yet.
fn source(id: u32, readout: NodeId) -> SourceSample {
    SourceSample {
        source: SourceId(id),
        readout,
        account: FragmentAccount::default(),
        lost_datagrams: ByCause::default(),
        corrupt: Vec::new(),
        numbers: [(Counter::SourceConnections, 1)].into_iter().collect(),
        histograms: Default::default(),
    }
}

/// A connected node that has counted this.
fn node(node: NodeId, numbers: &[(Counter, u64)]) -> NodeSample {
    NodeSample {
        node,
        is_connected: true,
        incarnation: None,
        numbers: numbers.iter().copied().collect(),
        distributions: Default::default(),
    }
}

/// A sample of a run that takes data, at this time of the simulated clock.
fn running(run: u32, at: Duration, nodes: Vec<NodeSample>, sources: Vec<SourceSample>) -> Sample {
    let time = Instant::from_nanoseconds(at.as_nanos() as u64);
    Sample {
        time,
        utc: Utc(at.as_nanos() as i64),
        run: RunNumber(run),
        phase: "running",
        nodes,
        sources,
        ..Sample::default()
    }
}
