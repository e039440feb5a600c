//! A router of chunks, told anything by anybody.

use super::MOST_ACTIONS;
use super::choices::Choices;
use ropewalk_flow::stream::{Router, RouterConfig, StreamChunk, SubscriberId};
use ropewalk_memory::Payload;
use ropewalk_terms::Instant;
use ropewalk_wire::felix::{ELink, Status};
use ropewalk_wire::stream::{Balance, ChunkHead, Policy, Range, Share, Subscribe, heads_bytes};
use std::ops::ControlFlow;
use std::time::Duration;

const ELINKS: u64 = 6;
const QUEUE_BYTES: u64 = 1000;

/// What the referee knows about a subscriber.
struct Known {
    id: SubscriberId,
    wanted: Vec<Subscribe>,
    /// The number of the chunk that it got last, by e-link: each comes once, and in order.
    last: [u64; ELINKS as usize],
    heir: bool,
}

/// Feeds a router: chunks, subscribers that come, change their minds, read or do not, and go.
///
/// # Panics
/// Where the machine does; where an account does not balance, a queue grows beyond its bound, a chunk goes to somebody who
/// never asked for it, comes twice or out of order, or the machine keeps asking for messages that it does not have.
pub fn router(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut router = Router::new(RouterConfig {
        subscribers: 4,
        queue_bytes: QUEUE_BYTES,
        queue_chunks: 16,
        coalesce_bytes: 300,
        coalesce_time: Duration::from_millis(2),
    });
    let mut all: Vec<Known> = Vec::new();
    let mut number = 0;
    while !choices.is_over() {
        let now = choices.now();
        match choices.below(12) {
            0 => {
                let joined = router.join().map(|id| Known { id, wanted: Vec::new(), last: [0; 6], heir: false });
                assert_eq!(joined.is_err(), all.len() == 4, "there are four places");
                all.extend(joined);
            }
            1 => subscribe(&mut choices, &mut router, &mut all),
            2 if !all.is_empty() => {
                let gone = all.remove(choices.below(all.len() as u64) as usize);
                let account = router.leave(gone.id, now);
                assert!(account.is_balanced() && account.queued == 0, "{account:?}");
                assert_eq!(router.account(gone.id), None, "it has left");
                // Others may have taken over what it left, behind what they have: later than they should, and more.
                let is_shared = account.moved > 0;
                all.iter_mut().for_each(|known| known.heir |= is_shared);
            }
            3 => send(&mut choices, &mut router, &mut all, now),
            4 if !all.is_empty() => {
                let known = &all[choices.below(all.len() as u64) as usize];
                router.relieve(known.id, |payload| choices.chance().then(|| payload.clone()));
            }
            5 if choices.below(16) == 0 => router.finish(),
            _ => {
                number += 1;
                offer(&mut choices, &mut router, number, now);
            }
        }
        check(&router, &all);
    }
}

fn subscribe(choices: &mut Choices<'_>, router: &mut Router, all: &mut [Known]) {
    if all.is_empty() {
        return;
    }
    let who = choices.below(all.len() as u64) as usize;
    let elink = |choices: &mut Choices<'_>| ELink::new(choices.below(ELINKS) as u16);
    let ranges = (0..choices.below(3)).map(|_| {
        let (one, other) = (elink(choices), elink(choices));
        Range { first: one.min(other), last: one.max(other) }
    });
    let ranges = ranges.collect();
    let policy = if choices.chance() { Policy::BackPressure } else { Policy::Drop };
    let share = match choices.below(4) {
        0 | 1 => Share::Alone,
        2 => Share::Group(choices.below(2) as u16, Balance::RoundRobin),
        _ => Share::Group(choices.below(2) as u16, Balance::ByEvent),
    };
    let wanted = Subscribe { ranges, policy, share, one_in: choices.below(3) as u32 };
    if router.subscribe(all[who].id, &wanted).is_ok() {
        all[who].wanted.push(wanted);
    }
}

fn offer(choices: &mut Choices<'_>, router: &mut Router, number: u64, now: Instant) {
    let (elink, length) = (ELink::new(choices.below(ELINKS) as u16), choices.below(400) as u32);
    let head = ChunkHead { elink, status: Status::GOOD, sequence: 0, length };
    // The event is the chunk's number: that is how it is known again.
    let chunk = StreamChunk { head, event: number, payload: Payload::default(), is_copy: false };
    let before = router.total();
    match router.offer(chunk, now) {
        Err(refused) => {
            assert_eq!(refused.event, number, "the same chunk comes back");
            assert_eq!(router.total(), before, "nobody has it");
        }
        Ok(()) => {
            let after = router.total();
            let taken = after.offered + after.passed_over - before.offered - before.passed_over;
            assert_eq!(taken > 0, router.is_wanted(elink), "somebody has what somebody wants");
        }
    }
}

/// Sends what is due, into transports that have room or not.
fn send(choices: &mut Choices<'_>, router: &mut Router, all: &mut [Known], now: Instant) {
    for turn in 0.. {
        assert!(turn < MOST_ACTIONS, "the router does not come to rest");
        let Some(id) = router.poll(now) else { break };
        let known = all.iter_mut().find(|known| known.id == id).expect("who is due is there");
        let room = choices.below(600) as usize;
        let (mut chunks, accepted) = (Vec::new(), if choices.below(4) == 0 { choices.below(9) } else { u64::MAX });
        router.take_each(id, room, |chunk| {
            if chunks.len() as u64 == accepted {
                return ControlFlow::Break(());
            }
            chunks.push(chunk.to_stream_chunk());
            ControlFlow::Continue(())
        });
        let bytes: usize = chunks.iter().map(|chunk| chunk.head.length as usize).sum();
        assert!(chunks.is_empty() || heads_bytes(chunks.len()) + bytes <= room, "it does not fit");
        for chunk in chunks {
            let elink = chunk.head.elink;
            let is_in = |range: &Range| range.first <= elink && elink <= range.last;
            let mut asked = known.wanted.iter().flat_map(|wanted| &wanted.ranges);
            assert!(asked.any(is_in), "{elink} was never asked for");
            let last = std::mem::replace(&mut known.last[elink.index()], chunk.event);
            assert!(last < chunk.event || known.heir, "chunk {} comes after {last}", chunk.event);
        }
        if choices.chance() {
            router.unblock(id);
        }
    }
}

fn check(router: &Router, all: &[Known]) {
    let total = router.total();
    assert!(total.is_balanced(), "{total:?}");
    let queued: u64 = all.iter().filter_map(|known| router.account(known.id)).map(|account| account.queued).sum();
    assert_eq!(total.queued, queued, "nothing waits for somebody who is not there");
    for account in all.iter().filter_map(|known| router.account(known.id)) {
        assert!(account.is_balanced(), "{account:?}");
        // A member may have taken over what four queues held.
        assert!(account.queued <= 4 * 16 + 4, "{account:?}");
    }
    let (received, unwanted) = router.received();
    assert!(unwanted <= received && router.listeners() <= 4);
    let _ = router.next_deadline();
}
