//! Super-fragments for one builder unit, gathered until a message of them is worth sending.
//!
//! ```text
//! within a process   the delivery itself is handed over, and comes back empty: nothing is encoded
//! between processes  described in a head of bytes, and the payloads' slices follow as they lie in the pool: what one
//!                    source sent of several events lies side by side, and leaves as one slice
//! ```

use super::link::{Outbox, Unsent};
use ropewalk_flow::messages::{Fragment, SuperFragmentEntry};
use ropewalk_flow::readout::SuperFragment;
use ropewalk_io::{Dispatcher, Endpoint, Parcel};
use ropewalk_memory::{Runs, Slice};
use ropewalk_wire::message::{FragmentEntry, HEADER_BYTES, Header, Kind, SuperFragmentsEncoder};

/// Super-fragments for one builder unit, and their sender.
#[derive(Debug)]
pub struct Delivery {
    /// The message header; set when the delivery is sent.
    pub header: Option<Header>,
    entries: Vec<SuperFragmentEntry>,
    /// The fragments of the first entry, then those of the second, and so on.
    fragments: Vec<Fragment>,
    payload_bytes: u64,
    /// Number of slices of the payloads.
    slices: usize,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            header: None,
            entries: Vec::with_capacity(Answers::SUPER_FRAGMENTS),
            // Capacity for a full delivery, and for the event of many sources that fills its rest.
            fragments: Vec::with_capacity(2 * Answers::SLICES),
            payload_bytes: 0,
            slices: 0,
        }
    }
}

impl Delivery {
    fn add(&mut self, entry: SuperFragmentEntry, held: Option<SuperFragment<'_>>) {
        let first = self.fragments.len();
        held.inspect(|held| held.append_to(&mut self.fragments));
        let added = &self.fragments[first..];
        debug_assert_eq!(usize::from(entry.fragments), added.len(), "the machine counts what it gives");
        debug_assert_eq!(entry.bytes, added.iter().map(|fragment| fragment.meta.length).sum::<u32>());
        self.slices += added.iter().map(|fragment| fragment.payload.piece_count()).sum::<usize>();
        self.payload_bytes += u64::from(entry.bytes);
        self.entries.push(entry);
    }

    /// Passes every super-fragment with its fragments to `take`, drops the rest of them, and leaves the delivery empty.
    pub fn unpack(&mut self, mut take: impl FnMut(&SuperFragmentEntry, &mut [Fragment])) {
        let mut rest = &mut self.fragments[..];
        for entry in &self.entries {
            let (own, others) = rest.split_at_mut(usize::from(entry.fragments));
            take(entry, own);
            rest = others;
        }
        self.clear();
    }

    /// Returns the number of super-fragments.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no super-fragments.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.fragments.clear();
        (self.payload_bytes, self.slices) = (0, 0);
    }
}

/// Super-fragments that a readout unit gathers for one builder unit.
#[derive(Debug, Default)]
pub struct Answers {
    gathered: Box<Delivery>,
    /// Empty deliveries, for a builder unit in the same process.
    #[expect(clippy::vec_box, reason = "each leaves as it is, in a parcel")]
    spare: Vec<Box<Delivery>>,
    /// The payloads in sending order.
    runs: Runs,
    /// Where each fragment's payload begins among them.
    offsets: Vec<u32>,
    /// An encoded message that waits for room.
    message: Vec<Slice>,
}

impl Answers {
    /// Number of payload bytes that are sent without waiting for more.
    pub const BUDGET: u64 = 512 * 1024;
    /// Maximum number of super-fragments in one message.
    const SUPER_FRAGMENTS: usize = 64;
    /// Maximum number of slices in one message, so that a message's tables stay within the limits of receivers.
    const SLICES: usize = 1024;
    /// Number of deliveries of one connection within a process. It is small, so that they stay in the cache; one is
    /// filled while the others are in transit in either direction.
    const DELIVERIES: usize = 8;

    /// Prepares for a new connection to the builder unit.
    pub fn begin(&mut self, to: &impl Dispatcher) {
        self.clear();
        if to.hands_over() {
            self.spare.resize_with(Self::DELIVERIES - 1, Box::default);
        } else {
            self.message.reserve(4 * Self::SLICES);
            self.runs.reserve(4 * Self::SLICES);
            self.offsets.reserve(2 * Self::SLICES);
        }
    }

    /// Adds a super-fragment, or the statement that the unit does not hold it.
    pub fn add(&mut self, entry: SuperFragmentEntry, held: Option<SuperFragment<'_>>) {
        self.gathered.add(entry, held);
    }

    /// Returns whether nothing is waiting.
    pub const fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.message.is_empty()
    }

    /// Returns whether the next super-fragment may be added only after a send.
    pub const fn is_full(&self) -> bool {
        !self.message.is_empty()
            || self.gathered.payload_bytes >= Self::BUDGET
            || self.gathered.entries.len() >= Self::SUPER_FRAGMENTS
            || self.gathered.slices >= Self::SLICES
    }

    /// Sends the gathered super-fragments.
    ///
    /// # Errors
    /// Nothing was sent and the state is unchanged: see [`Unsent`].
    pub fn send(&mut self, outbox: &mut Outbox, to: &mut impl Dispatcher, endpoint: Endpoint) -> Result<(), Unsent> {
        if to.hands_over() {
            return self.hand_over(outbox, to, endpoint);
        }
        if self.message.is_empty() {
            self.encode(outbox)?;
        }
        // A refused message stays encoded for the next attempt.
        Ok(to.send(endpoint, &mut self.message)?)
    }

    fn hand_over(&mut self, outbox: &Outbox, to: &mut impl Dispatcher, endpoint: Endpoint) -> Result<(), Unsent> {
        let spare = self.spare.pop().ok_or(Unsent::NoRoom)?;
        let mut delivery = std::mem::replace(&mut self.gathered, spare);
        delivery.header = Some(outbox.identity.header(Kind::SuperFragments, 0));
        let bytes = delivery.payload_bytes as usize;
        to.hand_over(endpoint, Parcel::new(delivery, bytes)).map_err(|(error, refused)| {
            if let Ok(delivery) = refused.open() {
                self.spare.push(std::mem::replace(&mut self.gathered, delivery));
            }
            error.into()
        })
    }

    /// Encodes the gathered super-fragments as a message.
    fn encode(&mut self, outbox: &mut Outbox) -> Result<(), Unsent> {
        let (super_fragments, fragments) = (self.gathered.entries.len(), self.gathered.fragments.len());
        outbox.make_room(HEADER_BYTES + SuperFragmentsEncoder::head_bytes(super_fragments, fragments))?;
        self.lay_out();
        let Delivery { entries, fragments, .. } = &*self.gathered;
        let placed = fragments.iter().zip(&self.offsets);
        let mut placed = placed.map(|(fragment, &offset)| FragmentEntry { meta: fragment.meta, offset });
        let head = outbox.stage(Kind::SuperFragments, self.runs.bytes(), |out| {
            let mut encoder = SuperFragmentsEncoder::new(out);
            for entry in entries {
                encoder.add(*entry, placed.by_ref().take(usize::from(entry.fragments)));
            }
            encoder.finish();
        });
        self.message.push(head?);
        self.runs.append_to(&mut self.message);
        self.gathered.clear();
        Ok(())
    }

    /// Moves the payloads into sending order: the first of each super-fragment, then the second of each, and so on.
    fn lay_out(&mut self) {
        let Self { gathered, runs, offsets, .. } = self;
        let Delivery { entries, fragments, .. } = &mut **gathered;
        offsets.clear();
        offsets.resize(fragments.len(), 0);
        for row in 0..entries.iter().map(|entry| entry.fragments).max().unwrap_or(0) {
            let mut first = 0;
            for entry in entries.iter() {
                if row < entry.fragments {
                    let place = first + usize::from(row);
                    offsets[place] = runs.add(&mut fragments[place].payload) as u32;
                }
                first += usize::from(entry.fragments);
            }
        }
    }

    /// Takes back an empty delivery.
    pub fn take_back(&mut self, parcel: Parcel) {
        if let Ok(delivery) = parcel.open()
            && self.spare.len() < Self::DELIVERIES - 1
        {
            self.spare.push(delivery);
        }
    }

    /// Drops everything after the loss of the builder unit.
    pub fn clear(&mut self) {
        self.gathered.clear();
        self.message.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, Incoming, MessageReader};
    use ropewalk_flow::messages::FragmentMeta;
    use ropewalk_io::Event;
    use ropewalk_io::in_process::{InProcess, InProcessConfig, InProcessNetwork};
    use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
    use ropewalk_terms::{Attempt, Cause, Epoch, EventKey, Incarnation, Instant, NodeId, RunNumber, SourceId};

    fn answer(answers: &mut Answers, number: u64, fragments: u16) {
        let key = EventKey::new(0, number);
        let meta = FragmentMeta::missing(SourceId(number as u32), Cause::TimedOut);
        let gathered = &mut answers.gathered;
        gathered.fragments.extend((0..fragments).map(|_| Fragment { meta, payload: Payload::default() }));
        let attempt = Attempt(1);
        gathered.entries.push(SuperFragmentEntry { key, slot: 0, attempt, fragments, bytes: 0, not_held: None });
    }

    fn outbox() -> Outbox {
        let staging = Staging::new(Pool::new(PoolConfig::heap("staging", 4096, 2)).expect("memory"));
        let (node, run) = (NodeId::readout(0), RunNumber(1));
        Outbox::new(Identity { node, incarnation: Incarnation(1), run, epoch: Epoch(1) }, staging)
    }

    #[test]
    fn every_super_fragment_is_unpacked_with_its_own_fragments() {
        let mut answers = Answers::default();
        (1..=3).for_each(|number| answer(&mut answers, number, 4));
        let mut taken = Vec::new();
        answers.gathered.unpack(|entry, fragments| {
            taken.push((
                entry.key.number(),
                fragments.iter().map(|fragment| fragment.meta.source.0).collect::<Vec<_>>(),
            ));
        });
        assert_eq!(taken, [(1, vec![1; 4]), (2, vec![2; 4]), (3, vec![3; 4])]);
        assert!(answers.is_empty());
    }

    /// An event's number, and each fragment's source and bytes.
    type Found = (u64, Vec<(u32, Vec<u8>)>);

    /// Returns the content that a builder unit decodes from a message of some events, received this many bytes at a
    /// time.
    fn found(message: &[Slice], at_a_time: usize) -> Vec<Found> {
        let mut received = Staging::new(Pool::new(PoolConfig::heap("received", 1000, 100)).expect("memory"));
        let (mut reader, mut found) = (MessageReader::default(), Vec::new());
        let bytes: Vec<u8> = message.iter().flat_map(|slice| slice.to_vec()).collect();
        for piece in bytes.chunks(at_a_time) {
            reader.push(received.write(piece).expect("room"));
            while let Some(incoming) = reader.next_incoming().expect("a good message") {
                let Incoming::SuperFragment(_, entry) = incoming else { panic!("a super-fragment") };
                let fragments = reader.fragments().iter();
                let fragments = fragments.map(|fragment| (fragment.meta.source.0, fragment.payload.to_vec()));
                found.push((entry.key.number(), fragments.collect()));
                reader.drop_fragments();
                assert!(reader.fragments().iter().all(|fragment| fragment.payload.is_empty()));
            }
        }
        drop(reader);
        received.pool_mut().collect();
        assert_eq!(received.pool().held(), 1, "the one that is being filled");
        found
    }

    #[test]
    fn what_a_source_sent_of_several_events_leaves_as_one_slice_and_comes_out_event_by_event() {
        const EVENTS: usize = 5;
        let mut pool = Pool::new(PoolConfig::heap("fragments", 4096, 4)).expect("memory");
        let mut stream = |source: usize| {
            let mut loan = pool.loan(ropewalk_memory::Owner::SHARED).expect("a block");
            let fragment = move |event: usize| {
                loan.append(&[0xEE; 16]).expect("room for a header");
                Payload::from(loan.append(&vec![(16 * source + event) as u8; 64 + source]).expect("room"))
            };
            (0..EVENTS).map(fragment).collect::<Vec<_>>()
        };
        let streams = [1, 2, 3].map(&mut stream);
        let (mut answers, mut expected) = (Answers::default(), Vec::new());
        for event in 0..EVENTS {
            // The middle source has no fragment of the last event.
            let has = |source: usize| source != 2 || event + 1 < EVENTS;
            let mut fragments = Vec::new();
            for (source, payloads) in (1..).zip(&streams) {
                let payload = if has(source) { payloads[event].clone() } else { Payload::default() };
                let missing = FragmentMeta::missing(SourceId(source as u32), Cause::TimedOut);
                let meta = FragmentMeta { length: payload.len() as u32, ..missing };
                fragments.push((source as u32, payload.to_vec()));
                answers.gathered.fragments.push(Fragment { meta, payload });
            }
            let (key, attempt, not_held) = (EventKey::new(0, event as u64), Attempt(1), None);
            answers.gathered.entries.push(SuperFragmentEntry {
                key,
                slot: 0,
                attempt,
                fragments: 3,
                bytes: 0,
                not_held,
            });
            expected.push((event as u64, fragments));
        }
        answers.encode(&mut outbox()).expect("room in the staging pool");
        assert_eq!(answers.message.len(), 1 + 3, "a head, and what each source sent");
        for at_a_time in [1, 63, 700, 1000] {
            assert_eq!(found(&answers.message, at_a_time), expected, "{at_a_time} bytes at a time");
        }
        answers.clear();
        drop(streams);
        pool.collect();
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn without_an_empty_delivery_the_next_one_waits_until_one_comes_back() {
        let network = InProcessNetwork::default();
        let dispatcher = || network.dispatcher(InProcessConfig::default()).expect("an eventfd");
        let (mut readout, mut builder) = (dispatcher(), dispatcher());
        readout.listen("ru").expect("a free name");
        let at_builder = builder.connect("ru").expect("a name");
        let mut events = Vec::new();
        let mut turn = |one: &mut InProcess, other: &mut InProcess| {
            one.poll(Instant::ZERO, &mut events);
            other.poll(Instant::ZERO, &mut events);
            std::mem::take(&mut events)
        };
        let requested = turn(&mut builder, &mut readout);
        let at_readout = requested.first().map(Event::endpoint).expect("a request");
        readout.accept(at_readout);
        turn(&mut readout, &mut builder);

        let (mut answers, mut outbox, mut sent) = (Answers::default(), outbox(), 0);
        answers.begin(&readout);
        answer(&mut answers, 0, 1);
        while answers.send(&mut outbox, &mut readout, at_readout).is_ok() {
            sent += 1;
            answer(&mut answers, sent, 1);
        }
        assert_eq!((sent as usize, answers.is_empty()), (Answers::DELIVERIES - 1, false));
        let mut came = turn(&mut readout, &mut builder).into_iter();
        let Some(Event::HandedOver { parcel, .. }) = came.next() else { panic!("a delivery") };
        let mut delivery = parcel.open::<Delivery>().expect("what was sent");
        assert_eq!((delivery.len(), delivery.header.map(|header| header.run)), (1, Some(RunNumber(1))));
        delivery.unpack(|entry, fragments| assert_eq!((entry.key.number(), fragments.len()), (0, 1)));
        assert!(builder.hand_over(at_builder, Parcel::new(delivery, 0)).is_ok());
        let mut back = turn(&mut builder, &mut readout).into_iter();
        let Some(Event::HandedOver { parcel, .. }) = back.next() else { panic!("an empty one") };
        answers.take_back(parcel);
        assert_eq!(answers.send(&mut outbox, &mut readout, at_readout), Ok(()));
    }
}
