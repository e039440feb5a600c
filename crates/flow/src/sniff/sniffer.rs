//! Takes what comes, and says what it found.

use super::accounts::{Kept, Limits, Peer, PeerAccount, Stream, Transport};
use super::cut::{self, Cutting};
use super::findings::{Findings, Group, Guess, Meaning};
use super::frames::{Frames, Table};
use super::{clocks, constants, counters, doubts, lengths};
use ropewalk_terms::Instant;
use ropewalk_wire::layout::Frame;

/// Looks at what peers send.
#[derive(Debug)]
pub struct Sniffer {
    limits: Limits,
    heard: Vec<(PeerAccount, Kept)>,
    unheard: u64,
}

impl Sniffer {
    /// Nothing came yet.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, heard: Vec::new(), unheard: 0 }
    }

    /// Takes a datagram, or the next bytes of a stream.
    pub fn accept(&mut self, peer: Peer, now: Instant, bytes: &[u8]) {
        let known = self.heard.iter().position(|(account, _)| account.peer == peer);
        let index = match known {
            Some(index) => index,
            None if self.heard.len() >= self.limits.peers => {
                self.unheard += 1;
                return;
            }
            None => {
                let kept = match peer.transport {
                    Transport::Udp => Kept::Datagrams(Frames::new(self.limits.head_bytes)),
                    Transport::Tcp | Transport::File => Kept::Stream(Stream::default()),
                };
                self.heard.push((PeerAccount::new(peer, now), kept));
                self.heard.len() - 1
            }
        };
        let (account, kept) = &mut self.heard[index];
        account.add(now, bytes);
        match kept {
            Kept::Datagrams(frames) if frames.len() < self.limits.frames => frames.push(now.as_nanoseconds(), bytes),
            Kept::Datagrams(_) => {}
            Kept::Stream(stream) => stream.push(&self.limits, now.as_nanoseconds(), bytes),
        }
    }

    /// What comes next of this peer's stream is no continuation of what came: it is another connection, or bytes are missing.
    pub fn break_off(&mut self, peer: Peer) {
        let known = self.heard.iter_mut().find(|(account, _)| account.peer == peer);
        if let Some((_, Kept::Stream(stream))) = known {
            stream.break_off();
        }
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.heard.iter().map(|(account, _)| account.packets).sum::<u64>() + self.unheard
    }

    /// What was found, for each place that was sent to; for connections whose frames are different, apart.
    pub fn findings(&self) -> Findings {
        let mut order: Vec<&(PeerAccount, Kept)> = self.heard.iter().collect();
        order.sort_by_key(|(account, _)| account.peer);
        let same = |one: &&(PeerAccount, Kept), other: &&(PeerAccount, Kept)| {
            (one.0.peer.port, one.0.peer.transport) == (other.0.peer.port, other.0.peer.transport)
        };
        let groups = order.chunk_by(same).flat_map(|peers| self.groups(peers)).collect();
        Findings { groups, unheard: self.unheard }
    }

    /// Peers that send to one place: those together whose frames are found in the same way.
    fn groups(&self, peers: &[&(PeerAccount, Kept)]) -> Vec<Group> {
        let (mut groups, mut left) = (Vec::new(), peers.to_vec());
        while let Some(cutting) = cut::find(&left.iter().filter_map(|(_, kept)| kept.stream()).collect::<Vec<_>>()) {
            let fits = |(_, kept): &&(PeerAccount, Kept)| {
                kept.stream().is_some_and(|stream| cutting.frames_of(stream).is_some())
            };
            let (alike, others): (Vec<_>, Vec<_>) = left.iter().copied().partition(fits);
            if alike.is_empty() {
                break;
            }
            groups.push(self.group(&alike, Some(&cutting)));
            left = others;
        }
        if !left.is_empty() {
            groups.push(self.group(&left, None));
        }
        groups
    }

    fn group(&self, peers: &[&(PeerAccount, Kept)], cutting: Option<&Cutting>) -> Group {
        let streams: Vec<&Stream> = peers.iter().filter_map(|(_, kept)| kept.stream()).collect();
        let cut: Vec<Frames> = cutting.iter().flat_map(|cutting| self.cut(cutting, &streams)).collect();
        let datagrams = peers.iter().filter_map(|(_, kept)| match kept {
            Kept::Datagrams(frames) => Some(frames),
            Kept::Stream(_) => None,
        });
        let table = Table::new(datagrams.chain(&cut));
        let mut guesses = lengths::find(&table);
        guesses.extend(counters::find(&table));
        guesses.extend(clocks::find(&table, &guesses));
        guesses.extend(counters::find_slow(&table, &guesses));
        guesses.extend(constants::find(&table, &guesses));
        let framing = cutting.map(|cutting| likeliest(&cutting.frame, &guesses));
        let ranges: Vec<_> =
            cutting.iter().flat_map(|cutting| streams.iter().filter_map(|one| cutting.frames_of(one))).collect();
        let begins_within = ranges.iter().any(|ranges| ranges.first().is_some_and(|first| first.start > 0));
        let rival = cutting.and_then(|cutting| cutting.rival.as_ref());
        let doubts = doubts::find(&table, &guesses, framing.as_ref(), rival, begins_within);
        let of_streams: usize = streams.iter().map(|stream| stream.bytes.len()).sum();
        let framed: usize = ranges.iter().flatten().map(|range| range.len()).sum();
        let unframed_bytes = of_streams.saturating_sub(framed) as u64;
        Group {
            peers: peers.iter().map(|(account, _)| account.clone()).collect(),
            frames: table.len() as u64,
            least_frame: table.rows().map(|row| row.length).min().unwrap_or(0),
            most_frame: table.rows().map(|row| row.length).max().unwrap_or(0),
            framing,
            guesses,
            doubts,
            unframed_bytes,
        }
    }

    fn cut(&self, cutting: &Cutting, streams: &[&Stream]) -> Vec<Frames> {
        let frames = streams.iter().map(|stream| {
            let mut frames = Frames::new(self.limits.head_bytes);
            for range in cutting.frames_of(stream).into_iter().flatten().take(self.limits.frames) {
                frames.push(stream.time(range.start), &stream.bytes[range]);
            }
            frames
        });
        frames.collect()
    }
}

/// How frames are found. Of length fields that lead to the same frames the one is taken that is likeliest by its place and width.
fn likeliest(found: &Frame, guesses: &[Guess]) -> Frame {
    let length = guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::Length(length) if guess.holds == guess.of => Some(length),
        _ => None,
    });
    match (found, length) {
        (Frame::Length(_), Some(length)) => Frame::Length(length),
        _ => found.clone(),
    }
}
