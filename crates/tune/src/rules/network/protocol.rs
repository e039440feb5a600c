//! What TCP does.

use super::*;

/// Rules on TCP.
pub(in crate::rules) const PROTOCOL: &[Rule] = &[
    Rule {
        name: "congestion_control",
        group: Group::Network,
        what: "`net.ipv4.tcp_congestion_control`, by which TCP decides how fast to send. `cubic` in the place of `bbr`.",
        why: "bbr paces every connection by a timer and guesses the path's speed, which is worth much over long and \
              lossy ways. Within a hall, and over loopback, the timers cost more than the sending.",
        source: "paper 3 has its time's usual one; measured with Ropewalk",
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
              and it is by their times that old packets are told from new ones (PAWS, RFC 7323), and that round trips \
              are measured when something was lost; reading the clock costs next to nothing now.",
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
        why: "64 KiB in each round trip of 0.1 ms are 0.65 GB/s at most, whatever the buffers.",
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
        why: "What was learned in a bad moment slows the next run down. Paper 3 writes 0 beneath the comment \"disable \
              caching\", which contradicts itself: 0 keeps the cache, 1 disables it.",
        source: "paper 3, Fig. 8, whose comment is right and whose value is not; the kernel's networking/ip-sysctl.rst",
        worth: "runs that begin alike; no bench of Ropewalk shows it: it takes a path that had a bad moment \
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

/// A number that is good or not; where it is not, it gets this grade and another value.
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
