//! Runs with one trouble each: what limits them has to be named, with whose it is, within seconds; nothing else, and nothing before.

use super::super::broken::{Broken, Checker};
use super::super::draw::Draw;
use super::made_up::{node, running, source};
use super::trouble::{Trouble, share};
use ropewalk_monitor::bottleneck::{Finder, Limit};
use ropewalk_monitor::{NodeSample, Sample, SourceSample};
use ropewalk_terms::{Cause, Counter, NodeId};
use std::time::Duration;

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
pub(super) struct LimitCourse {
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
    pub(super) fn new(seed: u64) -> Self {
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

    pub(super) fn run(mut self, runs: u64) -> Result<(), Broken> {
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

    /// Time goes on, and somebody looks.
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
