//! One thing of the host that can be read and written.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing of the host that can be read and written. Its value is text in the normal form of its kind
/// ([`Setting::normal`]), so that what was written can be compared with what is read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Setting {
    /// A file below /proc or /sys.
    File {
        /// Its path without the leading slash, such as `proc/sys/net/core/rmem_max`.
        path: String,
        /// How the value is written there.
        form: Form,
    },
    /// The largest packet of an interface in bytes (rtnetlink(7), `IFLA_MTU`).
    Mtu {
        /// The interface's name.
        interface: String,
    },
    /// What the driver of a network card lets be set (the kernel's ethtool netlink interface).
    Card {
        /// The interface's name.
        interface: String,
        /// Which of its properties.
        property: Property,
    },
}

/// How a file of the kernel writes its value.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
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
    /// A value below /proc/sys, by its name with dots, such as `net.core.rmem_max`.
    pub fn sysctl(name: &str) -> Self {
        Self::File { path: format!("proc/sys/{}", name.replace('.', "/")), form: Form::Plain }
    }

    /// Its name with dots, if it is one below /proc/sys.
    pub fn sysctl_name(&self) -> Option<String> {
        let Self::File { path, .. } = self else { return None };
        path.strip_prefix("proc/sys/").map(|name| name.replace('/', "."))
    }

    /// The value in the form in which equal values are equal texts.
    pub fn normal(&self, text: &str) -> String {
        let plain = || text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        match self {
            Self::File { form: Form::Choice, .. } => {
                let chosen = text.split(['[', ']']).nth(1);
                chosen.map_or_else(plain, |word| word.trim().to_owned())
            }
            Self::File { form: Form::CpuList, .. } => {
                plain().parse().map_or_else(|_| plain(), |list: ropewalk_host::CpuList| list.to_string())
            }
            Self::File { form: Form::CpuMask, .. } => {
                let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
                let digits = digits.trim_start_matches('0').to_ascii_lowercase();
                if digits.is_empty() { "0".to_owned() } else { digits }
            }
            _ => plain(),
        }
    }

    /// The command by which a person would write this value.
    pub fn command(&self, value: &str) -> String {
        match self {
            Self::File { path, .. } => match self.sysctl_name() {
                Some(name) => format!("sysctl -w {name}={}", quoted(value)),
                None => format!("echo {} > /{path}", quoted(value)),
            },
            Self::Mtu { interface } => format!("ip link set dev {interface} mtu {value}"),
            Self::Card { interface, property } => property.command(interface, value),
        }
    }
}

impl Property {
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
        format!("ethtool {option} {interface} {name} {value}")
    }
}

/// As a shell takes it for one word.
fn quoted(value: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.,:/".contains(letter);
    if !value.is_empty() && value.chars().all(is_plain) { value.to_owned() } else { format!("\"{value}\"") }
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
