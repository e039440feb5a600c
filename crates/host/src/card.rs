//! Network cards: their place in the machine, and the CPUs of their interrupts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{CpuList, MachineError, files};

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Card {
    /// The interface's name, such as `eth0`.
    pub name: String,
    /// The kind of hardware.
    pub kind: CardKind,
    /// The name of the kernel's driver; null if there is no hardware.
    pub driver: Option<String>,
    /// Whether it can carry data now.
    pub is_up: bool,
    /// The speed of the link in Mb/s (10^6 bits a second); null if the driver does not report it.
    pub megabits_per_second: Option<u32>,
    /// The largest packet in bytes; null if the kernel does not report it.
    pub mtu: Option<u32>,
    /// The NUMA node of its slot; null if the machine does not report it, or there is no hardware.
    pub node: Option<u32>,
    /// How many receive queues it has.
    pub receive_queues: usize,
    /// How many transmit queues it has.
    pub transmit_queues: usize,
    /// Its interrupts, ascending by number.
    pub interrupts: Vec<Interrupt>,
    /// The networks that its addresses belong to.
    pub networks: Vec<Network>,
    /// The lower interfaces: members of a bond, or the interface below a VLAN.
    pub lower: Vec<String>,
}

/// The kind of hardware of an interface.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CardKind {
    /// Hardware, or what a virtual machine takes for it.
    Physical,
    /// This machine itself.
    Loopback,
    /// The kernel: a bond, a bridge, a VLAN, one end of a pair.
    Virtual,
}

/// An interrupt of a card.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Interrupt {
    /// The number of the interrupt in `/proc/irq`.
    pub number: u32,
    /// The name that the driver gives it.
    pub name: String,
    /// The purpose of the interrupt, derived from its name.
    pub task: InterruptTask,
    /// The CPUs that take it: the one that the kernel chose if that is known, otherwise all permitted ones.
    pub cpus: CpuList,
}

/// What an interrupt tells of.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterruptTask {
    /// Packets were received (on most cards also: sent).
    Receive,
    /// Packets have gone.
    Transmit,
    /// Something else: the link, commands, errors.
    Other,
}

/// A range of addresses.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Network {
    /// An address in the range: this machine's own, if the kernel reports it.
    pub address: IpAddr,
    /// How many leading bits all addresses of the range share.
    pub prefix: u8,
}

impl Network {
    /// Whether the address is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = u32::from(own) ^ u32::from(other);
                self.prefix == 0 || differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = u128::from(own) ^ u128::from(other);
                self.prefix == 0 || differing.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl Card {
    /// The CPUs that are interrupted when packets come.
    pub fn receive_cpus(&self) -> CpuList {
        let receiving = self.interrupts.iter().filter(|interrupt| interrupt.task == InterruptTask::Receive);
        receiving.flat_map(|interrupt| interrupt.cpus.iter()).collect()
    }

    /// Whether it is hardware that can carry data now.
    pub fn is_usable(&self) -> bool {
        self.kind == CardKind::Physical && self.is_up
    }
}

/// Reads all interfaces, in the order of their names.
pub(crate) fn read(root: &Path) -> Result<Vec<Card>, MachineError> {
    let class = root.join("sys/class/net");
    let names = interrupt_names(&root.join("proc/interrupts"));
    let mut networks = networks(root);
    let interfaces = files::names(&class).into_iter().filter(|name| class.join(name).join("operstate").exists());
    let card = |name: String| {
        let directory = class.join(&name);
        let device = files::real(&directory.join("device"));
        let function = device.as_deref().map(hardware);
        let kind = match &device {
            Some(_) => CardKind::Physical,
            None if files::value::<u32>(&directory.join("type")) == Some(LOOPBACK_TYPE) => CardKind::Loopback,
            None => CardKind::Virtual,
        };
        let queues = files::names(&directory.join("queues"));
        let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
        let lower = files::names(&directory).into_iter();
        Ok(Card {
            kind,
            driver: device.as_ref().and_then(|device| files::target_name(&device.join("driver"))),
            is_up: files::text(&directory.join("operstate")).is_ok_and(|state| state == "up" || state == "unknown"),
            // Drivers that do not know the speed write -1.
            megabits_per_second: files::value(&directory.join("speed")).filter(|&speed| speed > 0),
            mtu: files::value(&directory.join("mtu")),
            // -1 if the firmware does not report the node.
            node: function.as_ref().and_then(|function| files::value(&function.join("numa_node"))),
            receive_queues: count("rx-"),
            transmit_queues: count("tx-"),
            interrupts: function.map_or(Ok(Vec::new()), |function| interrupts(root, &function, &name, &names))?,
            networks: networks.remove(&name).unwrap_or_default(),
            lower: lower.filter_map(|entry| entry.strip_prefix("lower_").map(str::to_owned)).collect(),
            name,
        })
    };
    interfaces.map(card).collect()
}

/// `ARPHRD_LOOPBACK`, in the file `type` of an interface.
const LOOPBACK_TYPE: u32 = 772;
/// The most levels between an interface's device and its hardware: virtio, USB and sub-functions are a few below it.
const MOST_STEPS: usize = 6;

/// The PCI function that a device is or belongs to; the device itself if it belongs to none.
fn hardware(device: &Path) -> PathBuf {
    let is_function = |directory: &&Path| directory.join("class").exists() && directory.join("vendor").exists();
    device.ancestors().take(MOST_STEPS).find(is_function).unwrap_or(device).to_owned()
}

/// The interrupts of a PCI function that belong to one of its interfaces.
fn interrupts(
    root: &Path,
    function: &Path,
    interface: &str,
    names: &BTreeMap<u32, String>,
) -> Result<Vec<Interrupt>, MachineError> {
    let mut numbers: Vec<u32> =
        files::names(&function.join("msi_irqs")).iter().filter_map(|number| number.parse().ok()).collect();
    if numbers.is_empty() {
        // One shared line, as old cards have it; 0 means none.
        numbers.extend(files::value::<u32>(&function.join("irq")).filter(|&number| number > 0));
    }
    numbers.sort_unstable();
    let mut found = Vec::new();
    for number in numbers {
        // What no driver asked for does not interrupt.
        let Some(name) = names.get(&number) else { continue };
        let directory = root.join("proc/irq").join(number.to_string());
        let effective = files::list_if_there(&directory.join("effective_affinity_list"))?;
        let may = files::list_if_there(&directory.join("smp_affinity_list"))?;
        let cpus = effective.filter(|cpus| !cpus.is_empty()).or(may).unwrap_or_default();
        found.push(Interrupt { number, name: name.clone(), task: task(name), cpus });
    }
    // Two interfaces may share a function; drivers then name the interrupts by interface.
    if found.iter().any(|interrupt| is_named_after(&interrupt.name, interface)) {
        found.retain(|interrupt| is_named_after(&interrupt.name, interface) || interrupt.task == InterruptTask::Other);
    }
    // `eth0` beside `eth0-TxRx-0` tells of the link.
    if found.len() > 1 {
        found.iter_mut().filter(|one| one.name == interface).for_each(|one| one.task = InterruptTask::Other);
    }
    Ok(found)
}

fn is_named_after(interrupt: &str, interface: &str) -> bool {
    interrupt.split(['-', '@', ':', '/']).any(|part| part == interface)
}

/// The task of an interrupt, by the words that drivers use: `eth0-TxRx-3`, `mlx5_comp0@pci:...`, `virtio2-input.0`.
fn task(name: &str) -> InterruptTask {
    const OTHER: [&str; 9] = ["async", "config", "misc", "mgmnt", "event", "fdir", "cmd", "control", "pages"];
    let name = name.to_ascii_lowercase();
    if OTHER.iter().any(|word| name.contains(word)) {
        InterruptTask::Other
    } else if name.contains("output") || name.contains("tx") && !name.contains("rx") {
        InterruptTask::Transmit
    } else {
        InterruptTask::Receive
    }
}

/// The drivers' names of interrupts: the last field of each line of `/proc/interrupts`.
fn interrupt_names(path: &Path) -> BTreeMap<u32, String> {
    let text = files::text(path).unwrap_or_default();
    let one = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        Some((number.trim().parse().ok()?, rest.split_ascii_whitespace().last()?.to_owned()))
    };
    text.lines().filter_map(one).collect()
}

/// The networks of each interface: IPv4 from the routes without a gateway, each as often as this machine has an address
/// in it, IPv6 from the addresses.
fn networks(root: &Path) -> BTreeMap<String, Vec<Network>> {
    let mut networks: BTreeMap<String, Vec<Network>> = BTreeMap::new();
    let routes = files::text(&root.join("proc/net/route")).unwrap_or_default();
    let own = own_addresses(&files::text(&root.join("proc/net/fib_trie")).unwrap_or_default());
    for (name, network) in routes.lines().filter_map(route) {
        let of_card = networks.entry(name).or_default();
        let inside: Vec<IpAddr> = own.iter().copied().filter(|&address| network.contains(address)).collect();
        if inside.is_empty() {
            of_card.push(network);
        }
        of_card.extend(inside.into_iter().map(|address| Network { address, ..network }));
    }
    let addresses = files::text(&root.join("proc/net/if_inet6")).unwrap_or_default();
    for (name, network) in addresses.lines().filter_map(address) {
        networks.entry(name).or_default().push(network);
    }
    networks
}

/// The IPv4 addresses of this machine in `/proc/net/fib_trie`, where routes to single ones that end here are its own:
/// below `|-- 192.0.2.7` stands `/32 host LOCAL`.
fn own_addresses(text: &str) -> BTreeSet<IpAddr> {
    let (mut own, mut address) = (BTreeSet::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("|-- ") {
            address = text.parse::<IpAddr>().ok();
        } else if line == "/32 host LOCAL" {
            own.extend(address);
        }
    }
    own
}

/// A line of `/proc/net/route`: interface, destination, gateway, flags, ..., mask in the eighth field, all in hex.
/// Addresses are in memory order, read as a number of this machine.
fn route(line: &str) -> Option<(String, Network)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let hex = |index: usize| words.get(index).and_then(|word| u32::from_str_radix(word, 16).ok());
    let (destination, gateway, mask) = (hex(1)?, hex(2)?, hex(7)?);
    let address = IpAddr::V4(Ipv4Addr::from(destination.to_ne_bytes()));
    (gateway == 0).then(|| (words[0].to_owned(), Network { address, prefix: mask.count_ones() as u8 }))
}

/// A line of `/proc/net/if_inet6`: address, index, length of the prefix, scope, flags, all in hex; interface.
fn address(line: &str) -> Option<(String, Network)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let address = u128::from_str_radix(words.first()?, 16).ok()?;
    let prefix = u8::from_str_radix(words.get(2)?, 16).ok()?;
    Some(((*words.get(5)?).to_owned(), Network { address: IpAddr::V6(Ipv6Addr::from(address)), prefix }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_many_drivers_are_understood() {
        use InterruptTask::{Other, Receive, Transmit};
        for (name, expected) in [
            ("eth0-TxRx-3", Receive),
            ("i40e-eth0-TxRx-0", Receive),
            ("i40e-0000:81:00.0:misc", Other),
            ("mlx5_comp12@pci:0000:81:00.0", Receive),
            ("mlx5_async0@pci:0000:81:00.0", Other),
            ("mlx4-1@0000:42:00.0", Receive),
            ("virtio2-input.0", Receive),
            ("virtio2-output.0", Transmit),
            ("virtio2-config", Other),
            ("eth0-Tx-Rx-2", Receive),
            ("eth0-tx-0", Transmit),
            ("eth0-rx-0", Receive),
            ("ena-mgmnt@pci:0000:00:05.0", Other),
            ("eth0", Receive),
        ] {
            assert_eq!(task(name), expected, "{name}");
        }
    }

    #[test]
    fn routes_without_a_gateway_are_networks() {
        let line = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        let (name, network) = route(line).expect("a route");
        if cfg!(target_endian = "little") {
            assert_eq!(
                (name.as_str(), network.address.to_string().as_str(), network.prefix),
                ("eth0", "192.0.2.0", 24)
            );
            assert!(
                network.contains("192.0.2.77".parse().unwrap()) && !network.contains("192.0.3.77".parse().unwrap())
            );
        }
        let own = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.0\n        /24 link UNICAST\n     |-- 192.0.2.2\n        \
                   /32 host LOCAL\n     |-- 127.0.0.0\n        /8 host LOCAL\nLocal:\n     |-- 192.0.2.2\n        /32 host LOCAL\n";
        assert_eq!(own_addresses(own), [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))].into());
        assert_eq!(route("eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0"), None);
        assert_eq!(route("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask"), None);
        let (name, network) = address("fd000000000000000000000000000002 04 40 00 82     eth0").expect("an address");
        assert_eq!((name.as_str(), network.prefix), ("eth0", 64));
        assert!(network.contains("fd00::99".parse().unwrap()) && !network.contains("192.0.2.77".parse().unwrap()));
    }
}
