//! How much memory sockets may take.

use ropewalk_host::Capability;

use super::*;

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
        why: "Beyond the second number the kernel shrinks windows, and beyond the third it drops what comes, whatever \
              the buffers of single sockets may be.",
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
        worth: "no loss by a bound that nobody looks at; no bench of Ropewalk shows it: the bounds are the kernel's \
               own (networking/ip-sysctl.rst, udp_mem)",
        sureness: Sureness::Documented,
        look: udp_memory,
    },
];

/// What no buffer should be smaller than, in bytes.
const LEAST_BUFFER: u64 = 4 << 20;
/// The size of the pages in which `tcp_mem` and `udp_mem` count, in bytes, where nobody has recorded it.
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
    // Whoever asks for datagrams' room and gets less loses some; a stream only waits. The administrator gets all of it.
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

/// Three numbers of pages, of which the middle one has to hold so many bytes, or a quarter of the memory.
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
