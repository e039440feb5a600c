//! What rules ask of a host in the words of their subject, with the answer that a value could not be read.

use ropewalk_host::{Card, CardKind, CpuList};

use super::Found;
use crate::cards::CardReport;
use crate::{Feeding, Property, Transport, Wish};

/// What could not be read, in the words of the table's column: a sysctl by its name, anything else by its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unread(pub(crate) String);

impl Found {
    /// A file's text, where it is there and can be read.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.text(path)
    }

    /// A file's number, where it is there and is one.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The files whose paths begin and end so, ascending, with their texts.
    pub(crate) fn each<'a, 'b>(&'a self, first: &'b str, last: &'b str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files.each(first, last)
    }

    /// A file's text.
    ///
    /// # Errors
    /// Where it is missing or cannot be read.
    pub(crate) fn must(&self, path: &str) -> Result<&str, Unread> {
        self.text(path).filter(|text| !text.is_empty()).ok_or_else(|| Unread(format!("/{path}")))
    }

    /// The text below /proc/sys with this name.
    ///
    /// # Errors
    /// Where it is missing or cannot be read.
    pub(crate) fn sysctl_text(&self, name: &str) -> Result<&str, Unread> {
        self.must(&format!("proc/sys/{}", name.replace('.', "/"))).map_err(|_| Unread(name.to_owned()))
    }

    /// The number below /proc/sys with this name.
    ///
    /// # Errors
    /// Where it is missing or no number.
    pub(crate) fn sysctl(&self, name: &str) -> Result<i64, Unread> {
        self.sysctl_text(name)?.parse().map_err(|_| Unread(name.to_owned()))
    }

    /// The three numbers below /proc/sys with this name: smallest, usual, largest; or low, pressure, high.
    ///
    /// # Errors
    /// Where they are missing or not three numbers.
    pub(crate) fn sysctl_three(&self, name: &str) -> Result<[u64; 3], Unread> {
        let wrong = || Unread(name.to_owned());
        let numbers = self.sysctl_text(name)?.split_ascii_whitespace().map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().map_err(|_| wrong())?;
        numbers.try_into().map_err(|_| wrong())
    }

    /// The directories of the control groups that this process is in for a controller, from its own outwards.
    pub(crate) fn control_groups(&self, controller: &str) -> Vec<String> {
        self.files.control_groups(controller)
    }

    /// The hardware that data comes through, or that somebody named; where there is neither, all that is up.
    pub(crate) fn hardware(&self, wish: &Wish) -> Vec<&Card> {
        let named = wish.feeding.iter().map(|feeding| &feeding.interface).chain(&wish.interfaces);
        let mut cards: Vec<&Card> = Vec::new();
        for name in named {
            let made_of = self.machine.card(name).map(|card| self.machine.hardware_of(card)).unwrap_or_default();
            for card in made_of {
                if !cards.iter().any(|other| other.name == card.name) {
                    cards.push(card);
                }
            }
        }
        if wish.feeding.is_empty() && wish.interfaces.is_empty() {
            cards.extend(self.machine.cards.iter().filter(|card| card.is_usable()));
        }
        cards
    }

    /// That hardware with what its drivers tell; interfaces whose drivers tell nothing are left out.
    pub(crate) fn reports(&self, wish: &Wish) -> Vec<(&Card, &CardReport)> {
        let hardware = self.hardware(wish).into_iter();
        hardware.filter_map(|card| Some((card, self.cards.get(&card.name)?))).collect()
    }

    /// Whether a card takes values of a property that its driver tells. virtio_net tells how long interrupts wait whatever
    /// the host gave the card: a time only with the feature NOTF_COAL, an adaptive one only with VQ_NOTF_COAL (bits 53 and
    /// 52; the virtio specification, 5.1.3).
    pub(crate) fn takes(&self, card: &Card, property: &Property) -> bool {
        let bit = match property {
            Property::AdaptiveReceive => 52,
            Property::ReceiveMicroseconds | Property::ReceiveFrames => 53,
            _ => return true,
        };
        let features = self.text(&format!("sys/class/net/{}/device/features", card.name));
        let is_virtio = card.driver.as_deref() == Some("virtio_net");
        !is_virtio || features.is_none_or(|bits| bits.as_bytes().get(bit) == Some(&b'1'))
    }

    /// The physical cores of the node that a card is plugged into; all where the machine does not tell.
    pub(crate) fn cores_of(&self, card: &Card) -> usize {
        let node = card.node.and_then(|node| self.machine.node(node));
        let is_near = |core: &&CpuList| node.is_none_or(|node| node.cpus.overlaps(core));
        self.machine.cores.iter().filter(is_near).count()
    }

    /// The CPUs of the node that a card is plugged into; all where the machine does not tell.
    pub(crate) fn cpus_near(&self, card: &Card) -> CpuList {
        let node = card.node.and_then(|node| self.machine.node(node));
        node.map_or_else(|| self.machine.online.clone(), |node| node.cpus.clone())
    }

    /// The threads of the configuration that read one of some cards, also through a bond or a VLAN; each once, by what
    /// it reads first.
    pub(crate) fn readers<'a>(&self, cards: &[&Card], wish: &'a Wish) -> Vec<&'a Feeding> {
        let is_behind = |feeding: &&Feeding| {
            let hardware = self.machine.card(&feeding.interface).map(|card| self.machine.hardware_of(card));
            hardware.is_some_and(|behind| behind.iter().any(|one| cards.iter().any(|card| card.name == one.name)))
        };
        let mut readers: Vec<&Feeding> = Vec::new();
        for feeding in wish.feeding.iter().filter(is_behind) {
            if readers.iter().all(|reader| reader.thread != feeding.thread) {
                readers.push(feeding);
            }
        }
        readers
    }

    /// How many threads of the configuration read a card, also through a bond or a VLAN.
    pub(crate) fn readers_of(&self, card: &Card, wish: &Wish) -> usize {
        self.readers(&[card], wish).len()
    }

    /// How many combined queues a card has when all is as advised, where its driver tells. Queues that go take files and
    /// interrupts with them, so that nobody may advise anything on those.
    pub(crate) fn queues_after(&self, card: &Card, wish: &Wish) -> Option<usize> {
        let report = self.cards.get(&card.name)?;
        let present: usize = report.value(&Property::CombinedChannels)?.parse().ok()?;
        let most = report.most_combined_channels.map_or(present, |most| most as usize);
        let (cores, readers) = (self.cores_of(card).max(1), self.readers_of(card, wish));
        Some(match present {
            _ if present > cores => cores,
            // As many as threads that read; where nobody said, as many as there are cores, but for one that works.
            1 => most.min(if readers > 0 { readers } else { cores.saturating_sub(1) }.max(1)).min(cores),
            _ => present,
        })
    }

    /// One file of each receive (`rx`) or transmit (`tx`) queue of a card, in the order of the queues' numbers: `rx-10` is
    /// the eleventh, and the last ones are those that go when there shall be fewer.
    pub(crate) fn queues(&self, card: &Card, direction: &str, file: &str) -> Vec<(&str, &str)> {
        let (first, last) = (format!("sys/class/net/{}/queues/{direction}-", card.name), format!("/{file}"));
        let mut queues: Vec<(&str, &str)> = self.files.each(&first, &last).collect();
        queues.sort_by_key(|&(path, _)| (path.len(), path));
        queues
    }

    /// Whether data comes from this machine itself.
    pub(crate) fn is_fed_by_itself(&self, wish: &Wish) -> bool {
        let card = |name: &str| self.machine.card(name);
        wish.feeding.iter().any(|feeding| card(&feeding.interface).is_some_and(|card| card.kind == CardKind::Loopback))
    }

    /// Bytes that the fastest interface of those that matter carries in a second, where its driver tells.
    pub(crate) fn bytes_per_second(&self, wish: &Wish) -> Option<u64> {
        let speeds = self.hardware(wish).into_iter().filter_map(|card| card.megabits_per_second);
        speeds.max().map(|megabits| u64::from(megabits) * 125_000)
    }

    /// Whether it is a virtual machine, as its processor says (the flag `hypervisor` on x86).
    pub(crate) fn is_virtual(&self) -> bool {
        let flags = self.text("proc/cpuinfo").unwrap_or_default().lines().find_map(|line| line.strip_prefix("flags"));
        flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
    }

    /// Memory of the machine in bytes, where the kernel tells.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        kibibytes_of(self.text("proc/meminfo")?, "MemTotal")
    }
}

impl Wish {
    /// Streams that come so.
    pub(crate) fn streams(&self, is_wanted: impl Fn(Transport) -> bool) -> u64 {
        let feeding = self.feeding.iter().filter(|feeding| is_wanted(feeding.transport));
        feeding.map(|feeding| u64::from(feeding.streams)).sum()
    }

    /// The largest receive buffer that a socket of such streams asks for, in bytes.
    pub(crate) fn most_receive_buffer(&self, is_wanted: impl Fn(Transport) -> bool) -> Option<u64> {
        let feeding = self.feeding.iter().filter(|feeding| is_wanted(feeding.transport));
        feeding.filter_map(|feeding| feeding.receive_buffer_bytes).max()
    }

    /// Whether something comes so.
    pub(crate) fn has(&self, transport: Transport) -> bool {
        self.feeding.iter().any(|feeding| feeding.transport == transport)
    }
}

/// The bytes in the first line `name:  number kB`, whatever stands before the name.
pub(crate) fn kibibytes_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.split_ascii_whitespace().last() == Some(name)).then_some(value)
    })?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
