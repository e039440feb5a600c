//! What subscribers of a card's chunks must have got, by the card's own record and their journals alone.

use super::cards::{CardSetting, SubscriberSetting};
use super::machines::{Card, Got, Said, Visit};
use super::runner::{Broken, Checker, ensure};
use super::world::World;
use ropewalk_terms::Instant;
use ropewalk_wire::stream::{Balance, Policy, Share};
use std::collections::{BTreeMap, BTreeSet};

/// A chunk by its place in what a card said: e-link, and number there.
type Place = (usize, usize);
/// A member of a group: which subscriber it is, and what came in each of its visits.
type Member = (usize, Vec<BTreeSet<Place>>);

impl World {
    /// Every subscriber got what it asked for, in order and once, or was told what it lost.
    pub(super) fn judge_subscribers(&self) -> Result<(), Broken> {
        let mut index = 0;
        for (card, setting) in self.cards.iter().zip(&self.scenario.cards) {
            let Some(card) = card.machine() else { continue };
            let mut groups: BTreeMap<u16, Vec<Member>> = BTreeMap::new();
            for subscriber in &setting.subscribers {
                let journal = self.journals[index].borrow();
                let mut seen = Vec::new();
                for (number, visit) in journal.iter().enumerate() {
                    let places = judge_visit(card, subscriber, visit).map_err(|broken| {
                        let words = format!("subscriber{index} ({subscriber:?}), visit {number}: {}", broken.words);
                        Broken { words, ..broken }
                    })?;
                    seen.push(places);
                }
                if let Share::Group(group, _) = subscriber.share {
                    groups.entry(group).or_default().push((index, seen));
                }
                index += 1;
            }
            for members in groups.values() {
                self.judge_group(card, setting, members)?;
            }
        }
        Ok(())
    }

    /// No chunk went to two members of a group, and each that a member could have had went to one.
    fn judge_group(&self, card: &Card, setting: &CardSetting, members: &[Member]) -> Result<(), Broken> {
        let mut owner: BTreeMap<Place, usize> = BTreeMap::new();
        for (index, visits) in members {
            for &place in visits.iter().flatten() {
                // Chunks with the same content are exchangeable. If one of two did not come, assume the one that a reader may
                // miss (seed 42152), then the earlier one: the member may have come between the two (seed 200124).
                let free =
                    (0..card.said_by(place.0)).map(|number| (place.0, number)).filter(|at| !owner.contains_key(at));
                let twins = free.filter(|&twin| twin == place || card.said(twin).is_same_as(card.said(place)));
                let Some(own) = twins.max_by_key(|&twin| (!card.said(twin).is_doubtful, twin)) else {
                    let words = format!("{place:?} went to two members of a group, one of them {index}");
                    return Err(Broken::new(Checker::Content, words));
                };
                owner.insert(own, *index);
            }
        }
        self.judge_fail_over(card, setting, members, &owner)?;
        // A member that leaves may lose what is in flight to it. Without such a member nothing is lost.
        let first = self.first_of(setting);
        let settings = || members.iter().map(|&(index, _)| &setting.subscribers[index - first]);
        let is_strict = settings().all(|one| one.policy == Policy::BackPressure && one.one_in == 1)
            && members.iter().all(|&(index, _)| !self.has_left(index));
        let begin = owner.keys().map(|&place| card.said(place).end).min();
        let (Some(begin), Some(one)) = (begin.filter(|_| is_strict), settings().next()) else { return Ok(()) };
        let end = if card.is_closed() && card.handed_on == card.written() { card.handed_on } else { 0 };
        for place in card.places(card.life(), one.links()) {
            let said = card.said(place);
            let is_due = said.end > begin && said.end <= end && !said.is_doubtful;
            ensure!(Loss, !is_due || owner.contains_key(&place);
                "chunk {place:?} ({said:?}) went to no member of its group, of whom none left")?;
        }
        if matches!(one.share, Share::Group(_, Balance::ByEvent)) {
            judge_events(card, members, &owner)
        } else {
            Ok(())
        }
    }

    /// What waited for members that left went to one that stayed. Only what had been sent to them already may be missing.
    fn judge_fail_over(
        &self,
        card: &Card,
        setting: &CardSetting,
        members: &[Member],
        owner: &BTreeMap<Place, usize>,
    ) -> Result<(), Broken> {
        // The server says how many chunks it has sent, to all its subscribers together: they are of one group here.
        let are_one_group = members.len() == setting.subscribers.len()
            && setting.subscribers.iter().all(|one| one.policy == Policy::BackPressure && one.one_in == 1);
        let readout = self.readouts[usize::from(setting.readout)].machine();
        let served = readout.and_then(|readout| readout.served().next());
        let (Some((served, _)), Some(stayer), true) = (served, self.stayer(card, members), are_one_group) else {
            return Ok(());
        };
        let is_of_now = |place: &&Place| card.said(**place).ring == card.life();
        let of_stayer = owner.iter().filter(|&(place, member)| *member == stayer && is_of_now(&place));
        let Some(begin) = of_stayer.map(|(&place, _)| card.said(place).end).min() else { return Ok(()) };
        let end = if card.is_closed() && card.handed_on == card.written() { card.handed_on } else { 0 };
        let is_due = |said: &Said| said.end > begin && said.end <= end && !said.is_doubtful;
        let all = setting.subscribers[0].links();
        let missing =
            card.places(card.life(), all).filter(|place| is_due(card.said(*place)) && !owner.contains_key(place));
        let missing: Vec<Place> = missing.collect();
        let came = members.iter().flat_map(|(_, visits)| visits.iter().flatten()).filter(is_of_now).count() as u64;
        let (sent, lost) = (served.subscribers.sent, missing.len() as u64);
        let first = missing.first().map(|&place| (place, card.said(place)));
        ensure!(Loss, lost + came <= sent; "a member stayed, and no member got chunks that had not been sent to the \
            members that left: {lost} are missing, {came} came of {sent} that were sent, first {first:?}")
    }

    /// The member that was there before all others in the life of a readout unit, and until its end.
    fn stayer(&self, card: &Card, members: &[Member]) -> Option<usize> {
        let of_now = |&(index, _): &&Member| {
            let journal = self.journals[*index].borrow();
            let visits = journal.iter().filter(|visit| visit.ring == card.life());
            visits.map(|visit| (visit.begun, visit.end.is_some())).collect::<Vec<_>>()
        };
        let first =
            members.iter().min_by_key(|member| of_now(member).first().map_or(Instant::FAR_FUTURE, |one| one.0))?;
        let stays = matches!(of_now(&first)[..], [(_, true)]);
        (stays && !first.1.is_empty()).then_some(first.0)
    }

    /// Whether a visit of a subscriber ended otherwise than with the server's word, or goes on.
    pub(super) fn has_left(&self, subscriber: usize) -> bool {
        self.journals[subscriber].borrow().iter().any(|visit| visit.end.is_none())
    }

    /// The index of a card's first subscriber among all.
    pub(super) fn first_of(&self, setting: &CardSetting) -> usize {
        let before = self.scenario.cards.iter().take_while(|card| card.readout != setting.readout);
        before.map(|card| card.subscribers.len()).sum()
    }
}

/// Where a group shares by event, all chunks of an event went to the same member once all had come.
fn judge_events(card: &Card, members: &[Member], owner: &BTreeMap<Place, usize>) -> Result<(), Broken> {
    let first = |(_, visits): &Member| visits.iter().flatten().map(|&at| card.said(at).end).min();
    let Some(all_there) = members.iter().map(first).collect::<Option<Vec<u64>>>() else { return Ok(()) };
    let all_there = all_there.into_iter().max().unwrap_or(0);
    let mut of_event = BTreeMap::new();
    for (&place, &member) in owner {
        let said = card.said(place);
        let other = if said.end > all_there { *of_event.entry(said.number).or_insert(member) } else { member };
        ensure!(Content, other == member;
            "event {} went to the members {other} and {member} of a group that shares by event", said.number)?;
    }
    Ok(())
}

/// One visit: what came was said, in order, once, and with the same flags; what is missing was told. Returns which chunks
/// came.
fn judge_visit(card: &Card, setting: &SubscriberSetting, visit: &Visit) -> Result<BTreeSet<Place>, Broken> {
    let mut seen = BTreeSet::new();
    let mut next: BTreeMap<usize, usize> = BTreeMap::new();
    let is_shared = setting.share != Share::Alone;
    for got in &visit.chunks {
        let link = card.link_of(got.head.elink).filter(|link| setting.links().contains(link));
        let link =
            link.ok_or_else(|| Broken::new(Checker::Content, format!("{:?} was not subscribed to", got.head)))?;
        let from = if is_shared { 0 } else { next.get(&link).copied().unwrap_or(0) };
        // A member of a group may take over what another one left: behind what it has.
        let is_it = |number: &usize| {
            let said = card.said((link, *number));
            said.ring == visit.ring && said.is_same(got) && !seen.contains(&(link, *number))
        };
        let number = (from..card.said_by(link)).find(is_it).ok_or_else(|| {
            let words = format!("{:?} came out of order, twice, or with another content", got.head);
            Broken::new(Checker::Content, words)
        })?;
        next.insert(link, number + 1);
        seen.insert((link, number));
    }
    if let Some(end) = visit.end {
        let came = visit.chunks.len() as u64;
        ensure!(Ledger, end.sent == came && end.offered == end.sent + end.dropped;
            "{came} chunks came, and the server says {end:?}")?;
    }
    // Who came or left between two chunks in the same words may have had either: it is well if one way to read what came has no gap
    // (seed 62803).
    let readings = [seen.clone(), as_late(card, &seen, false), as_late(card, &seen, true)];
    let gaps = readings.iter().map(|places| judge_gaps(card, setting, visit, places));
    gaps.reduce(|good, other| good.or_else(|broken| other.map_err(|_| broken))).expect("there are three")?;
    Ok(seen)
}

/// The same chunks, each as late among those in the same words as what came behind it on its e-link allows; the last one of an
/// e-link only where that is said.
fn as_late(card: &Card, seen: &BTreeSet<Place>, moves_last: bool) -> BTreeSet<Place> {
    let mut late: BTreeSet<Place> = BTreeSet::new();
    for &(link, number) in seen.iter().rev() {
        let behind = late.first().filter(|place| place.0 == link).map(|place| place.1);
        let end = behind.unwrap_or(if moves_last { card.said_by(link) } else { number + 1 });
        let is_twin = |&twin: &usize| card.said((link, twin)).is_same_as(card.said((link, number)));
        late.insert((link, (number..end).rev().find(is_twin).expect("every chunk is in its own words")));
    }
    late
}

/// What did not come between the first and the last chunk that came was dropped, and told, or was meant for another one.
fn judge_gaps(card: &Card, setting: &SubscriberSetting, visit: &Visit, seen: &BTreeSet<Place>) -> Result<(), Broken> {
    let ends = || seen.iter().map(|&place| card.said(place).end);
    let (Some(first), Some(last)) = (ends().min(), ends().max()) else { return Ok(()) };
    if setting.share != Share::Alone || setting.one_in > 1 {
        return Ok(());
    }
    // At the server's own end everything is there; before it, what lies between.
    let is_whole = visit.end.is_some() && card.is_closed() && card.life() == visit.ring;
    let last = if is_whole { card.handed_on } else { last - 1 };
    let is_between = |said: &Said| said.end > first && said.end <= last && !said.is_doubtful;
    let missing: Vec<Place> = card
        .places(visit.ring, setting.links())
        .filter(|&place| is_between(card.said(place)) && !seen.contains(&place))
        .collect();
    let told = match (setting.policy, visit.end) {
        (Policy::BackPressure, _) => 0,
        (Policy::Drop, Some(end)) => end.dropped,
        // The number that it has not heard of yet is not known.
        (Policy::Drop, None) => return Ok(()),
    };
    let first = missing.first().map(|&place| (place, card.said(place)));
    ensure!(Loss, missing.len() as u64 <= told;
        "{told} chunks were said to be dropped, and more are missing, the first of them {first:?}")
}

impl Said {
    /// Whether another one has the same words in the same ring.
    fn is_same_as(&self, other: &Self) -> bool {
        self.ring == other.ring && self.status == other.status && self.bytes == other.bytes
    }

    /// Whether a subscriber's chunk is this one.
    fn is_same(&self, got: &Got) -> bool {
        self.status == got.head.status && self.bytes == got.bytes && got.head.length as usize == got.bytes.len()
    }
}
