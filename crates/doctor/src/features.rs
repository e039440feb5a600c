//! What the kernel can do for Ropewalk, found by trying it.

use ropewalk_host::{Capability, Machine, TransparentHugePages};
use ropewalk_io::tcp::{io_uring_operations, try_io_uring};
use ropewalk_tune::Found;
use ropewalk_tune::cards::CardReport;
use ropewalk_tune::found::Permission;
use rustix::net::{AddressFamily, SocketType, socket};
use schemars::JsonSchema;
use serde::Serialize;

/// Something that the kernel has, or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Feature {
    /// The name of the feature.
    pub name: &'static str,
    /// Whether this process can use it.
    pub is_there: bool,
    /// What the feature is good for, or why it cannot be used.
    pub remark: String,
}

/// Every feature that the doctor checks.
pub fn features(found: &Found) -> Vec<Feature> {
    let machine = &found.machine;
    vec![
        io_uring(),
        operations(),
        packet_rings(),
        xdp(found),
        xdp_modes(found.cards.iter()),
        huge_pages(machine),
        transparent(machine),
        real_time(machine),
        locking(machine),
    ]
}

fn io_uring() -> Feature {
    let name = "io_uring";
    // The error is the one that an end point would get.
    match try_io_uring() {
        Ok(()) => Feature { name, is_there: true, remark: "fewer system calls for each byte sent".to_owned() },
        Err(why) => Feature { name, is_there: false, remark: format!("{why}; epoll is used in its place") },
    }
}

/// Whether the operations that are used here are available.
fn operations() -> Feature {
    let name = "io_uring operations";
    let operations = match io_uring_operations() {
        Ok(operations) => operations,
        Err(why) => return Feature { name, is_there: false, remark: why.to_string() },
    };
    let missing = operations.iter().filter(|(_, is_there)| !is_there).count();
    let told: Vec<_> = operations
        .iter()
        .map(|(name, is_there)| if *is_there { (*name).to_owned() } else { format!("no {name}") })
        .collect();
    Feature { name, is_there: missing == 0, remark: told.join(", ") }
}

/// Whether a socket of this family can be created.
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

fn xdp(found: &Found) -> Feature {
    let name = "AF_XDP";
    let (is_there, remark) = match found.probed.af_xdp {
        Permission::Allowed => (true, "packets past the kernel's network stack".to_owned()),
        Permission::Absent => (false, "this kernel or container has none".to_owned()),
        Permission::Unknown => (false, "could not be tried".to_owned()),
        Permission::Refused => {
            let missing = found.machine.rights.missing_for_xdp().into_iter().map(Capability::name);
            let missing: Vec<_> = missing.collect();
            // Otherwise a filter of system calls refuses it.
            let lacks = if missing.is_empty() { String::new() } else { format!(": it lacks {}", missing.join(", ")) };
            (false, format!("this process may not{lacks}"))
        }
    };
    Feature { name, is_there, remark }
}

/// The AF_XDP modes that each card supports, the fastest first, by the names of a gateway's `xdp` key.
pub(crate) fn xdp_modes<'a>(cards: impl Iterator<Item = (&'a String, &'a CardReport)>) -> Feature {
    let modes = |report: &CardReport| {
        let has = |what: &str| report.xdp.iter().any(|feature| feature == what);
        let zero_copy = has("xsk-zerocopy").then_some("zero_copy");
        let driver = (has("basic") && has("redirect")).then_some("driver");
        zero_copy.into_iter().chain(driver).chain(["generic"]).collect::<Vec<_>>().join(", ")
    };
    let told: Vec<_> = cards.map(|(name, report)| format!("{name}: {}", modes(report))).collect();
    let is_there = !told.is_empty();
    let remark = if is_there { told.join("; ") } else { "there is no network card".to_owned() };
    Feature { name: "AF_XDP modes", is_there, remark }
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
