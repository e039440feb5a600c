//! The router: selects the subscribers of a chunk, and distributes decoded batches to their queues.

use super::queue::{Amount, MessageLimits, Origin, Pages, QueuedChunk};
use super::subscriber::{Lot, Subscriber};
use super::{RouterConfig, StreamChunk, SubscriberAccount};
use crate::readout::felix::{Chunk, ChunkBatch, EventRule, EventRules, Piece, Run};
use ropewalk_memory::Payload;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::Instant;
use ropewalk_wire::felix::{ELINKS, ELink, Status, SubChunk};
use ropewalk_wire::stream::{Balance, ChunkHead, Policy, Share, Subscribe};
use std::ops::ControlFlow;

/// The most subscribers of a router: a set of them is a 64-bit word.
pub const MOST_SUBSCRIBERS: usize = 64;

/// Identifies a subscriber from joining to leaving.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubscriberId {
    index: u8,
    /// How often the place was assigned before.
    life: u32,
}

/// The reason why a subscription is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The router has the most subscribers that it accepts.
    #[error("there are as many subscribers as this router takes")]
    Full,
    /// The members of a group must share in the same way.
    #[error("another member of the group shares it in another way")]
    Share,
    /// The subscriber has left.
    #[error("the subscriber has left")]
    Left,
}

#[derive(Debug, Default)]
struct Place {
    subscriber: Option<Subscriber>,
    life: u32,
}

/// Passes chunks to subscribers' queues. It allocates only when a subscriber joins, and when a member of a group takes
/// over the chunks of another one.
#[derive(Debug)]
pub struct Router {
    pub(super) config: RouterConfig,
    places: Vec<Place>,
    /// For each e-link, the set of its subscribers.
    pub(super) wanted: Box<[u64]>,
    /// The set of subscribers that share with others.
    sharing: u64,
    /// The set of subscribers with any subscription: a search in `wanted` would read 16 KiB of memory per turn.
    asking: u64,
    /// The pages of the ring that the queues need.
    pub(super) pages: Pages,
    /// The member that got a group's last chunk, at the index of the group's first member.
    last: [u8; MOST_SUBSCRIBERS],
    /// Where [`Self::poll`] continues, so that no subscriber starves.
    next: usize,
    finishing: bool,
    /// Whether at least one group shares by event, so that the event of each chunk must be known.
    shares_by_event: bool,
    /// Number of received chunks, including unwanted ones.
    pub(super) received: u64,
    pub(super) unwanted: u64,
    /// The sum of the accounts of subscribers that left.
    past: SubscriberAccount,
}

impl Router {
    /// Creates a router without subscribers.
    pub fn new(config: RouterConfig) -> Self {
        let config = RouterConfig { subscribers: config.subscribers.min(MOST_SUBSCRIBERS), ..config };
        Self {
            config,
            places: std::iter::repeat_with(Place::default).take(config.subscribers).collect(),
            wanted: vec![0; ELINKS].into(),
            sharing: 0,
            asking: 0,
            pages: Pages::new(),
            last: [0; MOST_SUBSCRIBERS],
            next: 0,
            finishing: false,
            shares_by_event: false,
            received: 0,
            unwanted: 0,
            past: SubscriberAccount::default(),
        }
    }

    /// Adds a subscriber, without a subscription.
    ///
    /// # Errors
    /// [`SubscribeError::Full`].
    pub fn join(&mut self) -> Result<SubscriberId, SubscribeError> {
        let index = self.places.iter().position(|place| place.subscriber.is_none()).ok_or(SubscribeError::Full)?;
        let place = &mut self.places[index];
        place.subscriber = Some(Subscriber::new(&self.config));
        Ok(SubscriberId { index: index as u8, life: place.life })
    }

    /// Replaces the subscription of a subscriber. Returns its number of e-links.
    ///
    /// # Errors
    /// [`SubscribeError::Share`]; nothing changes then.
    pub fn subscribe(&mut self, id: SubscriberId, wanted: &Subscribe) -> Result<u16, SubscribeError> {
        if let Share::Group(group, _) = wanted.share {
            let others = self.subscribers().filter(|&(index, _)| index != usize::from(id.index));
            let mut shares = others.map(|(_, subscriber)| subscriber.share);
            let is_other = |share| matches!(share, Share::Group(own, _) if own == group) && share != wanted.share;
            if shares.any(is_other) {
                return Err(SubscribeError::Share);
            }
        }
        self.subscriber(id).ok_or(SubscribeError::Left)?;
        self.forget_wishes(id);
        self.at(usize::from(id.index)).ask(wanted);
        let is_by_event = |(_, one): (_, &Subscriber)| matches!(one.share, Share::Group(_, Balance::ByEvent));
        let shares_by_event = self.subscribers().any(is_by_event);
        self.shares_by_event = shares_by_event;
        let bit = 1 << id.index;
        if wanted.share != Share::Alone {
            self.sharing |= bit;
        }
        let mut elinks = 0;
        for range in &wanted.ranges {
            for set in &mut self.wanted[range.first.index()..=range.last.index()] {
                elinks += u16::from(*set & bit == 0);
                *set |= bit;
            }
        }
        self.asking |= if elinks > 0 { bit } else { 0 };
        Ok(elinks)
    }

    /// Removes the subscription of a subscriber.
    fn forget_wishes(&mut self, id: SubscriberId) {
        let bit = 1 << id.index;
        let elinks = self.at(usize::from(id.index)).elinks.clone();
        self.wanted[elinks].iter_mut().for_each(|set| *set &= !bit);
        self.sharing &= !bit;
        self.asking &= !bit;
    }

    /// Removes a subscriber. Its waiting chunks go to others of its group, if there are any. Returns its account.
    pub fn leave(&mut self, id: SubscriberId, now: Instant) -> SubscriberAccount {
        if self.subscriber(id).is_none() {
            return SubscriberAccount::default();
        }
        self.forget_wishes(id);
        let place = &mut self.places[usize::from(id.index)];
        place.life += 1;
        let Some(mut gone) = place.subscriber.take() else { return SubscriberAccount::default() };
        while let Some(chunk) = gone.pop(&self.pages) {
            let set = self.wanted[chunk.head.elink.index()];
            let heir = self.pick(self.members(set, gone.share), gone.share, &chunk);
            match heir {
                None => gone.count_lost(&chunk),
                Some(heir) => {
                    gone.count_moved();
                    let config = self.config;
                    self.at(heir).take_over(chunk, now, &config);
                }
            }
        }
        self.release_pages();
        let account = gone.account();
        self.past.merge(&account);
        account
    }

    /// Queues a chunk for all its subscribers.
    ///
    /// # Errors
    /// Returns the chunk, and changes nothing, if a subscriber that must not miss it has no room.
    pub fn offer(&mut self, chunk: StreamChunk, now: Instant) -> Result<(), StreamChunk> {
        let set = self.wanted[chunk.head.elink.index()];
        let Some(takers) = self.choose(set, &chunk) else { return Err(chunk) };
        self.received += 1;
        self.unwanted += u64::from(takers == 0);
        let config = self.config;
        let mut left = takers;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            self.remember(set, index);
            let subscriber = self.at(index);
            if subscriber.takes_next() {
                // The last subscriber gets the chunk itself: most chunks have one subscriber, and need no further
                // reference.
                if left == 0 {
                    subscriber.offer(chunk, now, &config);
                    break;
                }
                subscriber.offer(chunk.clone(), now, &config);
            } else {
                subscriber.pass_over();
            }
        }
        Ok(())
    }

    /// Selects the subscribers of a chunk: all that do not share, and one of each group. Returns `None` if one of them
    /// must be waited for.
    fn choose(&self, set: u64, chunk: &StreamChunk) -> Option<u64> {
        let (mut left, mut takers) = (set, 0);
        let bytes = u64::from(chunk.head.length);
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let subscriber = self.places[first].subscriber.as_ref().expect("a subscriber that wants chunks is present");
            let members = self.members(left, subscriber.share) | 1 << first;
            left &= !members;
            let taker = self.pick(members, subscriber.share, chunk)?;
            let taker_is = self.places[taker].subscriber.as_ref().expect("it was picked from the present ones");
            if taker_is.must_wait(bytes, &self.config) {
                return None;
            }
            takers |= 1 << taker;
        }
        Some(takers)
    }

    /// Returns the members of the group in a set.
    fn members(&self, set: u64, share: Share) -> u64 {
        let Share::Group(..) = share else { return 0 };
        let is_member =
            |&(index, subscriber): &(usize, &Subscriber)| set >> index & 1 == 1 && subscriber.share == share;
        self.subscribers().filter(is_member).fold(0, |members, (index, _)| members | 1 << index)
    }

    /// Selects the member that gets the chunk; `None` without members.
    fn pick(&self, members: u64, share: Share, chunk: &StreamChunk) -> Option<usize> {
        if members == 0 {
            return None;
        }
        match share {
            Share::Alone => Some(members.trailing_zeros() as usize),
            Share::Group(_, Balance::RoundRobin) => {
                let last = u32::from(self.last[members.trailing_zeros() as usize]);
                // Members after the last one come first.
                let order = members.rotate_right((last + 1) & 63);
                let bytes = u64::from(chunk.head.length);
                let places = (0..64).filter(|bit| order >> bit & 1 == 1).map(|bit| (bit + last as usize + 1) & 63);
                let has_room = |&index: &usize| {
                    self.places[index].subscriber.as_ref().is_some_and(|one| one.has_room(bytes, &self.config))
                };
                places.clone().find(has_room).or_else(|| places.clone().next())
            }
            Share::Group(_, Balance::ByEvent) => {
                // The member with the highest hash wins: if a member leaves, only its own events move to another one.
                let members = (0..64).filter(|index| members >> index & 1 == 1);
                members.max_by_key(|&index| mixed(chunk.event, index as u64))
            }
        }
    }

    /// Remembers the member that got the last chunk of a group that shares by turns.
    fn remember(&mut self, set: u64, index: usize) {
        let Some(Share::Group(group, Balance::RoundRobin)) =
            self.places[index].subscriber.as_ref().map(|one| one.share)
        else {
            return;
        };
        let members = self.members(set, Share::Group(group, Balance::RoundRobin));
        self.last[members.trailing_zeros() as usize & 63] = index as u8;
    }

    /// Returns the next subscriber to which a message should be sent now.
    pub fn poll(&mut self, now: Instant) -> Option<SubscriberId> {
        let count = self.places.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            let place = &self.places[index];
            let is_due = |one: &Subscriber| one.is_due(now, &self.config, self.finishing);
            if place.subscriber.as_ref().is_some_and(is_due) {
                self.next = (index + 1) % count;
                return Some(SubscriberId { index: index as u8, life: place.life });
            }
        }
        None
    }

    /// Returns when [`Self::poll`] will return a subscriber even without input.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.subscribers().filter_map(|(_, subscriber)| subscriber.deadline(&self.config)).min()
    }

    /// Passes the chunks of the next message, of at most `most_bytes` bytes including headers, to a callback. The
    /// accepted ones, before the first break, are counted as sent. Returns their number. If it is zero, nothing is due
    /// before [`Self::unblock`].
    #[inline]
    pub fn take_each(
        &mut self,
        id: SubscriberId,
        most_bytes: usize,
        visit: impl FnMut(QueuedChunk<'_>) -> ControlFlow<()>,
    ) -> usize {
        let limits = MessageLimits { most_bytes, most_payload: self.config.coalesce_bytes };
        let Some((subscriber, pages)) = self.subscriber_and_pages(id) else { return 0 };
        let taken = subscriber.take(limits, pages, visit);
        subscriber.is_blocked = taken == 0;
        self.release_pages();
        taken as usize
    }

    /// Takes the same chunks, each with its own reference.
    pub fn take(&mut self, id: SubscriberId, most_bytes: usize, out: &mut Vec<StreamChunk>) {
        self.take_each(id, most_bytes, |chunk| {
            out.push(chunk.to_stream_chunk());
            ControlFlow::Continue(())
        });
    }

    /// Returns the amount that waits for a subscriber.
    pub fn queued(&self, id: SubscriberId) -> Amount {
        let place = self.places.get(usize::from(id.index)).filter(|place| place.life == id.life);
        place.and_then(|place| place.subscriber.as_ref()).map_or_else(Amount::default, |one| one.queue.amount())
    }

    /// Whether it may lose chunks. It then must not hold the card's memory, neither in its queue nor in its transport.
    pub fn may_lose(&self, id: SubscriberId) -> bool {
        let place = self.places.get(usize::from(id.index)).filter(|place| place.life == id.life);
        place.and_then(|place| place.subscriber.as_ref()).is_some_and(|one| one.policy == Policy::Drop)
    }

    /// Frees the card's memory when it has no room: the chunks that wait for a subscriber that may lose chunks are
    /// copied, or dropped if there is no room for a copy.
    pub fn relieve(&mut self, id: SubscriberId, copy: impl FnMut(&Payload) -> Option<Payload>) {
        let may_lose = |one: &Subscriber| one.policy == Policy::Drop;
        if let Some((subscriber, pages)) = self.subscriber_and_pages(id).filter(|(one, _)| may_lose(one)) {
            subscriber.relieve(pages, copy);
            self.release_pages();
        }
    }

    /// Drops the oldest waiting chunk, which can never be sent.
    pub fn drop_oldest(&mut self, id: SubscriberId) {
        if let Some((subscriber, pages)) = self.subscriber_and_pages(id) {
            subscriber.drop_oldest(pages);
            self.release_pages();
        }
    }

    /// Notes that the transport has room again.
    pub fn unblock(&mut self, id: SubscriberId) {
        if let Some(subscriber) = self.subscriber(id) {
            subscriber.is_blocked = false;
        }
    }

    /// Ends the input: chunks no longer wait for more.
    pub const fn finish(&mut self) {
        self.finishing = true;
    }

    /// Whether all queues are empty.
    pub fn is_empty(&self) -> bool {
        self.subscribers().all(|(_, subscriber)| subscriber.account().queued == 0)
    }

    /// Returns the account of a present subscriber.
    pub fn account(&self, id: SubscriberId) -> Option<SubscriberAccount> {
        let place = self.places.get(usize::from(id.index)).filter(|place| place.life == id.life)?;
        place.subscriber.as_ref().map(Subscriber::account)
    }

    /// Returns the sum of all accounts, including those of subscribers that left.
    pub fn total(&self) -> SubscriberAccount {
        let mut total = self.past;
        self.subscribers().for_each(|(_, subscriber)| total.merge(&subscriber.account()));
        total
    }

    /// Returns the number of received chunks, and of chunks without a subscriber.
    pub const fn received(&self) -> (u64, u64) {
        (self.received, self.unwanted)
    }

    /// Returns the number of subscribers.
    pub fn subscriber_count(&self) -> usize {
        self.subscribers().count()
    }

    /// Returns the number of subscribers with a subscription.
    pub const fn listeners(&self) -> u32 {
        self.asking.count_ones()
    }

    /// Whether any subscriber wants this e-link.
    pub fn is_wanted(&self, elink: ELink) -> bool {
        self.wanted[elink.index()] != 0
    }

    /// Whether any group shares by event. Reading the event number costs one cache line per chunk.
    pub const fn shares_by_event(&self) -> bool {
        self.shares_by_event
    }

    fn subscribers(&self) -> impl Iterator<Item = (usize, &Subscriber)> {
        self.places.iter().enumerate().filter_map(|(index, place)| Some((index, place.subscriber.as_ref()?)))
    }

    fn subscriber(&mut self, id: SubscriberId) -> Option<&mut Subscriber> {
        let place = self.places.get_mut(usize::from(id.index)).filter(|place| place.life == id.life)?;
        place.subscriber.as_mut()
    }

    fn subscriber_and_pages(&mut self, id: SubscriberId) -> Option<(&mut Subscriber, &Pages)> {
        let place = self.places.get_mut(usize::from(id.index)).filter(|place| place.life == id.life)?;
        Some((place.subscriber.as_mut()?, &self.pages))
    }

    /// Releases the pages of the ring that no queue needs any more.
    fn release_pages(&mut self) {
        let needs_from = self.subscribers().map(|(_, subscriber)| subscriber.needs_from()).min();
        self.pages.release_before(needs_from.unwrap_or(u64::MAX));
    }

    pub(super) fn at(&mut self, index: usize) -> &mut Subscriber {
        self.places[index].subscriber.as_mut().expect("a picked subscriber is present")
    }
}

/// Returns the hash of a member for an event.
const fn mixed(event: u64, member: u64) -> u64 {
    let mut word = event ^ (member + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The progress of a consumer in a batch: the next item that it has not seen. Each consumer of a batch has its own.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct BatchCursor {
    /// The run.
    pub run: usize,
    /// The index in the run.
    pub item: usize,
}

impl BatchCursor {
    /// Whether the whole batch was consumed.
    pub fn is_at_end(self, batch: &ChunkBatch) -> bool {
        self.run >= batch.runs().len()
    }
}

impl Router {
    /// Passes on a batch from `cursor`, in the order of its runs, until all of it is with its subscribers or one of
    /// them must be waited for; the cursor is advanced accordingly. Returns the number of chunks and signals that were
    /// passed. Subscribers get slices of `ring`, which contains the batch. The event number is read by `rules` if a
    /// group needs it.
    ///
    /// The batch is only read, and the router keeps what it needs of it. Other consumers can therefore read the same
    /// batch, each with its own cursor and in any order (a readout unit takes its fragments by
    /// [`CardInput`](crate::readout::felix::CardInput)). The owner of decoder and ring does the following for each
    /// batch:
    ///
    /// ```text
    ///  decode                   a new batch; every consumer's cursor is BatchCursor::default()
    ///  consumer, router.route   each as far as it has room, in this turn or in later ones
    ///  all cursors at the end:  ring.done_to(end of the batch, or the oldest open chunk), and the next batch
    /// ```
    /// `done_to` and the next `decode` must wait for the slowest consumer, since the ring lends slices only of memory
    /// that it is not done with. A subscriber without back-pressure is never waited for; [`Self::relieve`] is called
    /// when the card has no room left, so that the waiting chunks of such a subscriber hold no memory of the ring.
    pub fn route(
        &mut self,
        batch: &ChunkBatch,
        ring: &mut RingReader,
        rules: &EventRules,
        cursor: &mut BatchCursor,
        now: Instant,
    ) -> usize {
        let is_own = self.pages.are_of(ring);
        let (mut passed, mut held_from) = (0, None);
        while let Some(run) = batch.runs().get(cursor.run) {
            let items = &batch.items(run)[cursor.item..];
            let set = self.wanted[run.elink.index()];
            let taken = if set & self.sharing == 0 && is_own {
                let held_from = if set == 0 { 0 } else { *held_from.get_or_insert_with(|| self.hold(batch, ring)) };
                let origin = Origin { batch, run, needs_from: held_from, now };
                self.route_run(set, Lot::new(origin, items), ring)
            } else {
                self.route_chunks(batch, run, items, ring, rules, now)
            };
            passed += taken;
            if taken < items.len() {
                cursor.item += taken;
                break;
            }
            *cursor = BatchCursor { run: cursor.run + 1, item: 0 };
        }
        // Pages that were held and are in no queue, since their chunks were dropped or left out.
        self.release_pages();
        passed
    }

    /// Holds the pages of the ring that the batch needs. Returns the position from which on all are held.
    fn hold(&mut self, batch: &ChunkBatch, ring: &mut RingReader) -> u64 {
        self.pages.hold(ring, batch.needs_from(), batch.position(), batch.end())
    }

    /// Routes items of a run to subscribers that do not share. They do not affect each other, except that all wait for
    /// a subscriber that must not miss any. Returns the number of items taken.
    fn route_run(&mut self, set: u64, lot: Lot<'_>, ring: &mut RingReader) -> usize {
        let (config, mut taken, mut left) = (self.config, lot.items.len(), set);
        while left != 0 {
            let subscriber = self.at(left.trailing_zeros() as usize);
            left &= left - 1;
            if subscriber.policy == Policy::BackPressure {
                taken = taken.min(subscriber.takes_without_waiting(&lot, &config));
            }
        }
        let lot = if taken == lot.items.len() { lot } else { lot.first(taken) };
        left = set;
        while left != 0 {
            let subscriber = self.at(left.trailing_zeros() as usize);
            left &= left - 1;
            subscriber.offer_lot(&lot, ring, &config);
        }
        self.received += lot.amount.chunks;
        self.unwanted += if set == 0 { lot.amount.chunks } else { 0 };
        taken
    }

    /// Does the same chunk by chunk, as the rules of groups require.
    fn route_chunks(
        &mut self,
        batch: &ChunkBatch,
        run: &Run,
        items: &[SubChunk],
        ring: &mut RingReader,
        rules: &EventRules,
        now: Instant,
    ) -> usize {
        let is_wanted = self.is_wanted(run.elink);
        let rule = self.shares_by_event().then(|| rules.of(run.elink));
        let is_taken = |&&item: &&SubChunk| {
            let chunk = chunk(batch.chunk(item), run, ring, rule, is_wanted);
            chunk.is_none_or(|chunk| self.offer(chunk, now).is_ok())
        };
        items.iter().take_while(is_taken).count()
    }
}

/// Returns a chunk for the router; `None` for a signal. An unwanted chunk is only counted and needs no bytes.
#[inline]
pub(super) fn chunk(
    chunk: Chunk<'_>,
    run: &Run,
    ring: &mut RingReader,
    rule: Option<EventRule>,
    is_wanted: bool,
) -> Option<StreamChunk> {
    let mut payload = Payload::default();
    let mut append = |piece: &Piece| {
        if is_wanted && piece.length > 0 {
            ring.append(piece.position, piece.length, &mut payload);
        }
    };
    let (length, status): (u64, Status) = match chunk {
        Chunk::Short { piece, status } => {
            append(&piece);
            (u64::from(piece.length), status)
        }
        Chunk::Scattered { pieces, bytes, status } => {
            pieces.iter().for_each(append);
            (bytes, status)
        }
        Chunk::Signal(_) => return None,
    };
    let event = rule.and_then(|rule| rule.number(&payload)).unwrap_or(0);
    let head = ChunkHead { elink: run.elink, status, sequence: run.sequence, length: length as u32 };
    Some(StreamChunk { head, event, payload, is_copy: false })
}
