//! Sockets and protocols: how much memory sockets may take, what TCP does, where packets wait between card and socket,
//! and what is done to each of them there.

use ropewalk_host::Capability;

use super::{Rule, Seen, bytes};
use crate::found::{Found, Unread};
use crate::{Grade, Group, Sureness, Transport, Wish};

/// Rules on socket buffers.
pub(in crate::rules) const BUFFERS: &[Rule] = &[
    Rule {
        name: "receive_buffer",
        group: Group::Network,
        what: "`net.core.rmem_max`, the largest receive buffer that a program may ask for. At least what the \
               configuration asks for; otherwise 5 ms of the fastest link, and 4 MiB where that is less.",
        why: "What comes while the reading thread is busy waits in the socket's buffer: datagrams that find no room \
              are lost. TCP's own growing of buffers is not bound by it, only programs that ask are, and \
              not those with CAP_NET_ADMIN.",
        source: "paper 1, IV-E; paper 3, Fig. 8; the kernel's admin-guide/sysctl/net.rst",
        worth: "how long a pause without loss may last: 4 MiB is 3 ms at 10 Gb/s; `ropewalk bench gateway` shows the \
                loss",
        sureness: Sureness::Documented,
        look: receive_buffer,
    },
    Rule {
        name: "send_buffer",
        group: Group::Network,
        what: "`net.core.wmem_max`, the largest send buffer that a program may ask for. 5 ms of the fastest link, and 4 \
               MiB where that is less.",
        why: "Datagrams are sent in bursts, one set of events after the other; a burst that does not fit makes the \
              sender wait for the card.",
        source: "paper 3, Fig. 8; the kernel's admin-guide/sysctl/net.rst",
        worth: "fewer waits of senders; `ropewalk bench packet` shows the rate",
        sureness: Sureness::Documented,
        look: send_buffer,
    },
    Rule {
        name: "tcp_receive_window",
        group: Group::Network,
        what: "The last number of `net.ipv4.tcp_rmem`, up to which TCP lets a connection's receive buffer grow. Twice \
               what the fastest link brings in 1 ms, or what the configuration asks for where that is more.",
        why: "A connection moves at most one window in each round trip, and half of the buffer is bookkeeping. The 100 \
              MB of paper 3 were for all cases at once: within a hall the round trip is well below 1 ms, and windows \
              beyond what is needed only fill caches and the kernel's memory.",
        source: "paper 3, IV-A and Fig. 8; the kernel's networking/ip-sysctl.rst",
        worth: "up to a factor where the window is too small; `ropewalk bench tcpla` shows the rate over loopback",
        sureness: Sureness::Documented,
        look: tcp_receive_window,
    },
    Rule {
        name: "tcp_send_window",
        group: Group::Network,
        what: "The last number of `net.ipv4.tcp_wmem`, up to which TCP lets a connection's send buffer grow. Twice what \
               the fastest link takes in 1 ms.",
        why: "What was sent and is not yet acknowledged stays in the send buffer: it bounds what is under way.",
        source: "paper 3, IV-A and Fig. 8; the kernel's networking/ip-sysctl.rst",
        worth: "as for `tcp_receive_window`; `ropewalk bench tcpla` shows the rate over loopback",
        sureness: Sureness::Documented,
        look: tcp_send_window,
    },
    Rule {
        name: "tcp_memory",
        group: Group::Network,
        what: "`net.ipv4.tcp_mem`, the pages that all connections together may take. Enough for all streams of the \
               configuration with 1 ms of the link each, and no more than a quarter of the memory.",
        why: "Beyond the second number the kernel shrinks windows, and beyond the third it drops packets, however \
              large the buffers of single sockets are.",
        source: "the kernel's networking/ip-sysctl.rst",
        worth: "no sudden fall with many streams; no bench of Ropewalk shows it: the bounds are the kernel's own \
               (networking/ip-sysctl.rst, tcp_mem)",
        sureness: Sureness::Documented,
        look: tcp_memory,
    },
    Rule {
        name: "udp_memory",
        group: Group::Network,
        what: "`net.ipv4.udp_mem`, the pages that all sockets for datagrams together may take. Enough for the buffers \
               of the configuration, which the kernel counts twice, and no more than a quarter of the memory.",
        why: "Beyond the third number datagrams are dropped, although their own sockets have room.",
        source: "the kernel's networking/ip-sysctl.rst",
        worth: "no loss by a limit that is easily overlooked; no bench of Ropewalk shows it: the bounds are the \
               kernel's own (networking/ip-sysctl.rst, udp_mem)",
        sureness: Sureness::Documented,
        look: udp_memory,
    },
];

/// What no buffer should be smaller than, in bytes.
const LEAST_BUFFER: u64 = 4 << 20;
/// The size of the pages in which `tcp_mem` and `udp_mem` count, in bytes, if it was not recorded.
const USUAL_PAGE: u64 = 4096;
/// Windows beyond this many bytes are remarked upon.
const LARGE_WINDOW: u64 = 64 << 20;

/// 5 ms of the fastest link, in bytes.
fn burst(found: &Found, wish: &Wish) -> u64 {
    found.bytes_per_second(wish).map_or(LEAST_BUFFER, |rate| (rate / 200).next_power_of_two()).max(LEAST_BUFFER)
}

/// Twice what the fastest link brings in 1 ms, in bytes.
fn window(found: &Found, wish: &Wish) -> u64 {
    found.bytes_per_second(wish).map_or(LEAST_BUFFER, |rate| rate / 500)
}

fn is_datagrams(transport: Transport) -> bool {
    transport == Transport::Datagrams
}

fn is_tcp(transport: Transport) -> bool {
    transport == Transport::Tcp
}

fn receive_buffer(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "net.core.rmem_max";
    let present = found.sysctl(NAME)?.max(0) as u64;
    let asked = wish.most_receive_buffer(|_| true);
    let needed = asked.unwrap_or_else(|| burst(found, wish));
    if present >= needed {
        return Ok(vec![Seen::good(NAME, present.to_string())]);
    }
    // A datagram socket that gets less room than it asks for loses datagrams; a stream only waits. CAP_NET_ADMIN gets
    // all of it.
    let asks_more = wish.most_receive_buffer(is_datagrams).is_some_and(|asked| asked > present);
    let loses = asks_more && found.machine.rights.lacks(Capability::NetAdmin);
    let grade = if loses { Grade::Harmful } else { Grade::CouldBeBetter };
    Ok(vec![Seen::sysctl(grade, NAME, present, needed)])
}

fn send_buffer(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "net.core.wmem_max";
    let (present, needed) = (found.sysctl(NAME)?.max(0) as u64, burst(found, wish));
    Ok(vec![if present >= needed {
        Seen::good(NAME, present.to_string())
    } else {
        Seen::sysctl(Grade::CouldBeBetter, NAME, present, needed)
    }])
}

fn tcp_receive_window(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let asked = wish.most_receive_buffer(is_tcp).unwrap_or(0);
    largest_window(found, "net.ipv4.tcp_rmem", window(found, wish).max(asked))
}

fn tcp_send_window(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    largest_window(found, "net.ipv4.tcp_wmem", window(found, wish))
}

/// The three numbers of a kind of buffer of TCP, of which the last has to be at least `needed` bytes.
fn largest_window(found: &Found, name: &str, needed: u64) -> Result<Vec<Seen>, Unread> {
    let [least, usual, most] = found.sysctl_three(name)?;
    let text = |most: u64| format!("{least} {usual} {most}");
    Ok(vec![if most < needed {
        let advised = needed.next_power_of_two().max(LEAST_BUFFER);
        Seen::sysctl(Grade::CouldBeBetter, name, text(most), text(advised))
    } else if most > LARGE_WINDOW && most / 4 > needed {
        let advised = format!("no more than each connection needs: {} at this link's speed", bytes(needed));
        Seen::told(name, text(most), advised)
    } else {
        Seen::good(name, text(most))
    }])
}

fn tcp_memory(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "net.ipv4.tcp_mem";
    let each = window(found, wish).max(wish.most_receive_buffer(is_tcp).unwrap_or(0));
    let needed = wish.streams(is_tcp).saturating_mul(each);
    pages(found, NAME, needed, Grade::CouldBeBetter)
}

fn udp_memory(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "net.ipv4.udp_mem";
    let each = wish.most_receive_buffer(is_datagrams).unwrap_or(LEAST_BUFFER);
    let needed = wish.streams(is_datagrams).saturating_mul(each).saturating_mul(2);
    pages(found, NAME, needed, Grade::Harmful)
}

/// Three numbers of pages, of which the middle one has to hold this many bytes, or a quarter of the memory.
fn pages(found: &Found, name: &str, needed_bytes: u64, grade: Grade) -> Result<Vec<Seen>, Unread> {
    let [low, pressure, high] = found.sysctl_three(name)?;
    let memory = found.memory_bytes().ok_or_else(|| Unread("/proc/meminfo".to_owned()))?;
    let page = found.probed.page_bytes.unwrap_or(USUAL_PAGE).max(1);
    let (told, needed) = (format!("{low} {pressure} {high}"), needed_bytes.min(memory / 4).div_ceil(page));
    Ok(vec![if pressure >= needed {
        Seen::good(name, told)
    } else {
        let advised = format!("{} {needed} {}", low.max(needed / 4 * 3), high.max(needed.saturating_mul(3) / 2));
        Seen::sysctl(grade, name, told, advised)
    }])
}

/// Rules on TCP.
pub(in crate::rules) const PROTOCOL: &[Rule] = &[
    Rule {
        name: "congestion_control",
        group: Group::Network,
        what: "The congestion control of TCP, `net.ipv4.tcp_congestion_control`: `cubic` instead of `bbr`.",
        why: "bbr paces each connection with a timer and estimates the bandwidth of the path, which helps on long and \
              lossy paths. Inside a hall, and over loopback, its timers cost more than sending.",
        source: "measured with Ropewalk; paper 3 does not change the default of its kernel",
        worth: "16 streams over loopback, without TCP_NODELAY: 0.86 GB/s with bbr against 1.8 with cubic where each \
               send has \
                2 KiB, 4.1 against 7.7 where it has 64 KiB; `ropewalk bench tcpla --case untuned` has one stream",
        sureness: Sureness::Measured,
        look: congestion_control,
    },
    Rule {
        name: "tcp_timestamps",
        group: Group::Network,
        what: "`net.ipv4.tcp_timestamps`, whether packets of TCP carry a time. On.",
        why: "Paper 3 turned it off to save CPU time. At 100 Gb/s the sequence numbers of TCP come round within 0.35 s, \
              and it is by their times that old packets are distinguished from new ones (PAWS, RFC 7323), and that \
              round trips are measured when something was lost; reading the clock costs next to nothing now.",
        source: "paper 3, Fig. 8, which no longer holds; RFC 7323, section 5; the kernel's networking/ip-sysctl.rst",
        worth: "12 bytes of each packet, for protection against data of an earlier round; `ropewalk bench tcpla` \
               shows what they cost over loopback",
        sureness: Sureness::Documented,
        look: tcp_timestamps,
    },
    Rule {
        name: "tcp_sack",
        group: Group::Network,
        what: "`net.ipv4.tcp_sack`, whether the receiver says what it has behind a gap. On.",
        why: "Without it one lost packet makes the sender send again what has long arrived: a whole window.",
        source: "paper 3, Fig. 8, which still holds; RFC 2018",
        worth: "most of the speed as soon as a packet is lost; no bench of Ropewalk shows it: over loopback none is \
               (RFC 2018, section 1, says what follows)",
        sureness: Sureness::Documented,
        look: tcp_sack,
    },
    Rule {
        name: "window_scaling",
        group: Group::Network,
        what: "`net.ipv4.tcp_window_scaling`, whether windows may be larger than 64 KiB. On.",
        why: "64 KiB in each round trip of 0.1 ms are 0.65 GB/s at most, with buffers of any size.",
        source: "RFC 7323, section 2; the kernel's networking/ip-sysctl.rst",
        worth: "most of the speed of a fast link; `ropewalk bench tcpla` shows a part of it over loopback, where \
               round trips are short",
        sureness: Sureness::Documented,
        look: window_scaling,
    },
    Rule {
        name: "tcp_metrics",
        group: Group::Network,
        what: "`net.ipv4.tcp_no_metrics_save`, which forbids to keep what was learned of a path for the next connection. \
               1.",
        why: "Values that were learned while the network was disturbed slow the next run down. Paper 3 writes 0 beneath the comment \"disable \
              caching\", which contradicts itself: 0 keeps the cache, 1 disables it.",
        source: "paper 3, Fig. 8, whose comment is right and whose value is not; the kernel's networking/ip-sysctl.rst",
        worth: "runs that begin alike; no bench of Ropewalk shows it: it takes a path that was disturbed \
               (networking/ip-sysctl.rst)",
        sureness: Sureness::Documented,
        look: tcp_metrics,
    },
    Rule {
        name: "slow_start_after_idle",
        group: Group::Network,
        what: "`net.ipv4.tcp_slow_start_after_idle`, whether a connection that was silent begins slowly again. 0.",
        why: "Fragments come in bursts with pauses between them; each pause longer than a time-out (200 ms) would make \
              a connection begin with ten packets again.",
        source: "the kernel's networking/ip-sysctl.rst",
        worth: "a few round trips after each pause between triggers, spills or runs; no bench of Ropewalk shows it: \
               it follows from the ten packets of RFC 6928 and the doubling in each round trip",
        sureness: Sureness::Documented,
        look: slow_start_after_idle,
    },
    Rule {
        name: "mtu_probing",
        group: Group::Network,
        what: "`net.ipv4.tcp_mtu_probing`, whether TCP tries smaller packets where large ones vanish. 1 where an \
               interface has a larger MTU than 1500, or is advised to (`mtu`).",
        why: "A switch that does not carry large packets drops them without a word: connections are opened and then \
              hang. With 1 TCP finds out after a few lost packets and goes on.",
        source: "RFC 4821; the kernel's networking/ip-sysctl.rst",
        worth: "nothing while all switches are right, and otherwise whether it works at all; no bench of Ropewalk \
               shows it: it takes a switch that is wrong (RFC 4821)",
        sureness: Sureness::Documented,
        look: mtu_probing,
    },
];

fn congestion_control(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const NAME: &str = "net.ipv4.tcp_congestion_control";
    let present = found.sysctl_text(NAME)?;
    if !present.starts_with("bbr") {
        return Ok(vec![Seen::good(NAME, present)]);
    }
    let available = found.sysctl_text("net.ipv4.tcp_available_congestion_control")?;
    Ok(vec![if available.split_ascii_whitespace().any(|name| name == "cubic") {
        Seen::sysctl(Grade::Harmful, NAME, present, "cubic")
    } else {
        Seen::better(NAME, present, "cubic, which this kernel has to load first (`modprobe tcp_cubic`)")
    }])
}

fn tcp_timestamps(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    /// From here on numbers come round faster than a packet's longest life in any switch.
    const FAST: u64 = 100_000 * 125_000;
    let is_fast = found.bytes_per_second(wish).is_some_and(|rate| rate >= FAST);
    switch(
        found,
        "net.ipv4.tcp_timestamps",
        |value| value != 0,
        1,
        if is_fast { Grade::Harmful } else { Grade::CouldBeBetter },
    )
}

fn tcp_sack(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    switch(found, "net.ipv4.tcp_sack", |value| value != 0, 1, Grade::Harmful)
}

fn window_scaling(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    switch(found, "net.ipv4.tcp_window_scaling", |value| value != 0, 1, Grade::Harmful)
}

fn tcp_metrics(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    switch(found, "net.ipv4.tcp_no_metrics_save", |value| value == 1, 1, Grade::CouldBeBetter)
}

fn slow_start_after_idle(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    switch(found, "net.ipv4.tcp_slow_start_after_idle", |value| value == 0, 0, Grade::CouldBeBetter)
}

fn mtu_probing(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    // Interfaces that feed are advised to have larger packets (`mtu`).
    let has_large = found
        .hardware(wish)
        .iter()
        .any(|card| found.readers_of(card, wish) > 0 || card.mtu.is_some_and(|mtu| mtu > 1500));
    switch(found, "net.ipv4.tcp_mtu_probing", |value| value != 0 || !has_large, 1, Grade::CouldBeBetter)
}

/// A number that is good or not; if not, it gets this grade and another value.
fn switch(
    found: &Found,
    name: &str,
    is_good: impl Fn(i64) -> bool,
    advised: i64,
    grade: Grade,
) -> Result<Vec<Seen>, Unread> {
    let present = found.sysctl(name)?;
    Ok(vec![if is_good(present) {
        Seen::good(name, present.to_string())
    } else {
        Seen::sysctl(grade, name, present, advised)
    }])
}

/// Rules on the path from the card to the socket.
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
               sleeps. 0 for all; a program that wants it sets it on its own sockets.",
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
    // One in ten thousand packets has no visible effect.
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
