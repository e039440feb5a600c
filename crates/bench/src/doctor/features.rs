//! What the kernel can do for Ropewalk, found by asking it.

use ropewalk_host::{Capability, Machine, TransparentHugePages};
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_memory::{Pool, PoolConfig};
use rustix::net::{AddressFamily, SocketType, socket};
use serde::Serialize;

/// Something that the kernel has, or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// Whether it can be had.
    pub is_there: bool,
    /// What it is good for, or why it cannot be had.
    pub remark: String,
}

/// All of them.
pub fn features(machine: &Machine) -> Vec<Feature> {
    vec![
        io_uring(),
        packet_rings(),
        xdp(),
        huge_pages(machine),
        transparent(machine),
        real_time(machine),
        locking(machine),
    ]
}

fn io_uring() -> Feature {
    let name = "io_uring";
    let pool = || Pool::new(PoolConfig::anonymous("doctor", 64 << 10, 4));
    // Whatever stands in the way is what an endpoint would be told.
    let opened = pool().map_err(|error| error.to_string()).and_then(|pool| {
        let config = TcpConfig { mechanism: Mechanism::IoUring, ..TcpConfig::default() };
        Tcp::new(config, pool).map(drop).map_err(|error| error.to_string())
    });
    match opened {
        Ok(()) => Feature { name, is_there: true, remark: "fewer system calls for each byte sent".to_owned() },
        Err(why) => Feature { name, is_there: false, remark: format!("{why}; epoll is used in its place") },
    }
}

/// Whether a socket of this family can be had.
fn of_family(name: &'static str, family: AddressFamily, kind: SocketType, use_: &str) -> Feature {
    match socket(family, kind, None) {
        Ok(_) => Feature { name, is_there: true, remark: use_.to_owned() },
        Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => {
            let right = Capability::NetRaw.name();
            Feature { name, is_there: false, remark: format!("this process may not: it lacks {right}") }
        }
        Err(error) => Feature { name, is_there: false, remark: format!("this kernel or container has none: {error}") },
    }
}

fn packet_rings() -> Feature {
    let remark = "datagrams read where the kernel put them (TPACKET_V3)";
    of_family("packet rings", AddressFamily::PACKET, SocketType::RAW, remark)
}

fn xdp() -> Feature {
    let remark = "packets past the kernel's network stack, where the card's driver can";
    of_family("AF_XDP", AddressFamily::XDP, SocketType::RAW, remark)
}

fn huge_pages(machine: &Machine) -> Feature {
    let sizes = machine.huge_pages.iter().filter(|pages| pages.total > 0);
    let told: Vec<_> = sizes
        .map(|pages| format!("{} of {} pages of {} MiB are free", pages.free, pages.total, pages.page_bytes >> 20))
        .collect();
    let is_there = !told.is_empty();
    let remark = if is_there { told.join(", ") } else { "none are reserved".to_owned() };
    Feature { name: "huge pages", is_there, remark }
}

fn transparent(machine: &Machine) -> Feature {
    let (is_there, remark) = match machine.transparent_huge_pages {
        TransparentHugePages::Always => (true, "for every large mapping"),
        TransparentHugePages::Advised => (true, "for mappings that ask for it, as pools do"),
        TransparentHugePages::Never => (false, "the kernel makes none"),
    };
    Feature { name: "transparent huge pages", is_there, remark: remark.to_owned() }
}

fn real_time(machine: &Machine) -> Feature {
    let is_there = !machine.rights.forbids_realtime(1);
    let remark = if is_there {
        "threads may go before all others (scheduling = \"fifo\")"
    } else {
        "needs CAP_SYS_NICE, or a limit (rtprio)"
    };
    Feature { name: "real-time scheduling", is_there, remark: remark.to_owned() }
}

fn locking(machine: &Machine) -> Feature {
    const POOL: u64 = 1 << 30;
    let is_there = !machine.rights.forbids_locking(POOL);
    let remark =
        if is_there { "pools of a GiB and more stay in memory" } else { "needs CAP_IPC_LOCK, or a limit (memlock)" };
    Feature { name: "locked memory", is_there, remark: remark.to_owned() }
}
