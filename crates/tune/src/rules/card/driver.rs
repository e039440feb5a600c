//! Rings, queues, interrupts and pauses: what ethtool(8) sets with `-G`, `-L`, `-C` and `-A`.

use super::*;

/// Rules on what drivers let be set in numbers.
pub(in crate::rules) const DRIVER: &[Rule] = &[
    Rule {
        name: "receive_ring",
        group: Group::Card,
        what: "Descriptors of each receive ring. As many as the card can have for datagrams and packet rings; at least \
               1024 for connections.",
        why: "What comes while the driver is not looked after waits in the ring, and what finds no descriptor is lost: \
              paper 2 traced the loss at its highest rates to descriptors that came back too late. For connections a \
              longer ring costs caches more than it brings.",
        source: "paper 2, V and VI; the kernel's networking/ethtool-netlink.rst",
        worth: "at 100 Gb/s and 9000 bytes 1024 descriptors last 0.7 ms, and 8192 last 6 ms; no bench of Ropewalk \
               shows it: virtual cards have no rings, and the times are descriptors times bytes through speed",
        sureness: Sureness::Documented,
        look: receive_ring,
    },
    Rule {
        name: "channels",
        group: Group::Card,
        what: "How many queues a card shares its work among. No more than its node has cores; more than one where \
               several threads read.",
        why: "One queue means that one core does all the kernel's work for the card. More queues than cores of the \
              card's node means that some of their interrupts go to the other node's.",
        source: "paper 3, IV-C; the kernel's networking/scaling.rst",
        worth: "up to one more core for the kernel's work with each queue; `ropewalk bench packet`",
        sureness: Sureness::Documented,
        look: channels,
    },
    Rule {
        name: "coalescing",
        group: Group::Card,
        what: "How long interrupts wait for more packets. Adaptive, or fixed between 1 and 100 us.",
        why: "Without waiting each packet may interrupt: paper 1 had 250000 frames and 20000 interrupts a second, and \
              could not have taken more. Waiting too long delays each request of a builder unit by as much.",
        source: "paper 1, IV-A; the kernel's networking/ethtool-netlink.rst",
        worth: "paper 1 had one interrupt for twelve frames; `ropewalk bench packet`",
        sureness: Sureness::Documented,
        look: coalescing,
    },
    Rule {
        name: "pause_frames",
        group: Group::Card,
        what: "Whether card and switch make each other wait. On for datagrams, which nothing here changes where \
               both negotiate it; for connections it is told alone.",
        why: "Nobody else holds a source of datagrams back: without pauses its packets are lost where queues are full. \
              For connections, which hold back their own senders, pauses also stop whoever shares the switch's queue.",
        source: "IEEE 802.3, annex 31B; paper 1, II, had them off and switches with deep buffers",
        worth: "loss or none in bursts beyond the buffers of card and switch; no bench of Ropewalk shows it: it takes \
               a switch (IEEE 802.3, annex 31B)",
        sureness: Sureness::Guess,
        look: pause_frames,
    },
];

/// Descriptors that connections should have.
const LEAST_RING: u64 = 1024;
/// The longest wait of an interrupt that does not show in the latency of builder units, in microseconds.
const LONGEST_WAIT: u64 = 100;

fn receive_ring(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let is_lossy = wish.has(Transport::Datagrams) || wish.has(Transport::Rings);
    let one = |(card, report): (&Card, &CardReport)| {
        let present = number(report, &Property::ReceiveRing)?;
        let most = report.most_receive_ring.map_or(present, u64::from);
        let wanted = if is_lossy { most } else { LEAST_RING.min(most) };
        Some(if present >= wanted {
            Seen::good(subject(card, &Property::ReceiveRing), format!("{present} of {most}"))
        } else {
            let mut seen =
                wrong(Grade::CouldBeBetter, card, &Property::ReceiveRing, &present.to_string(), &wanted.to_string());
            seen.found = format!("{present} of {most}");
            seen
        })
    };
    Ok(found.reports(wish).into_iter().filter_map(one).collect())
}

fn channels(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |(card, report): (&Card, &CardReport)| {
        let present = number(report, &Property::CombinedChannels)?;
        let most = report.most_combined_channels.map_or(present, u64::from);
        let wanted = found.queues_after(card, wish)? as u64;
        Some(if wanted == present {
            Seen::good(subject(card, &Property::CombinedChannels), format!("{present} of {most}"))
        } else {
            let property = Property::CombinedChannels;
            wrong(Grade::CouldBeBetter, card, &property, &present.to_string(), &wanted.to_string())
        })
    };
    Ok(found.reports(wish).into_iter().filter_map(one).collect())
}

fn coalescing(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |(card, report): (&Card, &CardReport)| {
        let (adaptive, wait) = (Property::AdaptiveReceive, Property::ReceiveMicroseconds);
        if report.value(&adaptive) == Some("on") {
            return Some(Seen::good(subject(card, &adaptive), "on"));
        }
        let present = number(report, &wait)?;
        let frames = number(report, &Property::ReceiveFrames).unwrap_or(1);
        let is_short = present == 0 && frames <= 1;
        if !is_short && present <= LONGEST_WAIT {
            return Some(Seen::good(subject(card, &wait), format!("{present} us")));
        }
        if !found.takes(card, &wait) {
            return Some(Seen::good(
                subject(card, &wait),
                format!("{present} us, which the host of a virtual card decides"),
            ));
        }
        Some(if report.value(&adaptive) == Some("off") && found.takes(card, &adaptive) {
            let mut seen = wrong(Grade::CouldBeBetter, card, &adaptive, "off", "on");
            seen.found = format!("off, fixed at {present} us");
            seen
        } else {
            let wanted = if is_short { "20" } else { "50" };
            wrong(Grade::CouldBeBetter, card, &wait, &present.to_string(), wanted)
        })
    };
    Ok(found.reports(wish).into_iter().filter_map(one).collect())
}

fn pause_frames(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let mut seen = Vec::new();
    for (card, report) in found.reports(wish) {
        let has_datagrams = found.readers_of(card, wish) > 0 && !wish.has(Transport::Tcp);
        // Drivers then tell what was agreed on, whatever was set: the other side decides, too.
        let is_negotiated = report.value(&Property::NegotiatedPause) == Some("on");
        for property in [Property::ReceivePause, Property::TransmitPause] {
            seen.extend(report.value(&property).map(|present| match (present, has_datagrams) {
                ("off", true) if is_negotiated => {
                    let command = format!("ethtool -A {} autoneg off rx on tx on", card.name);
                    let advised = format!("on, which the switch has to agree to, or both without asking: `{command}`");
                    Seen::better(subject(card, &property), present, advised)
                }
                ("off", true) => wrong(Grade::CouldBeBetter, card, &property, present, "on"),
                ("on", false) if property == Property::TransmitPause => {
                    Seen::told(subject(card, &property), present, "off, where other traffic shares the switch")
                }
                _ => Seen::good(subject(card, &property), present),
            }));
        }
    }
    Ok(seen)
}
