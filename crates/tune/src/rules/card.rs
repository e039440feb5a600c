//! Network cards: the settings of their drivers, and the state of card, cable and slot.
//!
//! - Rings, queues, interrupts and pauses: what ethtool(8) sets with `-G`, `-L`, `-C` and `-A`.
//! - Offloads of card and kernel, which handle many packets at once: ethtool(8) `-K`.
//! - The queue of a packet.
//! - Cable, slot, damaged packets, and the capabilities of the driver.

use std::collections::BTreeMap;

use ropewalk_host::Card;

use super::{Rule, Seen};
use crate::cards::CardReport;
use crate::found::{Found, Unread};
use crate::{Form, Grade, Group, Property, Setting, Sureness, Transport, Wish};

/// A property of a card as a setting.
fn setting(card: &Card, property: &Property) -> Setting {
    Setting::Card { interface: card.name.clone(), property: property.clone() }
}

/// What the table calls a property of a card.
fn subject(card: &Card, property: &Property) -> String {
    format!("{}: {property}", card.name)
}

/// A property that should have another value.
fn wrong(grade: Grade, card: &Card, property: &Property, found: &str, advised: &str) -> Seen {
    Seen::new(grade, subject(card, property), found, advised).change(setting(card, property), found, advised)
}

/// A property's number, if the driver reports one.
fn number(report: &CardReport, property: &Property) -> Option<u64> {
    report.value(property)?.parse().ok()
}

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
        what: "Whether card and switch make each other wait. On for datagrams, but never changed where both \
               negotiate it; for connections only reported.",
        why: "Only pauses hold a source of datagrams back: without them its packets are lost where queues are full. \
              For connections, which hold back their own senders, pauses also stop others in the switch's queue.",
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
        // Drivers then report what both sides negotiated, not what was set.
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

/// Rules on offloads.
pub(in crate::rules) const OFFLOADS: &[Rule] = &[
    Rule {
        name: "receive_offload",
        group: Group::Card,
        what: "Packets of one connection that are put together before the kernel works on them. In the kernel (`rx-gro`): \
               on. By the card's driver in the old way (`rx-lro`): off.",
        why: "The kernel's work is counted in packets, not in bytes: put together, 64 KiB cost as much as one frame. \
              The old way throws away what cannot be told apart afterwards, and is left off where packets pass on.",
        source: "paper 1, IV-D, on what fewer packets save; the kernel's networking/segmentation-offloads.rst",
        worth: "a receiver that empties a full queue: 1.2 to 1.5 million datagrams of 1024 bytes a second one by one, \
               16 million \
                put together by the kernel; `ropewalk bench packet`",
        sureness: Sureness::Measured,
        look: receive_offload,
    },
    Rule {
        name: "send_offload",
        group: Group::Card,
        what: "Large pieces that the card, or at the last moment the kernel, cuts into packets: `tx-scatter-gather`, \
               `tx-tcp-segmentation`, `tx-generic-segmentation`. On.",
        why: "As `receive_offload`, for sending: the kernel handles one piece of 64 KiB instead of 45 packets. Without \
              scatter-gather it copies each piece once more.",
        source: "the kernel's networking/segmentation-offloads.rst",
        worth: "0.43 million packets a second without, 1.44 with segmentation in software alone (datagrams over a \
               virtual \
                pair); `ropewalk bench packet`",
        sureness: Sureness::Measured,
        look: send_offload,
    },
    Rule {
        name: "checksum_offload",
        group: Group::Card,
        what: "Whether the card computes and checks the checksums of packets (`rx-checksum`, `tx-checksum-*`). On.",
        why: "Otherwise a core reads each byte once more; and the kernel does not put packets together or cut them \
              late whose checksums it has to look at itself.",
        source: "the kernel's networking/checksum-offloads.rst",
        worth: "one pass over all data: at 23 GB/s each GB takes 0.04 s of a core; `ropewalk doctor` shows how fast \
               memory is read",
        sureness: Sureness::Documented,
        look: checksum_offload,
    },
];

fn receive_offload(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    Ok(features(found, wish, &[("rx-gro", "on", Grade::Harmful), ("rx-lro", "off", Grade::CouldBeBetter)]))
}

fn send_offload(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let wanted = ["tx-scatter-gather", "tx-tcp-segmentation", "tx-generic-segmentation"];
    Ok(features(found, wish, &wanted.map(|name| (name, "on", Grade::Harmful))))
}

fn checksum_offload(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let wanted = ["rx-checksum", "tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
    Ok(features(found, wish, &wanted.map(|name| (name, "on", Grade::CouldBeBetter))))
}

/// Features that should be on or off, as far as cards have them. Fixed features are left out.
fn features(found: &Found, wish: &Wish, wanted: &[(&str, &str, Grade)]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (card, report) in found.reports(wish) {
        for &(name, advised, grade) in wanted {
            let property = Property::Feature(name.to_owned());
            seen.extend(report.value(&property).map(|present| {
                if present == advised {
                    Seen::good(subject(card, &property), present)
                } else {
                    wrong(grade, card, &property, present, advised)
                }
            }));
        }
    }
    seen
}

/// Rules on the way from the wire to a queue.
pub(in crate::rules) const FLOWS: &[Rule] = &[
    Rule {
        name: "flow_spread",
        group: Group::Card,
        what: "The table by which a card spreads connections over its queues. Every queue in it that `channels` leaves, each \
               as often as the others.",
        why: "A queue that is not in the table gets nothing, and its core does nothing; one that is in it more often \
              than others is full first.",
        source: "the kernel's networking/scaling.rst, RSS",
        worth: "as much as queues stand idle; no bench of Ropewalk shows it: virtual cards have no such table, and \
               `ethtool -S` counts the packets of each queue",
        sureness: Sureness::Documented,
        look: flow_spread,
    },
    Rule {
        name: "flow_steering",
        group: Group::Card,
        what: "Whether packets come to the core on which their connection is read (`rx-ntuple-filter` of the card, with \
               `net.core.rps_sock_flow_entries`). On where several threads read a card with several queues.",
        why: "Spread by chance, most packets are worked on by a core other than the one that reads them, and cross a \
              cache or a socket on the way. Few connections also fall on the same queue by chance.",
        source: "the kernel's networking/scaling.rst, accelerated RFS",
        worth: "some percent of a reading core, which is a guess; no bench of Ropewalk shows it: virtual cards have \
               no such filters, and the run's own rate before and after does",
        sureness: Sureness::Guess,
        look: flow_steering,
    },
];

fn flow_spread(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |(card, report): (&Card, &CardReport)| {
        if report.spread.is_empty() {
            return None;
        }
        let mut slots: BTreeMap<u32, usize> = BTreeMap::new();
        report.spread.iter().for_each(|&queue| *slots.entry(queue).or_default() += 1);
        let present = number(report, &Property::CombinedChannels).unwrap_or(card.receive_queues as u64) as usize;
        // A queue that is still to come gets its part of the table with it.
        let queues = found.queues_after(card, wish).map_or(present, |after| after.min(present));
        let staying = slots.range(..queues as u32).count();
        let (least, most) = (slots.values().min().copied()?, slots.values().max().copied()?);
        let name = format!("{}: spread over queues", card.name);
        Some(if staying < queues {
            let found = format!("{staying} of {queues} queues get something");
            Seen::better(name, found, format!("all alike: `ethtool -X {} equal {queues}`", card.name))
        } else if most > least * 2 {
            let found = format!("between {least} and {most} of {} slots a queue", report.spread.len());
            Seen::better(name, found, format!("all alike: `ethtool -X {} equal {queues}`", card.name))
        } else {
            Seen::good(name, format!("{} queues alike", slots.len()))
        })
    };
    Ok(found.reports(wish).into_iter().filter_map(one).collect())
}

fn flow_steering(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    /// Connections whose reading CPU the kernel remembers; each takes a few bytes.
    const ENTRIES: i64 = 32768;
    const NAME: &str = "net.core.rps_sock_flow_entries";
    let property = Property::Feature("rx-ntuple-filter".to_owned());
    let mut seen = Vec::new();
    for (card, report) in found.reports(wish) {
        let Some(present) = report.value(&property) else { continue };
        let readers = found.readers_of(card, wish);
        let queues = found.queues_after(card, wish).unwrap_or(1);
        if readers < 2 || queues < 2 {
            seen.push(Seen::good(subject(card, &property), present));
            continue;
        }
        seen.push(match present {
            "on" => Seen::good(subject(card, &property), present),
            _ => wrong(Grade::CouldBeBetter, card, &property, present, "on"),
        });
        let entries = found.sysctl(NAME)?;
        if entries == 0 {
            seen.push(Seen::sysctl(Grade::CouldBeBetter, NAME, entries, ENTRIES));
        }
        let share = (ENTRIES as usize / queues).next_power_of_two().to_string();
        let shares = found.queues(card, "rx", "rps_flow_cnt").into_iter().take(queues);
        let shares = shares.filter(|(_, present)| *present == "0");
        let one = Seen::better(format!("{}: flows that each queue knows", card.name), "0", share.as_str());
        let one = shares.fold(one, |one, (path, present)| {
            one.change(Setting::File { path: path.to_owned(), form: Form::Plain }, present, share.as_str())
        });
        seen.extend((!one.changes.is_empty()).then_some(one));
    }
    Ok(seen)
}

/// Rules on what a card is connected to.
pub(in crate::rules) const LINK: &[Rule] = &[
    Rule {
        name: "mtu",
        group: Group::Card,
        what: "The MTU of an interface that receives data, and of the interfaces below it: 9000 bytes, or the card's \
               maximum, if all machines and switches of that network support it. Ropewalk cannot query a switch: it \
               plans this change only for an interface that `--interface` names.",
        why: "The kernel spends about the same time on a packet of any length. Paper 1 saved 24 % of its CPU time with \
              packets of 4 kB instead of 1.5 kB.",
        source: "paper 1, IV-D, Figs. 7 and 8",
        worth: "16 streams over a virtual pair: 1.1 GB/s at 1500, 2.8 at 4000, 4.6 at 9000 bytes; `ropewalk bench \
               gateway`",
        sureness: Sureness::Measured,
        look: mtu,
    },
    Rule {
        name: "path_mtu",
        group: Group::Card,
        what: "The largest packet that really came to another machine. As large as the interface's own.",
        why: "A switch with a smaller MTU than the machines drops large packets without a word: small messages pass, \
              and the first large one hangs.",
        source: "RFC 4821; ip(7), IP_PMTUDISC_PROBE",
        worth: "whether it works at all; no bench of Ropewalk shows it: it takes a switch that is wrong (RFC 4821), \
               and `ropewalk tune check CONFIG` tries the paths",
        sureness: Sureness::Documented,
        look: path_mtu,
    },
    Rule {
        name: "link",
        group: Group::Card,
        what: "Whether there is a link, in both directions at once, and how fast. Up, full duplex, as fast as the card can have \
               it where its driver tells, more than the configuration has emulators send where it says how much, and 10 Gb/s and \
               more.",
        why: "A bad cable or module makes a card agree on less than it can do, and nothing else tells.",
        source: "the kernel's ABI/testing/sysfs-class-net and networking/ethtool-netlink.rst (LINKMODES_GET)",
        worth: "the factor between the speeds; no bench of Ropewalk shows it: the speeds are those that the driver \
               tells",
        sureness: Sureness::Documented,
        look: link,
    },
    Rule {
        name: "link_errors",
        group: Group::Card,
        what: "Packets that came damaged (`rx_errors`, `rx_crc_errors`, `rx_frame_errors`, `tx_errors`). None.",
        why: "Datagrams that come damaged are lost; connections send again and slow down. The cause is a cable, a \
              module, a dirty fibre: no setting mends it.",
        source: "the kernel's networking/statistics.rst",
        worth: "what is lost, and each lost packet makes a connection slow down; no bench of Ropewalk shows it: the \
               card counts what came damaged",
        sureness: Sureness::Documented,
        look: link_errors,
    },
    Rule {
        name: "drops",
        group: Group::Card,
        what: "Packets that the card dropped because they were not read in time (`rx_missed_errors`, `rx_fifo_errors`, \
               `rx_over_errors`), or that the kernel did (`rx_dropped`). None, but for packets that no program here wanted.",
        why: "They are lost between the wire and the program. Longer rings (`receive_ring`), more queues (`channels`) \
              and interrupts on cores of their own (`interrupt_node`, `interrupt_spread`) help.",
        source: "paper 2, IV and V; the kernel's networking/statistics.rst",
        worth: "what is lost; no bench of Ropewalk shows it: card and kernel count what they dropped",
        sureness: Sureness::Documented,
        look: drops,
    },
    Rule {
        name: "xdp",
        group: Group::Card,
        what: "What the driver can do with programs that see packets first (XDP). For a configuration with packet rings: \
               `redirect`, and at best `xsk-zerocopy`.",
        why: "With zero copy the card writes into the reader's memory; without it the kernel copies each packet; \
              without `redirect` it makes its own packet first, which costs most of what is to be saved.",
        source: "the kernel's networking/af_xdp.rst; Documentation/netlink/specs/netdev.yaml",
        worth: "receiving by rings that are mapped, against datagram sockets: `ropewalk bench packet`",
        sureness: Sureness::Documented,
        look: xdp,
    },
    Rule {
        name: "pcie",
        group: Group::Card,
        what: "What the slot carries (speed and lanes) against what the link brings. More than the link, and as much as \
               the card can do.",
        why: "A card in a slot of fewer lanes, or that agreed on a lower speed, loses packets whenever the link is full, \
              and reports a full link speed all the same.",
        source: "paper 1, II-B, on buses as the limit; PCI Express Base Specification, 2.5 to 64 GT/s and line codes",
        worth: "the factor between slot and link; no bench of Ropewalk shows it: the speed is transfers times lanes \
               without the line code (PCI Express Base Specification)",
        sureness: Sureness::Documented,
        look: pcie,
    },
];

fn mtu(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const LARGE: u32 = 9000;
    let machine = &found.machine;
    let feeding = wish.feeding.iter().filter_map(|feeding| machine.card(&feeding.interface));
    let feeding: Vec<Vec<&Card>> =
        feeding.filter(|card| !machine.hardware_of(card).is_empty()).map(|card| machine.made_of(card)).collect();
    let mut cards = found.hardware(wish);
    for &card in feeding.iter().flatten() {
        if !cards.iter().any(|other| other.name == card.name) {
            cards.push(card);
        }
    }
    let one = |card: &Card| {
        let (name, present) = (format!("{}: MTU", card.name), card.mtu?);
        let hardware = machine.hardware_of(card);
        let most = hardware.iter().filter_map(|card| found.cards.get(&card.name)?.most_mtu).min();
        let large = most.map_or(LARGE, |most| most.min(LARGE));
        let above: Vec<_> = feeding.iter().filter(|made| made.iter().any(|other| other.name == card.name)).collect();
        if present >= large {
            return Some(Seen::good(name, present.to_string()));
        }
        if above.is_empty() {
            return Some(Seen::told(name, present.to_string(), format!("{large}, if data comes through it")));
        }
        let advised = format!("{large}, where all of this network has it");
        // A switch with a smaller MTU drops large packets silently: the user has to confirm that it has not.
        let is_named = above.iter().any(|made| made.iter().any(|card| wish.interfaces.contains(&card.name)));
        Some(if is_named {
            let setting = Setting::Mtu { interface: card.name.clone() };
            Seen::better(name, present.to_string(), advised).change(setting, present.to_string(), large.to_string())
        } else {
            Seen::better(name, present.to_string(), format!("{advised}: planned with `--interface {}`", card.name))
        })
    };
    Ok(cards.into_iter().filter_map(one).collect())
}

fn path_mtu(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |path: &crate::found::PathMtu| {
        let own = found.machine.card(&path.interface)?.mtu?;
        let name = format!("{}: path to {}", path.interface, path.address);
        Some(if path.bytes >= own {
            Seen::good(name, format!("{} bytes", path.bytes))
        } else {
            let advised =
                format!("find who on the way carries less than {own}, or set the interface to {}", path.bytes);
            Seen::harmful(name, format!("{} bytes at most, of {own}", path.bytes), advised)
        })
    };
    Ok(found.probed.paths.iter().filter_map(one).collect())
}

/// A speed as it stands on cards.
fn gigabits(megabits: u32) -> String {
    format!("{} Gb/s", f64::from(megabits) / 1000.0)
}

/// The rate through a card in Mb/s, if the configuration determines it; for a card of a bond its share.
fn megabits_through(found: &Found, wish: &Wish, card: &Card) -> u64 {
    let share = |feeding: &crate::Feeding| {
        let behind = found.machine.hardware_of(found.machine.card(&feeding.interface)?);
        let is_behind = behind.iter().any(|one| one.name == card.name);
        Some(feeding.bytes_per_second.filter(|_| is_behind)? / behind.len() as u64)
    };
    wish.feeding.iter().filter_map(share).fold(0, u64::saturating_add) / 125_000
}

/// What a link that is up lacks.
fn speed(found: &Found, wish: &Wish, card: &Card, megabits: u32) -> Seen {
    const FAST: u32 = 10_000;
    let (name, told) = (format!("{}: link", card.name), gigabits(megabits));
    let report = found.cards.get(&card.name);
    let most = report.and_then(|report| report.most_megabits).filter(|&most| most > megabits);
    let offered = report.and_then(|report| report.offered_megabits);
    let better = most.map(|most| match offered {
        Some(offered) if offered < most => {
            let (most, offered, name) = (gigabits(most), gigabits(offered), &card.name);
            format!("{most}, which the card can do: it offers no more than {offered}, see `ethtool {name}`")
        }
        _ => format!("{}, which the card can do: see to cable, module and port of the switch", gigabits(most)),
    });
    let needed = megabits_through(found, wish, card);
    if needed > u64::from(megabits) {
        let needed = gigabits(u32::try_from(needed).unwrap_or(u32::MAX));
        let advised = better.unwrap_or_else(|| "a faster card, or less through it".to_owned());
        Seen::harmful(name, format!("{told}, of {needed} that the configuration has come through it"), advised)
    } else if let Some(advised) = better {
        Seen::better(name, told, advised)
    } else if megabits < FAST {
        Seen::better(name, told, "10 Gb/s and more: another card, cable or port of the switch")
    } else {
        Seen::good(name, told)
    }
}

fn link(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |card: &Card| {
        let name = format!("{}: link", card.name);
        let duplex = found.text(&format!("sys/class/net/{}/duplex", card.name)).unwrap_or_default();
        match (card.is_up, duplex, card.megabits_per_second) {
            (false, ..) => Seen::harmful(name, "down", "bring it up, and see to cable and module"),
            (true, "half", _) => {
                Seen::harmful(name, "one direction at a time", "full duplex: see to the switch's settings")
            }
            (true, _, Some(megabits)) => speed(found, wish, card, megabits),
            (true, _, None) => Seen::good(name, "up; its speed is not told"),
        }
    };
    Ok(found.hardware(wish).into_iter().map(one).collect())
}

/// The sum of some counters of an interface, and which of them count.
fn counters(found: &Found, card: &Card, names: &[&str]) -> (u64, String) {
    let value = |name: &str| found.number(&format!("sys/class/net/{}/statistics/{name}", card.name)).unwrap_or(0);
    let counting: Vec<(&str, u64)> = names.iter().map(|&name| (name, value(name))).filter(|(_, n)| *n > 0).collect();
    let text = counting.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ");
    (counting.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)), text)
}

fn link_errors(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |card: &Card| {
        let names = ["rx_errors", "rx_crc_errors", "rx_frame_errors", "rx_length_errors", "tx_errors"];
        let (errors, text) = counters(found, card, &names);
        let packets = found.number(&format!("sys/class/net/{}/statistics/rx_packets", card.name))?;
        let name = format!("{}: damaged packets", card.name);
        let advised = "another cable or module; see `ethtool -S` for the card's own words";
        Some(match errors {
            0 => Seen::good(name, format!("none of {packets}")),
            // One in ten million is what a good cable may have.
            _ if errors > packets / 10_000_000 => Seen::harmful(name, format!("{text} of {packets}"), advised),
            _ => Seen::better(name, format!("{text} of {packets}"), advised),
        })
    };
    Ok(found.hardware(wish).into_iter().filter_map(one).collect())
}

fn drops(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |card: &Card| {
        let (missed, text) = counters(found, card, &["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"]);
        let (dropped, also) = counters(found, card, &["rx_dropped"]);
        let packets = found.number(&format!("sys/class/net/{}/statistics/rx_packets", card.name))?;
        let name = format!("{}: dropped packets", card.name);
        let advised = "see `receive_ring`, `channels` and the interrupts";
        Some(if missed > packets / 1_000_000 {
            Seen::harmful(name, format!("{text} of {packets}"), advised)
        } else if missed > 0 {
            Seen::better(name, format!("{text} of {packets}"), advised)
        } else if dropped > packets / 1000 {
            Seen::told(name, format!("{also} of {packets}"), "see whether they are packets that no program here wanted")
        } else {
            Seen::good(name, format!("none of {packets} that mattered"))
        })
    };
    Ok(found.hardware(wish).into_iter().filter_map(one).collect())
}

fn xdp(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |(card, report): (&Card, &CardReport)| {
        let name = format!("{}: driver", card.name);
        let driver = card.driver.as_deref().unwrap_or("not known");
        let has = |what: &str| report.xdp.iter().any(|feature| feature == what);
        let can = if report.xdp.is_empty() { "no XDP".to_owned() } else { report.xdp.join(", ") };
        let found = format!("{driver}: {can}");
        if !wish.has(Transport::Rings) || has("xsk-zerocopy") {
            Seen::good(name, found)
        } else if has("redirect") {
            Seen::better(name, found, "a card whose driver has zero copy")
        } else {
            Seen::harmful(name, found, "a card whose driver has XDP, or `receive = \"tpacket\"`, which needs none")
        }
    };
    Ok(found.reports(wish).into_iter().map(one).collect())
}

/// Speed of a slot in millions of payload bits a second: transfers of each lane times lanes, without the line code.
fn slot_megabits(speed: &str, width: &str) -> Option<u64> {
    let transfers: f64 = speed.split_ascii_whitespace().next()?.parse().ok()?;
    let lanes: u64 = width.trim_start_matches('x').parse().ok()?;
    // 8b/10b up to 5 GT/s, 128b/130b above; headers of packets take about an eighth of the rest.
    let code = if transfers <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    Some((transfers * code * 875.0) as u64 * lanes)
}

fn pcie(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |card: &Card| {
        let file = |name: &str| found.text(&format!("sys/class/net/{}/device/{name}", card.name));
        let (speed, width) = (file("current_link_speed")?, file("current_link_width")?);
        let carries = slot_megabits(speed, width)?;
        let name = format!("{}: slot", card.name);
        let text = format!("{speed}, {width} lanes: {} Gb/s", carries / 1000);
        let most = file("max_link_speed").zip(file("max_link_width"));
        let most = most.and_then(|(speed, width)| slot_megabits(speed, width));
        Some(if card.megabits_per_second.is_some_and(|link| carries < u64::from(link)) {
            Seen::harmful(name, text, "a slot with as many lanes and as fast as the card")
        } else if most.is_some_and(|most| carries < most) {
            Seen::better(name, text, "the card can do more: see whether it sits well, and which lanes the slot has")
        } else {
            Seen::good(name, text)
        })
    };
    Ok(found.hardware(wish).into_iter().filter_map(one).collect())
}
