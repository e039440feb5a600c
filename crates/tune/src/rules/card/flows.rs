//! Which queue a packet comes to.

use std::collections::BTreeMap;

use super::*;

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
    /// Connections that the kernel remembers where they are read; each takes a few bytes.
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
