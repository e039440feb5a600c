//! Where packets wait between card and socket, and what is done to each of them there.

use super::*;

/// Rules on what lies between card and socket.
pub(in crate::rules) const QUEUES: &[Rule] = &[
    Rule {
        name: "backlog",
        group: Group::Network,
        what: "`net.core.netdev_max_backlog`, how many packets may wait on each CPU on their way from loopback, pairs of \
               virtual cards, tunnels, and from the cores that share work by `packet_steering`. 16384 where something \
               was dropped there, or where data comes that way.",
        why: "Paper 3 set 250000 for its card. Cards of today hand packets over from their own rings (NAPI), where \
              `receive_ring` counts, so that this queue matters only for what comes the other ways; 250000 large \
              packets would be 2 GB for each CPU.",
        source: "paper 3, Fig. 8, which holds no longer for cards; the kernel's admin-guide/sysctl/net.rst; drops: second \
                 column of /proc/net/softnet_stat",
        worth: "no loss on those ways; `ropewalk bench packet` shows it over a virtual pair",
        sureness: Sureness::Documented,
        look: backlog,
    },
    Rule {
        name: "receive_budget",
        group: Group::Network,
        what: "`net.core.netdev_budget` and `netdev_budget_usecs`, how many packets and for how long a CPU takes from cards \
               before it does something else. Twice the usual ones (600, 4000) where it often had to stop with work \
               left.",
        why: "What is left stays in the card's ring, which may run over. More makes those wait longer who read on the \
              same CPU, so it is advised only where the kernel says that it ran short.",
        source: "the kernel's admin-guide/sysctl/net.rst; third column of /proc/net/softnet_stat",
        worth: "fewer packets that the card drops; no bench of Ropewalk shows it: the kernel counts how often it ran \
               short (third column of /proc/net/softnet_stat)",
        sureness: Sureness::Guess,
        look: receive_budget,
    },
    Rule {
        name: "busy_poll",
        group: Group::Network,
        what: "`net.core.busy_poll` and `net.core.busy_read`, how long every reader of a socket asks the card before it \
               sleeps. 0 for all; whoever wants it asks for it at its own socket.",
        why: "Ropewalk's threads look again for a while before they sleep as it is. For all sockets of the machine it \
              takes CPU time from threads that build events, and the time is spent in the kernel, where nothing else \
              is looked after.",
        source: "the kernel's admin-guide/sysctl/net.rst",
        worth: "CPU time of every thread that waits; measure with `ropewalk bench gateway`",
        sureness: Sureness::Guess,
        look: busy_poll,
    },
    Rule {
        name: "packet_timestamps",
        group: Group::Network,
        what: "Processes that have the kernel note the time of each packet (`SO_TIMESTAMP`, `SO_TIMESTAMPNS`, \
               `SO_TIMESTAMPING`). None while data is taken.",
        why: "The time is taken before the kernel knows whose packet it is: as long as one process wants it, every \
              packet of the machine gets one. Paper 1 found it near the top of its profiles.",
        source: "paper 1, IV-E, Figs. 9 and 10; net/core/dev.c, `netstamp_needed_key`",
        worth: "a clock read for each packet: 25 ns where the clock is good, 1 us and more where it is not (see \
               `clock_source`); `ropewalk bench gateway --case effect=timestamp`",
        sureness: Sureness::Documented,
        look: packet_timestamps,
    },
];

/// Columns of /proc/net/softnet_stat, added up over the CPUs.
#[derive(Default)]
struct Softnet {
    taken: u64,
    dropped: u64,
    squeezed: u64,
}

fn softnet(found: &Found) -> Result<Softnet, Unread> {
    const PATH: &str = "proc/net/softnet_stat";
    let mut sum = Softnet::default();
    for line in found.must(PATH)?.lines() {
        let columns: Vec<u64> =
            line.split_ascii_whitespace().filter_map(|column| u64::from_str_radix(column, 16).ok()).collect();
        let [taken, dropped, squeezed, ..] = columns[..] else { return Err(Unread(format!("/{PATH}"))) };
        sum.taken = sum.taken.saturating_add(taken);
        sum.dropped = sum.dropped.saturating_add(dropped);
        sum.squeezed = sum.squeezed.saturating_add(squeezed);
    }
    Ok(sum)
}

fn backlog(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "net.core.netdev_max_backlog";
    const NEEDED: i64 = 16384;
    let (present, softnet) = (found.sysctl(NAME)?, softnet(found)?);
    Ok(vec![if present >= NEEDED || softnet.dropped == 0 && !found.is_fed_by_itself(wish) {
        Seen::good(NAME, present.to_string())
    } else if softnet.dropped == 0 {
        Seen::sysctl(Grade::CouldBeBetter, NAME, present, NEEDED)
    } else {
        let mut seen = Seen::sysctl(Grade::Harmful, NAME, present, NEEDED);
        seen.found = format!("{present}; {} packets were dropped for want of room", softnet.dropped);
        seen
    }])
}

fn receive_budget(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const WANTED: [(&str, i64); 2] = [("net.core.netdev_budget", 600), ("net.core.netdev_budget_usecs", 4000)];
    let softnet = softnet(found)?;
    // Once in ten thousand packets is nothing that anybody would notice.
    let is_short = softnet.squeezed > softnet.taken / 10_000;
    let mut seen = Vec::new();
    for (name, wanted) in WANTED {
        let present = found.sysctl(name)?;
        seen.push(if is_short && present < wanted {
            let mut one = Seen::sysctl(Grade::CouldBeBetter, name, present, wanted);
            one.found = format!("{present}; {} times work was left over", softnet.squeezed);
            one
        } else {
            Seen::good(name, present.to_string())
        });
    }
    Ok(seen)
}

fn busy_poll(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    let one = |name: &str| {
        Ok(match found.sysctl(name)? {
            0 => Seen::good(name, "0"),
            present => Seen::sysctl(Grade::CouldBeBetter, name, present, 0),
        })
    };
    ["net.core.busy_poll", "net.core.busy_read"].into_iter().map(one).collect()
}

fn packet_timestamps(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "times of packets";
    let processes = &found.probed.stamping;
    if processes.is_empty() && found.probed.unseen_processes > 0 {
        let unseen = format!("{} processes could not be looked at", found.probed.unseen_processes);
        return Ok(vec![Seen::told(SUBJECT, unseen, "look again with CAP_SYS_PTRACE: `sudo ropewalk tune check`")]);
    }
    if processes.is_empty() {
        return Ok(vec![Seen::good(SUBJECT, "no process that could be looked at asks for them")]);
    }
    let one = |process: &crate::found::Stamping| {
        let asks = format!("process {} ({}) asks for them with {}", process.process, process.name, process.option);
        Seen::better(SUBJECT, asks, "end it while data is taken, or have it do without")
    };
    Ok(processes.iter().map(one).collect())
}
