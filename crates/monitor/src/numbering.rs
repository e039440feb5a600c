//! What is known of the event numbers of a source, and the sentences about it: live, and in the account of a run.

use ropewalk_terms::{Cause, Counter, EventKey, FragmentAccount, SourceId, grouped};

/// What its readout unit found out about the numbers of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceNumbering {
    /// The event at which it last began to count anew so that its fragments fit no event; none if it never did.
    pub restarted_at: Option<EventKey>,
    /// The last restart after which its place in the run was found again.
    pub recovered: Option<Recovery>,
    /// How it began; none if its first number was the number of the run's first event.
    pub begun: Option<Begun>,
    /// The numbers before and after the last missing ones.
    pub gap: Option<(u64, u64)>,
    /// The last number that the following ones disproved; none if there was none.
    pub wrong: Option<WrongNumber>,
}

/// A fragment whose number does not fit between its neighbours', as after a bit error in a counter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WrongNumber {
    /// The event that was expected next.
    pub event: EventKey,
    /// The number before.
    pub from: u64,
    /// The number that came.
    pub to: u64,
    /// Their number in the run, as far as they are known individually.
    pub count: u64,
}

/// A restart of a source's numbers whose fragments found their events again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The event that was expected next.
    pub event: EventKey,
    /// The number before.
    pub from: u64,
    /// The number that came.
    pub to: u64,
    /// How many recoveries there were in the run.
    pub count: u64,
}

/// The first number of a source that did not start with the run's first.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    /// The number of the run's first event.
    pub first: u64,
    /// The number that came first.
    pub came: u64,
    /// Events before that number, which are counted as missing; none while the fragments of the source are in no event.
    pub skipped: Option<u64>,
}

/// What to do about a first number that does not fit the run. Whether `first` is given is not known here.
pub const RESET: &str = "reset the boards before each run (docs/alarms.md, wrong_first_number)";

/// Fewer events than these are a loss at the start, as of datagrams, and no other first number.
const SOME: u64 = 16;

impl SourceNumbering {
    /// What happened when it found its place in the run again.
    pub fn recovery(&self, name: &str) -> Option<(u64, String)> {
        let Recovery { event, from, to, count } = self.recovered?;
        let sentence = format!(
            "{name} restarted counting at event {event} ({from} -> {to}); its place was found again by time or bunch crossing"
        );
        Some((count, sentence))
    }

    /// What it sent with wrong numbers, of which some fragments were dropped as corrupt for their checksums as well:
    /// `sent a wrong number: 2032 after 1999, at event 2001`.
    pub fn wrong_numbers(&self, corrupt: u64) -> Option<String> {
        let WrongNumber { event, from, to, count } = self.wrong?;
        let numbers = match count {
            1 => "a wrong number".to_owned(),
            count => format!("{} wrong numbers, the last", grouped(count)),
        };
        let checksum = match corrupt {
            0 => "",
            _ if count == 1 => "; its checksum was wrong, too",
            _ => "; checksums were wrong, too",
        };
        let colon = if count == 1 { ":" } else { "" };
        Some(format!("sent {numbers}{colon} {to} after {from}, at event {event}{checksum}"))
    }
}

/// A source, the state of its numbers, and the outcomes of its fragments.
#[derive(Copy, Clone, Debug)]
pub struct Numbered<'a> {
    /// The source.
    pub source: SourceId,
    /// Its numbers.
    pub numbering: &'a SourceNumbering,
    /// Its fragments.
    pub account: &'a FragmentAccount,
    /// Its numbers increase one by one, like those of events.
    pub is_regular: bool,
}

impl<'a> Numbered<'a> {
    /// Of a source with these counts.
    pub fn new(
        source: SourceId,
        (numbering, account): (&'a SourceNumbering, &'a FragmentAccount),
        count: impl Fn(Counter) -> u64,
    ) -> Self {
        let odd = count(Counter::NumbersRepeated) + count(Counter::NumbersFell) + count(Counter::NumbersJumped);
        Self { source, numbering, account, is_regular: odd * 10 <= account.received }
    }

    const fn is_in_events(&self) -> bool {
        let FragmentAccount { in_complete_events, in_incomplete_events, in_dropped_events, .. } = self.account;
        *in_complete_events + *in_incomplete_events + *in_dropped_events > 0
    }

    /// How it began, while none of its fragments is in an event because of their numbers.
    fn is_outside(&self) -> Option<Begun> {
        let is_outside = self.is_regular && self.account.stale > 0 && !self.is_in_events();
        self.numbering.begun.filter(|begun| is_outside && begun.skipped.is_none())
    }

    /// The start of a source that counts from 0 when the run counts from 1, or the other way round. Its events may be
    /// those of another trigger, and only this difference shows it.
    fn is_one_apart(&self) -> Option<Begun> {
        let is_in_run = self.is_regular && self.is_in_events();
        self.numbering.begun.filter(|begun| {
            let is_apart = match (begun.first, begun.came, begun.skipped) {
                (1, 0, None) => self.account.stale == 1,
                (0, 1, Some(skipped)) => skipped == 1,
                _ => false,
            };
            is_in_run && is_apart
        })
    }

    fn skipped(&self) -> u64 {
        self.numbering.begun.and_then(|begun| begun.skipped).unwrap_or(0)
    }

    /// Its first number was that of the run's first event.
    fn began_with_run(&self) -> bool {
        let is_in_run = self.is_in_events() || self.account.received > 0 && self.account.stale == 0;
        self.numbering.begun.is_none() && is_in_run
    }
}

/// Events in front of the first number of every source: they are missing for all sources, and no event of the run.
pub fn never_began(all: &[Numbered<'_>]) -> u64 {
    let sending = all.iter().filter(|one| one.account.received > 0);
    sending.map(Numbered::skipped).min().filter(|&least| least >= SOME).unwrap_or(0)
}

/// Sources whose first numbers do not fit the run, each with the number of fragments or events concerned and a
/// sentence.
pub fn wrong_beginnings(all: &[Numbered<'_>], name_of: impl Fn(SourceId) -> String) -> Vec<(SourceId, u64, String)> {
    let have_all_skipped = never_began(all) > 0;
    let sentence = |one: &Numbered<'_>| {
        let name = name_of(one.source);
        if let Some(Begun { first, came, .. }) = one.is_outside() {
            // Numbers of another source say nothing here: its `first` may differ.
            let began = |other: &&Numbered<'_>| other.source != one.source && other.began_with_run();
            let sentence = match all.iter().find(began) {
                Some(other) => {
                    let other = name_of(other.source);
                    format!(
                        "{name} sends numbers from {came} instead of {first}, {other} began with the run: reset {name}, or \
                         all boards together"
                    )
                }
                None => format!("{name} sends number {came}, but the first event of the run is {first}: {RESET}"),
            };
            return Some((one.source, one.account.stale, sentence));
        }
        if let Some(Begun { first, came, .. }) = one.is_one_apart() {
            let other = name_of(all.iter().find(|other| other.began_with_run())?.source);
            let sentence = format!(
                "{name} began with number {came}, {other} with {first}: if both are the same trigger, set \"first = {came}\" for \
                 {name} and \"first = {first}\" for {other}"
            );
            return Some((one.source, 1, sentence));
        }
        let Begun { first, came, skipped } = one.numbering.begun.filter(|_| have_all_skipped)?;
        let skipped = skipped?;
        // Readout units give up numbers too far in the past without an event for each number.
        let counted = one.account.missing.get(Cause::Skipped).min(skipped);
        let missing =
            if counted < skipped { format!("{} of them are", grouped(counted)) } else { "they are".to_owned() };
        let sentence = format!(
            "{name} began with number {came}, but the first event of the run is {first}: {} events are before it, and {missing} \
             counted as missing; {RESET}",
            grouped(skipped)
        );
        Some((one.source, skipped, sentence))
    };
    all.iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Received fragments, stale ones, those in events; and how it began.
    type Made = (u64, u64, u64, Option<(u64, u64, Option<u64>)>);

    fn sentences(sources: &[Made]) -> Vec<String> {
        let of = |&(received, stale, in_complete_events, begun): &Made| {
            let account = FragmentAccount { received, stale, in_complete_events, ..FragmentAccount::default() };
            let begun = begun.map(|(first, came, skipped)| Begun { first, came, skipped });
            (SourceNumbering { begun, ..SourceNumbering::default() }, account)
        };
        let made: Vec<_> = sources.iter().map(of).collect();
        let all = made.iter().zip(1..);
        let all: Vec<_> =
            all.map(|((numbering, account), id)| Numbered::new(SourceId(id), (numbering, account), |_| 0)).collect();
        let name = |source: SourceId| ["", "calo", "straw"][source.0 as usize].to_owned();
        wrong_beginnings(&all, name).into_iter().map(|(.., sentence)| sentence).collect()
    }

    #[test]
    fn a_board_that_counts_already_is_named_with_both_numbers_and_the_cure() {
        let expected = format!("calo sends number 4521, but the first event of the run is 826: {RESET}");
        assert_eq!(sentences(&[(88, 80, 0, Some((826, 4521, None)))]), [expected]);
        let joined = (88, 8, 80, Some((826, 4521, None)));
        assert_eq!(sentences(&[joined]), [""; 0], "left-overs of an earlier run came in front of the first event");
    }

    #[test]
    fn numbers_that_are_times_or_noise_say_nothing_of_the_first_event() {
        let begun = Some(Begun { first: 1, came: 1_000_000, skipped: None });
        let numbering = SourceNumbering { begun, ..SourceNumbering::default() };
        let account = FragmentAccount { received: 400, stale: 400, ..FragmentAccount::default() };
        for odd in [Counter::NumbersJumped, Counter::NumbersFell, Counter::NumbersRepeated] {
            let counts = |counter| if counter == odd { 399 } else { 0 };
            let times = Numbered::new(SourceId(1), (&numbering, &account), counts);
            assert_eq!(wrong_beginnings(&[times], |_| String::new()), []);
        }
    }

    #[test]
    fn boards_that_begin_apart_are_named_together() {
        let expected = "calo sends numbers from 5000 instead of 0, straw began with the run: reset calo, or all boards \
                        together";
        assert_eq!(sentences(&[(300, 300, 0, Some((0, 5000, None))), (300, 0, 300, None)]), [expected]);
        let apart = [(300, 300, 0, Some((0, 5000, None))), (300, 300, 0, Some((0, 7000, None)))];
        assert!(sentences(&apart).iter().all(|sentence| sentence.ends_with(RESET)), "neither began with the run");
        let silent = [(300, 300, 0, Some((0, 5000, None))), (0, 0, 0, None)];
        assert!(sentences(&silent)[0].ends_with(RESET));
    }

    #[test]
    fn a_board_that_set_the_beginning_is_named_before_any_event_is_built() {
        let waiting = [(300, 300, 0, Some((1, 500, None))), (300, 0, 0, None)];
        let expected = "calo sends numbers from 500 instead of 1, straw began with the run: reset calo, or all boards \
                        together";
        assert_eq!(sentences(&waiting), [expected]);
    }

    #[test]
    fn boards_that_count_from_0_and_from_1_are_named_though_their_events_are_complete() {
        let from_0 = (2000, 1, 1999, Some((1, 0, None)));
        let from_1 = (2000, 0, 1999, None);
        let expected = "calo began with number 0, straw with 1: if both are the same trigger, set \"first = 0\" for calo and \
                        \"first = 1\" for straw";
        assert_eq!(sentences(&[from_0, from_1]), [expected]);
        assert_eq!(sentences(&[from_0]), [""; 0], "there is no other board");
        let behind = (2000, 0, 1999, Some((0, 1, Some(1))));
        let expected = "straw began with number 1, calo with 0: if both are the same trigger, set \"first = 1\" for straw and \
                        \"first = 0\" for calo";
        assert_eq!(sentences(&[(2000, 0, 1999, None), behind]), [expected]);
        assert_eq!(sentences(&[(2000, 0, 1999, None), (2000, 0, 1998, Some((0, 2, Some(2))))]), [""; 0]);
    }

    #[test]
    fn events_that_every_board_has_passed_are_said_to_be_counted_as_missing() {
        let begun = |skipped| (3000, 0, 2999, Some((0, skipped, Some(skipped))));
        let both = sentences(&[begun(5001), begun(5000)]);
        assert_eq!(both.len(), 2);
        let words =
            "straw began with number 5000, but the first event of the run is 0: 5,000 events are before it, and";
        assert_eq!(both[1], format!("{words} 0 of them are counted as missing; {RESET}"));
        for (counted, missing) in [(5000, "they are"), (9000, "they are"), (4096, "4,096 of them are")] {
            let mut account =
                FragmentAccount { received: 3000, in_complete_events: 2999, ..FragmentAccount::default() };
            account.missing.add(Cause::Skipped, counted);
            let begun = Some(Begun { first: 0, came: 5000, skipped: Some(5000) });
            let numbering = SourceNumbering { begun, ..SourceNumbering::default() };
            let all = [Numbered::new(SourceId(2), (&numbering, &account), |_| 0)];
            let found = wrong_beginnings(&all, |_| "straw".to_owned());
            assert_eq!(found[0].2, format!("{words} {missing} counted as missing; {RESET}"));
        }
        assert_eq!(sentences(&[begun(5000), (3000, 0, 3000, None)]), [""; 0], "straw was there: events are incomplete");
        assert_eq!(sentences(&[begun(3), begun(5000)]), [""; 0], "some datagrams were lost at the start");
    }
}
