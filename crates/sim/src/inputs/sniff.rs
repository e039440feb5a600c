//! Peers that send anything, looked at.

use super::choices::Choices;
use ropewalk_flow::sniff::{Limits, Peer, Sniffer, Transport, draft};
use ropewalk_wire::layout::Plan;
use std::net::{Ipv4Addr, SocketAddr};

/// Bytes of a packet at most, and how much of all is looked at: small, so that limits are reached.
const MOST_BYTES: usize = 80;
const LIMITS: Limits = Limits { peers: 4, frames: 64, head_bytes: 48, stream_bytes: 2048 };

/// Lets packets come that are noise, or count and tell the time, and asks what was found.
///
/// # Panics
/// Where the sniffer does, where it believes more than there was, or drafts a layout that is none.
pub fn sniff(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let (mut sniffer, mut packets, mut number) = (Sniffer::new(LIMITS), 0_u64, 0_u32);
    while !choices.is_over() {
        let transport = if choices.chance() { Transport::Udp } else { Transport::Tcp };
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 1 + choices.below(6) as u16));
        let peer = Peer { port: 9000 + choices.below(2) as u16, transport, from };
        let mut packet = Vec::new();
        if choices.chance() {
            number = number.wrapping_add(choices.below(3) as u32);
            let length = 12 + choices.below(4) as u32;
            packet.extend([length.to_be_bytes(), number.to_be_bytes(), number.to_le_bytes()].concat());
            packet.resize(length as usize, 0x55);
        }
        let most = choices.below(MOST_BYTES as u64) as usize;
        packet.extend_from_slice(choices.raw(most));
        sniffer.accept(peer, choices.now(), &packet);
        packets += 1;
    }
    assert_eq!(sniffer.packets(), packets, "each packet is counted");
    let findings = sniffer.findings();
    let told: u64 = findings.groups.iter().flat_map(|group| &group.peers).map(|peer| peer.packets).sum();
    assert_eq!(told + findings.unheard, packets, "and told once");
    for group in &findings.groups {
        for guess in &group.guesses {
            assert!(guess.holds <= guess.of && guess.score() <= 1.0, "{guess:?}");
        }
        assert!(draft(group).is_none_or(|layout| Plan::compile(&layout).is_ok()), "the draft of {group:?}");
    }
}
