//! Machines made up in a temporary directory: /proc and /sys of as many sockets, cards and limits as a test wants.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ropewalk_host::{CpuList, Machine};

/// A machine in the making; its directory is removed with it.
pub(crate) struct MadeMachine {
    root: PathBuf,
    interrupts: String,
    routes: String,
    status: String,
}

/// A list of CPUs.
pub(crate) fn list(text: &str) -> CpuList {
    text.parse().expect("the test writes lists")
}

impl MadeMachine {
    /// One node for each socket, and so many cores on each. With `threads` 2, the second hardware threads of all cores
    /// come behind all first ones, as Linux numbers them on most machines.
    pub(crate) fn new(sockets: u32, cores: u32, threads: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("ropewalk-host-{}-{number}", std::process::id()));
        let (interrupts, routes) = (String::new(), "Iface\tDestination\n".to_owned());
        let machine = Self { root, interrupts, routes, status: String::new() };
        machine.write("proc/sys/kernel/osrelease", "6.12.0");
        machine.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Example CPU E5-2670\n");
        let (all, last) = (sockets * cores, sockets * cores * threads - 1);
        machine.write("sys/devices/system/cpu/online", &format!("0-{last}"));
        machine.write("sys/devices/system/cpu/present", &format!("0-{last}"));
        machine.write("sys/devices/system/node/online", &CpuList::from_iter(0..sockets).to_string());
        for socket in 0..sockets {
            let first =
                (0..threads).flat_map(|thread| (0..cores).map(move |core| thread * all + socket * cores + core));
            let cpus: CpuList = first.collect();
            let node = format!("sys/devices/system/node/node{socket}");
            machine.write(&format!("{node}/cpulist"), &cpus.to_string());
            machine.write(&format!("{node}/meminfo"), &format!("Node {socket} MemTotal:  16777216 kB\n"));
            for cpu in cpus.iter() {
                let siblings: CpuList = (0..threads).map(|thread| cpu % all + thread * all).collect();
                let directory = format!("sys/devices/system/cpu/cpu{cpu}");
                machine.write(&format!("{directory}/topology/physical_package_id"), &socket.to_string());
                machine.write(&format!("{directory}/topology/thread_siblings_list"), &siblings.to_string());
            }
            // The kernel lists a cache at each of its CPUs; once is enough, and many small files take their time.
            let cache = format!("sys/devices/system/cpu/cpu{}/cache/index3", socket * cores);
            machine.write(&format!("{cache}/level"), "3");
            machine.write(&format!("{cache}/type"), "Unified");
            machine.write(&format!("{cache}/size"), "20480K");
            machine.write(&format!("{cache}/shared_cpu_list"), &cpus.to_string());
        }
        machine.interface("lo", "unknown", 772);
        machine
    }

    /// A card of 40 Gb/s on a node (-1: the firmware does not tell) with its interrupts: number, name, CPUs.
    pub(crate) fn card(mut self, name: &str, node: i32, interrupts: &[(u32, &str, &str)]) -> Self {
        let function = format!("sys/devices/pci0000:80/{name}-function");
        self.write(&format!("{function}/class"), "0x020000");
        self.write(&format!("{function}/vendor"), "0x15b3");
        self.write(&format!("{function}/numa_node"), &node.to_string());
        self.link(&format!("{function}/driver"), "../../../bus/pci/drivers/mlx4_core");
        self.write(&format!("{function}/net/{name}/operstate"), "up");
        self.write(&format!("{function}/net/{name}/type"), "1");
        self.write(&format!("{function}/net/{name}/mtu"), "9000");
        self.write(&format!("{function}/net/{name}/speed"), "40000");
        self.link(&format!("{function}/net/{name}/device"), "../..");
        self.link(&format!("sys/class/net/{name}"), &format!("../../devices/pci0000:80/{name}-function/net/{name}"));
        let receiving = interrupts.iter().filter(|(_, name, _)| !name.contains("async"));
        for (queue, _) in receiving.enumerate() {
            self.write(&format!("{function}/net/{name}/queues/rx-{queue}/rps_cpus"), "0");
            self.write(&format!("{function}/net/{name}/queues/tx-{queue}/xps_cpus"), "0");
        }
        for (number, interrupt, cpus) in interrupts {
            self.write(&format!("{function}/msi_irqs/{number}"), "msix");
            self.write(&format!("proc/irq/{number}/smp_affinity_list"), cpus);
            self.interrupts += &format!(" {number}:          7          9  PCI-MSI 67633152-edge      {interrupt}\n");
        }
        let lines = format!("           CPU0       CPU1\n{}NMI:  0  0   Non-maskable interrupts\n", self.interrupts);
        self.write("proc/interrupts", &lines);
        self
    }

    /// An interface without hardware, made of others.
    pub(crate) fn bond(self, name: &str, lower: &[&str]) -> Self {
        self.interface(name, "up", 1);
        lower
            .iter()
            .for_each(|lower| self.link(&format!("sys/class/net/{name}/lower_{lower}"), &format!("../{lower}")));
        self
    }

    /// An interface has the addresses of `network` (IPv4, 24 bits of it).
    pub(crate) fn network(mut self, interface: &str, network: [u8; 3]) -> Self {
        let [a, b, c] = network;
        let destination = u32::from_ne_bytes([a, b, c, 0]);
        let mask = u32::from_ne_bytes([255, 255, 255, 0]);
        self.routes += &format!("{interface}\t{destination:08X}\t00000000\t0001\t0\t0\t0\t{mask:08X}\t0\t0\t0\n");
        self.write("proc/net/route", &self.routes);
        self
    }

    /// These CPUs are switched off.
    pub(crate) fn offline(self, cpus: &str) -> Self {
        let online = list(&self.read("sys/devices/system/cpu/online")).without(&list(cpus));
        self.write("sys/devices/system/cpu/online", &online.to_string());
        self
    }

    /// These CPUs are isolated: Linux runs nothing there unless told to.
    pub(crate) fn isolated(self, cpus: &str) -> Self {
        self.write("sys/devices/system/cpu/isolated", cpus);
        let rest = list(&self.read("sys/devices/system/cpu/online")).without(&list(cpus));
        self.status("Cpus_allowed_list", &rest.to_string())
    }

    /// The process is in a control group with these CPUs and memory of these nodes.
    pub(crate) fn confined(self, cpus: &str, nodes: &str) -> Self {
        self.write("proc/self/cgroup", "0::/daq.slice/run.scope\n");
        self.write("sys/fs/cgroup/daq.slice/cpuset.cpus.effective", cpus);
        let isolated = fs::read_to_string(self.root.join("sys/devices/system/cpu/isolated")).unwrap_or_default();
        let allowed = list(cpus).without(&list(&isolated)).to_string();
        self.status("Cpus_allowed_list", &allowed).status("Mems_allowed_list", nodes)
    }

    /// The process has the rights of an ordinary user, and may lock `locked` bytes.
    pub(crate) fn without_rights(self, locked: &str) -> Self {
        let limits =
            format!("Max locked memory         {locked}   {locked}   bytes\nMax realtime priority     0   0\n");
        self.write("proc/self/limits", &limits);
        self.status("CapEff", "0000000000000000")
    }

    /// The machine as read from these files.
    pub(crate) fn read_machine(&self) -> Machine {
        Machine::read(&self.root).expect("the made-up machine is whole")
    }

    /// Where it is.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Any file of it.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("a directory can be made");
        fs::write(path, format!("{text}\n")).expect("a file can be written");
    }

    fn status(mut self, name: &str, value: &str) -> Self {
        self.status =
            self.status.lines().filter(|line| !line.starts_with(name)).map(|line| format!("{line}\n")).collect();
        self.status += &format!("{name}:\t{value}\n");
        self.write("proc/self/status", &self.status);
        self
    }

    fn interface(&self, name: &str, state: &str, kind: u32) {
        self.write(&format!("sys/class/net/{name}/operstate"), state);
        self.write(&format!("sys/class/net/{name}/type"), &kind.to_string());
        self.write(&format!("sys/class/net/{name}/queues/rx-0/rps_cpus"), "0");
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a link is in a directory")).expect("a directory can be made");
        symlink(target, path).expect("a link can be made");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).expect("the file was made")
    }
}

impl Drop for MadeMachine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
