//! One thing of the host that can be read and written, and who may write it, as the kernel decides it.

use std::fmt;

use ropewalk_host::Capability;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RunningThread;

/// One thing of the host that can be read and written: a file below /proc or /sys, the MTU of an interface, a property
/// of a network card, or the CPUs of a running thread. Its value is text in the normal form of its kind, so that what
/// was written can be compared with what is read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Setting {
    /// A file below /proc or /sys.
    File {
        /// The path without the leading slash, such as `proc/sys/net/core/rmem_max`.
        path: String,
        /// How the file writes its value.
        form: Form,
    },
    /// The largest packet of an interface in bytes (rtnetlink(7), `IFLA_MTU`).
    Mtu {
        /// The name of the interface.
        interface: String,
    },
    /// A setting of a network card's driver (the kernel's ethtool netlink interface).
    Card {
        /// The name of the interface.
        interface: String,
        /// The property: `of` is its kind, and `name` that of a feature.
        property: Property,
    },
    /// The CPUs on which a thread of a running process may run (sched_setaffinity(2)).
    Thread(RunningThread),
}

/// How a file of the kernel writes its value.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Numbers or words with space between them.
    Plain,
    /// Every choice, with the present one in brackets; a choice is written without them.
    Choice,
    /// A list of CPUs such as `0-3,8`.
    CpuList,
    /// A set of CPUs as groups of hexadecimal digits such as `00000000,000000ff`.
    CpuMask,
}

/// A property of a network card.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "of", content = "name")]
pub enum Property {
    /// Descriptors of each receive ring.
    ReceiveRing,
    /// Descriptors of each transmit ring.
    TransmitRing,
    /// Queues that receive and transmit.
    CombinedChannels,
    /// Queues that only receive.
    ReceiveChannels,
    /// Queues that only transmit.
    TransmitChannels,
    /// Whether the driver chooses by itself how long interrupts wait (`on`, `off`).
    AdaptiveReceive,
    /// Microseconds that an interrupt waits for more packets to come.
    ReceiveMicroseconds,
    /// Packets after which it waits no longer.
    ReceiveFrames,
    /// Whether the card heeds the other side's pause frames (`on`, `off`).
    ReceivePause,
    /// Whether the card sends pause frames (`on`, `off`).
    TransmitPause,
    /// Whether pause frames are negotiated (`on`, `off`).
    NegotiatedPause,
    /// Something that card or kernel may do with packets, by the kernel's name, such as `rx-gro` (`on`, `off`).
    Feature(String),
}

impl Setting {
    /// A value below /proc/sys, by its name with dots, such as `net.core.rmem_max`. As with sysctl(8) a name whose
    /// first separator is a slash keeps its dots: `net/ipv4/conf/eth0.7/rp_filter`.
    pub fn sysctl(name: &str) -> Self {
        let with_slashes = name.find(['.', '/']).is_some_and(|at| name[at..].starts_with('/'));
        let name = if with_slashes { name.to_owned() } else { name.replace('.', "/") };
        Self::File { path: format!("proc/sys/{name}"), form: Form::Plain }
    }

    /// Its name with dots, if it is below /proc/sys; with slashes, if a part of it contains a dot.
    pub fn sysctl_name(&self) -> Option<String> {
        let Self::File { path, .. } = self else { return None };
        let name = path.strip_prefix("proc/sys/")?;
        Some(if name.contains('.') { name.to_owned() } else { name.replace('/', ".") })
    }

    /// Whether its name may mean something else when the machine is started again: interrupts and threads get numbers
    /// as they come.
    pub(crate) fn is_numbered_anew(&self) -> bool {
        match self {
            Self::File { path, .. } => path.starts_with("proc/irq/"),
            Self::Mtu { .. } | Self::Card { .. } => false,
            Self::Thread(_) => true,
        }
    }

    /// Whether it may end, and then never comes back: a thread does. Everything else that is not there may come back.
    pub(crate) const fn may_end(&self) -> bool {
        matches!(self, Self::Thread(_))
    }

    /// The value in the form in which equal values are equal texts.
    pub fn normal(&self, text: &str) -> String {
        let spaced = |text: &str| text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let plain = || spaced(text);
        match self {
            Self::File { form: Form::Choice, .. } => {
                let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                chosen.map_or_else(plain, |(word, _)| spaced(word))
            }
            Self::File { form: Form::CpuList, .. } | Self::Thread(_) => {
                plain().parse().map_or_else(|_| plain(), |list: ropewalk_host::CpuList| list.to_string())
            }
            Self::File { form: Form::CpuMask, .. } => {
                let groups = text.trim().trim_start_matches("0x").split(',').map(str::trim);
                let digits: String = groups.map(|group| format!("{group:0>8}")).collect();
                if !is_mask(&digits) {
                    return plain();
                }
                let digits = digits.trim_start_matches('0').to_ascii_lowercase();
                if digits.is_empty() { "0".to_owned() } else { digits }
            }
            _ => plain(),
        }
    }

    /// As the kernel takes a value that is in its normal form: it refuses more than eight digits of a mask in one
    /// group.
    pub(crate) fn written(&self, value: &str) -> String {
        if !matches!(self, Self::File { form: Form::CpuMask, .. }) || !is_mask(value) {
            return value.to_owned();
        }
        let digits: Vec<char> = value.chars().collect();
        digits.rchunks(8).rev().map(|group| group.iter().collect::<String>()).collect::<Vec<_>>().join(",")
    }

    /// The command by which a person would write this value.
    pub fn command(&self, value: &str) -> String {
        match self {
            Self::File { path, .. } => match self.sysctl_name() {
                Some(name) => format!("sysctl -w {}={}", quoted(&name), quoted(value)),
                None => format!("echo {} > {}", quoted(&self.written(value)), quoted(&format!("/{path}"))),
            },
            Self::Mtu { interface } => format!("ip link set dev {} mtu {}", quoted(interface), quoted(value)),
            Self::Card { interface, property } => property.command(interface, value),
            Self::Thread(of) => format!("taskset --cpu-list --pid {} {}", quoted(value), of.thread),
        }
    }
}

impl Property {
    /// Whether it is switched `on` and `off`; the others are numbers.
    pub(crate) fn is_switch(&self) -> bool {
        use Property::{AdaptiveReceive, Feature, NegotiatedPause, ReceivePause, TransmitPause};
        matches!(self, AdaptiveReceive | ReceivePause | TransmitPause | NegotiatedPause | Feature(_))
    }

    /// Whether the text is a value of it, in its normal form.
    pub(crate) fn takes(&self, value: &str) -> bool {
        if self.is_switch() { ["on", "off"].contains(&value) } else { value.parse::<u32>().is_ok() }
    }

    /// The command of ethtool(8) that writes it.
    fn command(&self, interface: &str, value: &str) -> String {
        let (option, name) = match self {
            Self::ReceiveRing => ("-G", "rx"),
            Self::TransmitRing => ("-G", "tx"),
            Self::CombinedChannels => ("-L", "combined"),
            Self::ReceiveChannels => ("-L", "rx"),
            Self::TransmitChannels => ("-L", "tx"),
            Self::AdaptiveReceive => ("-C", "adaptive-rx"),
            Self::ReceiveMicroseconds => ("-C", "rx-usecs"),
            Self::ReceiveFrames => ("-C", "rx-frames"),
            Self::ReceivePause => ("-A", "rx"),
            Self::TransmitPause => ("-A", "tx"),
            Self::NegotiatedPause => ("-A", "autoneg"),
            Self::Feature(name) => ("-K", name.as_str()),
        };
        format!("ethtool {option} {} {} {}", quoted(interface), quoted(name), quoted(value))
    }
}

/// Whether these are digits of a mask, and nothing else.
fn is_mask(text: &str) -> bool {
    text.bytes().all(|letter| letter.is_ascii_hexdigit())
}

/// Quoted as one word for a shell. The kernel permits special characters of the shell in names of interfaces.
fn quoted(value: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.,:/".contains(letter);
    match value {
        _ if !value.is_empty() && value.chars().all(is_plain) => value.to_owned(),
        // What means something between double quotes.
        _ if value.contains(['"', '$', '`', '\\', '!']) => format!("'{}'", value.replace('\'', "'\\''")),
        _ => format!("\"{value}\""),
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => match self.sysctl_name() {
                Some(name) => formatter.write_str(&name),
                None => write!(formatter, "/{path}"),
            },
            Self::Mtu { interface } => write!(formatter, "MTU of {interface}"),
            Self::Card { interface, property } => write!(formatter, "{property} of {interface}"),
            Self::Thread(of) => of.fmt(formatter),
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ReceiveRing => "receive ring",
            Self::TransmitRing => "transmit ring",
            Self::CombinedChannels => "combined channels",
            Self::ReceiveChannels => "receive channels",
            Self::TransmitChannels => "transmit channels",
            Self::AdaptiveReceive => "adaptive coalescing",
            Self::ReceiveMicroseconds => "coalescing time",
            Self::ReceiveFrames => "coalescing packets",
            Self::ReceivePause => "heeded pause frames",
            Self::TransmitPause => "sent pause frames",
            Self::NegotiatedPause => "negotiated pause frames",
            Self::Feature(name) => name,
        })
    }
}

/// Who may write a setting.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Right {
    /// root alone, with or without capabilities: /proc/sys outside of `net` (`test_perm` in fs/proc/proc_sysctl.c).
    Root,
    /// root that also has CAP_SYS_ADMIN: `kernel.numa_balancing`.
    RootWithSysAdmin,
    /// CAP_NET_ADMIN: /proc/sys/net, and cards by netlink.
    NetAdmin,
    /// Users with access to the file: /proc/irq and most of /sys.
    File,
    /// Users with access to the file and CAP_NET_ADMIN: /sys/class/net.
    FileWithNetAdmin,
    /// Users with access to the file and CAP_SYS_ADMIN: `cpuidle`.
    FileWithSysAdmin,
    /// The owner of the thread's process, or CAP_SYS_NICE: sched_setaffinity(2).
    Nice,
}

impl Right {
    /// Who may write this file, which has no leading slash.
    pub(crate) fn of_file(path: &str) -> Self {
        match path {
            "proc/sys/kernel/numa_balancing" => Self::RootWithSysAdmin,
            _ if path.starts_with("proc/") && path.contains("/task/") => Self::Nice,
            _ if path.starts_with("proc/sys/net/") => Self::NetAdmin,
            _ if path.starts_with("proc/sys/") => Self::Root,
            _ if path.starts_with("sys/class/net/") || path.starts_with("sys/devices/virtual/net/") => {
                Self::FileWithNetAdmin
            }
            _ if path.starts_with("sys/devices/system/cpu/") && path.contains("/cpuidle/") => Self::FileWithSysAdmin,
            _ => Self::File,
        }
    }

    /// What a process needs to have it, in words.
    pub const fn needs(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::RootWithSysAdmin => "root with CAP_SYS_ADMIN",
            Self::NetAdmin => "root or CAP_NET_ADMIN",
            Self::File => "root or CAP_DAC_OVERRIDE",
            Self::FileWithNetAdmin => "root, or CAP_DAC_OVERRIDE and CAP_NET_ADMIN",
            Self::FileWithSysAdmin => "root, or CAP_DAC_OVERRIDE and CAP_SYS_ADMIN",
            Self::Nice => "root or CAP_SYS_NICE",
        }
    }

    /// What the kernel asks of root, too.
    pub(crate) const fn asked_of_root(self) -> Option<Capability> {
        match self {
            Self::Root | Self::NetAdmin | Self::File => None,
            Self::FileWithNetAdmin => Some(Capability::NetAdmin),
            Self::RootWithSysAdmin | Self::FileWithSysAdmin => Some(Capability::SysAdmin),
            Self::Nice => Some(Capability::SysNice),
        }
    }

    /// What root may lack, as the rest of a sentence that names the host first.
    pub(crate) fn or_missing(self) -> String {
        self.asked_of_root().map(|one| format!(", or {} is missing", one.name())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    fn file(form: Form) -> Setting {
        Setting::File { path: "proc/irq/40/smp_affinity".to_owned(), form }
    }

    #[test]
    fn equal_values_are_equal_texts() {
        assert_eq!(file(Form::Plain).normal(" 4096\t131072  6291456\n"), "4096 131072 6291456");
        assert_eq!(file(Form::Choice).normal("always [madvise] never\n"), "madvise");
        assert_eq!(file(Form::CpuList).normal("0,1,2,3,8\n"), "0-3,8");
        assert_eq!(file(Form::CpuMask).normal("00000000,000000FF\n"), "ff");
        assert_eq!(file(Form::CpuMask).normal("1,00000000\n"), "100000000");
        assert_eq!(file(Form::CpuMask).normal("1,0\n"), "100000000");
        assert_eq!(file(Form::CpuMask).normal("0,0\n"), "0");
        assert_eq!(file(Form::CpuMask).normal("0\ntouch it\n"), "0 touch it", "no mask");
    }

    #[test]
    fn threads_are_put_somewhere_by_taskset() {
        let of = RunningThread { process: 4711, thread: 4712, begun: 8421, name: "ru0".to_owned() };
        let setting = Setting::Thread(of);
        assert_eq!(setting.to_string(), "CPUs of thread 4712 (ru0) of process 4711");
        assert_eq!(setting.normal("8,9,10-15\n"), "8-15");
        assert_eq!(setting.command("8-15"), "taskset --cpu-list --pid 8-15 4712");
    }

    #[test]
    fn masks_are_written_in_groups_of_eight_digits() {
        assert_eq!(file(Form::CpuMask).written("3ff00000001"), "3ff,00000001");
        assert_eq!(file(Form::CpuMask).command("100000000"), "echo 1,00000000 > /proc/irq/40/smp_affinity");
    }

    #[test]
    fn names_of_interfaces_with_dots_keep_them() {
        let setting = Setting::sysctl("net/ipv4/conf/eth0.7/rp_filter");
        assert_eq!(setting.to_string(), "net/ipv4/conf/eth0.7/rp_filter");
        assert_eq!(Setting::sysctl(&setting.to_string()), setting);
        assert_eq!(Setting::sysctl("net.core.rmem_max").to_string(), "net.core.rmem_max");
    }

    #[test]
    fn values_with_spaces_are_one_word_for_a_shell() {
        let setting = Setting::sysctl("net.ipv4.tcp_rmem");
        assert_eq!(setting.command("4096 131072 6291456"), "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 6291456\"");
        assert_eq!(setting.command("$HOME's"), "sysctl -w net.ipv4.tcp_rmem='$HOME'\\''s'");
    }

    #[test]
    fn names_of_interfaces_and_files_are_one_word_for_a_shell() {
        let interface = "e;id $x".to_owned();
        let path = "sys/class/net/e&0/gro_flush_timeout".to_owned();
        let property = |property| Setting::Card { interface: interface.clone(), property };
        let feature = Property::Feature("rx`id`".to_owned());
        for (setting, command) in [
            (property(Property::ReceiveRing), "ethtool -G 'e;id $x' rx 7"),
            (property(feature), "ethtool -K 'e;id $x' 'rx`id`' 7"),
            (Setting::Mtu { interface: interface.clone() }, "ip link set dev 'e;id $x' mtu 7"),
            (Setting::File { path, form: Form::Plain }, "echo 7 > \"/sys/class/net/e&0/gro_flush_timeout\""),
            (Setting::sysctl("net/ipv4/neigh/a|b.7/gc"), "sysctl -w \"net/ipv4/neigh/a|b.7/gc\"=7"),
        ] {
            assert_eq!(setting.command("7"), command);
        }
    }

    proptest! {
        #[test]
        fn the_normal_form_of_what_is_written_is_itself(text in ".{0,60}", form in 0..4_usize) {
            let setting = file([Form::Plain, Form::Choice, Form::CpuList, Form::CpuMask][form]);
            let normal = setting.normal(&text);
            prop_assert_eq!(setting.normal(&setting.written(&normal)), normal);
        }

        #[test]
        fn masks_stay_themselves(digits in "[1-9a-f][0-9a-f]{0,40}") {
            let setting = file(Form::CpuMask);
            prop_assert_eq!(setting.normal(&setting.written(&digits)), digits);
        }
    }
}
