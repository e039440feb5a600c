//! Cable, slot, packets that came to harm, and what the driver can do at all.

use super::*;

/// Rules on what a card is connected to.
pub(in crate::rules) const LINK: &[Rule] = &[
    Rule {
        name: "mtu",
        group: Group::Card,
        what: "The largest packet of an interface that data comes through, and of what it is made of. 9000 bytes, or as \
               many as the card can have, where all machines and switches of that network have it. Nobody can ask a switch: \
               it is planned where `--interface` names one that feeds.",
        why: "Every packet costs the same, however long it is. Paper 1 saved 24 % of its CPU time with 4 kB in the \
              place of 1.5 kB.",
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
        what: "Packets that the card dropped because nobody took them (`rx_missed_errors`, `rx_fifo_errors`, \
               `rx_over_errors`) or the kernel did (`rx_dropped`). None, but for what nobody here wanted to have.",
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
        // A switch that has less drops large packets without a word: somebody has to know it, and to say so.
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

/// What comes through a card in millions of bits a second, where the configuration says it; of what a bond brings its share.
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
            Seen::told(name, format!("{also} of {packets}"), "see whether they are packets that nobody here wanted")
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
    // 8b/10b up to 5 GT/s, 128b/130b behind; headers of packets take about an eighth of what is left.
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
