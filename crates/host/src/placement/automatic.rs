//! The layout of paper 3 (IV-B and Fig. 9), adapted to the machine.
//!
//! ```text
//!   the card's node:   | reads | interrupts | reads | ...      memory: pools that are received into
//!   the other nodes:   | all other threads ...        | interrupts of other cards, kept aside |
//! ```
//!
//! Each thread that reads sockets has its own core, the free one nearest to a core that takes the card's interrupts, on
//! the card's node. All other threads share the cores of the other nodes; if there are none, the remaining cores of
//! this one. A core that takes a card's interrupts runs nothing else, nor does the other hardware thread of a core that
//! reads. If the machine does not allow that, a remark says what and why.

use super::{Decision, Feed, Item, Kind, Plan, PlanError};
use crate::card::{Card, CardKind};
use crate::{CpuList, Machine};

/// A plan in the making.
pub(super) struct Layout<'a> {
    machine: &'a Machine,
    items: &'a [Item],
    plan: &'a mut Plan,
    /// For each item the card that feeds it, by its place in `feeds`, if one does.
    fed_by: Vec<Option<usize>>,
    feeds: Vec<Source<'a>>,
    /// Cores that have a reader or that rules gave to one thread, whole.
    taken: CpuList,
}

/// A card that an item reads from, and the node that it is plugged into, as far as that can be found out.
struct Source<'a> {
    card: &'a Card,
    node: Option<u32>,
}

/// A core for one reader.
struct Choice {
    item: usize,
    cpu: u32,
    why: String,
}

impl<'a> Layout<'a> {
    /// Finds the card of each item. What the plan has decided already stays.
    ///
    /// # Errors
    /// Where an item names a card that is not there.
    pub(super) fn new(machine: &'a Machine, items: &'a [Item], plan: &'a mut Plan) -> Result<Self, PlanError> {
        let pinned = plan.placements.iter().filter(|one| one.kind == Kind::Thread && one.cpus.len() == 1);
        let pinned = pinned.filter(|one| one.is_placed()).flat_map(|one| one.cpus.iter()).collect();
        let taken = machine.whole_cores(&pinned);
        let mut layout = Self { machine, items, plan, fed_by: Vec::new(), feeds: Vec::new(), taken };
        for item in items {
            let card = item.feed.as_ref().map(|feed| layout.find_card(item, feed)).transpose()?.flatten();
            let source = card.map(|card| layout.source(card));
            layout.fed_by.push(source);
        }
        Ok(layout)
    }

    /// Places all that is not placed.
    pub(super) fn arrange(mut self) {
        if self.feeds.is_empty() {
            return self
                .remark("no network card feeds a readout unit here: threads and pools go where the kernel puts them");
        }
        let choices: Vec<Choice> = (0..self.feeds.len()).flat_map(|source| self.choose(source)).collect();
        match self.rest() {
            None => {
                let cores = self.machine.cores.iter().filter(|core| core.overlaps(&self.machine.permitted)).count();
                self.remark(format!(
                    "{cores} cores are too few to set some apart: threads go where the kernel puts them"
                ));
            }
            Some((rest, why)) => {
                for Choice { item, cpu, why } in choices {
                    let node = self.machine.node_of(cpu);
                    self.decide(item, [cpu].into_iter().collect(), node, why);
                }
                for item in (0..self.items.len()).filter(|&index| self.items[index].kind == Kind::Thread) {
                    if !self.plan.placements[item].is_placed() {
                        self.decide(item, rest.clone(), self.machine.common_node(&rest), why.to_owned());
                    }
                }
            }
        }
        self.place_pools();
    }

    fn remark(&mut self, what: impl AsRef<str>) {
        let remark = format!("auto: {}", what.as_ref());
        if !self.plan.remarks.contains(&remark) {
            self.plan.remarks.push(remark);
        }
    }

    fn decide(&mut self, item: usize, cpus: CpuList, node: Option<u32>, why: String) {
        let placement = &mut self.plan.placements[item];
        (placement.cpus, placement.node, placement.by) = (cpus, node, Decision::Automatic(why));
    }

    /// The hardware through which an item's data come.
    fn find_card(&mut self, item: &Item, feed: &Feed) -> Result<Option<&'a Card>, PlanError> {
        let (machine, name) = (self.machine, &item.name);
        let card = match feed {
            Feed::Card(card) => machine.card(card).ok_or_else(|| PlanError::NoSuchCard {
                name: name.clone(),
                card: card.clone(),
                cards: machine.cards.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(", "),
            })?,
            Feed::Any => return Ok(self.fastest_card(name)),
            Feed::Address(address) => match machine.card_at(*address) {
                Some(card) => card,
                None => {
                    self.remark(format!("{name}: no network card reaches {address}, so that its card is not known"));
                    return Ok(None);
                }
            },
        };
        let hardware = machine.hardware_of(card);
        match hardware.first() {
            None if card.kind == CardKind::Loopback => {
                self.remark(format!("{name}: its data come through {}, from this machine itself", card.name));
            }
            None => self.remark(format!("{name}: {} is no hardware, and none is known behind it", card.name)),
            Some(first) if hardware.len() > 1 => {
                self.remark(format!("{name}: {} is made of several cards, of which {} decides", card.name, first.name));
            }
            Some(_) => {}
        }
        Ok(hardware.first().copied())
    }

    /// The card for an item that listens on all addresses.
    fn fastest_card(&mut self, name: &str) -> Option<&'a Card> {
        let usable: Vec<&Card> = self.machine.cards.iter().filter(|card| card.is_usable()).collect();
        let most = usable.iter().map(|card| card.megabits_per_second).max().flatten();
        let fastest = usable.iter().copied().find(|card| card.megabits_per_second == most);
        match fastest {
            None => self.remark(format!("{name}: no network card is up")),
            Some(card) if usable.len() > 1 => self.remark(format!(
                "{name}: listens on every card; {} is taken for its own; where that is wrong, name the right one",
                card.name
            )),
            Some(_) => {}
        }
        fastest
    }

    /// The place of a card in `feeds`; finds out its node the first time.
    fn source(&mut self, card: &'a Card) -> usize {
        if let Some(known) = self.feeds.iter().position(|source| source.card.name == card.name) {
            return known;
        }
        let nodes = &self.machine.nodes;
        let by_interrupts = self.machine.common_node(&card.receive_cpus());
        let node = match card.node.filter(|&node| self.machine.node(node).is_some()) {
            Some(node) => Some(node),
            None if nodes.len() == 1 => nodes.first().map(|node| node.number),
            None => {
                let name = &card.name;
                self.remark(match by_interrupts {
                    Some(node) => {
                        format!("the machine does not tell the node of {name}: its interrupts come to node {node}")
                    }
                    None => format!("the machine does not tell the node of {name}: its memory may be anywhere"),
                });
                by_interrupts
            }
        };
        if nodes.len() == 1 {
            self.remark("one NUMA node: all memory is equally near, and all threads share it");
        }
        if card.receive_queues == 1 {
            self.remark(format!("{} has one receive queue: one core takes all that comes", card.name));
        }
        self.feeds.push(Source { card, node });
        self.feeds.len() - 1
    }

    /// Cores for the readers of a card that have no place yet, in their order.
    fn choose(&mut self, source: usize) -> Vec<Choice> {
        let is_open = |&item: &usize| self.items[item].kind == Kind::Thread && !self.plan.placements[item].is_placed();
        let readers = (0..self.items.len()).filter(|&item| self.fed_by[item] == Some(source));
        let readers: Vec<usize> = readers.filter(is_open).collect();
        let cores = if readers.is_empty() { Vec::new() } else { self.cores_near(source) };
        if cores.is_empty() {
            return Vec::new();
        }
        let card = self.feeds[source].card;
        if readers.len() > cores.len() {
            self.remark(format!("{} threads that read {} share {} cores", readers.len(), card.name, cores.len()));
        }
        let interrupts = card.receive_cpus();
        let why = if interrupts.is_empty() {
            format!("on the node of {}", card.name)
        } else {
            format!("beside CPU {interrupts}, which takes the interrupts of {}", card.name)
        };
        let choice = |(turn, &item): (usize, &usize)| {
            let core = &cores[turn % cores.len()];
            core.intersection(&self.machine.permitted).first().map(|cpu| Choice { item, cpu, why: why.clone() })
        };
        let choices: Vec<Choice> = readers.iter().enumerate().filter_map(choice).collect();
        let chosen = choices.iter().map(|choice| choice.cpu).collect();
        self.taken = self.taken.union(&self.machine.whole_cores(&chosen));
        choices
    }

    /// The cores on which a card may be read, the best first: isolated ones, then those nearest to a core that takes
    /// its interrupts. (Distance by number: neighbours share a cache or a stretch of the ring.)
    fn cores_near(&mut self, source: usize) -> Vec<CpuList> {
        let (machine, Source { card, node }) = (self.machine, &self.feeds[source]);
        let (card, node) = (*card, *node);
        let may_run = |core: &&CpuList| core.overlaps(&machine.permitted);
        let is_near = |core: &&CpuList| node.is_none() || core.first().and_then(|cpu| machine.node_of(cpu)) == node;
        let mut cores: Vec<&CpuList> = machine.cores.iter().filter(may_run).filter(is_near).collect();
        if let (true, Some(node)) = (cores.is_empty(), node) {
            self.remark(format!("no CPU of node {node}, where {} is, is free for this process", card.name));
            cores = machine.cores.iter().filter(may_run).collect();
        }
        let interrupts = card.receive_cpus();
        let taking: Vec<usize> = (0..cores.len()).filter(|&index| cores[index].overlaps(&interrupts)).collect();
        self.tell_of_interrupts(card, node, taking.len(), cores.len());
        let distance = |index: usize| taking.iter().map(|&other| index.abs_diff(other)).min().unwrap_or(0);
        let is_isolated = |index: usize| cores[index].overlaps(&machine.isolated);
        let is_free = |index: &usize| !cores[*index].overlaps(&self.taken);
        let mut free: Vec<usize> = (0..cores.len()).filter(is_free).collect();
        let of_all = self.feeds.iter().map(|source| source.card.receive_cpus());
        let of_all = of_all.fold(CpuList::default(), |all, cpus| all.union(&cpus));
        // Where another card that feeds takes all that this one leaves, at least its own are kept clear.
        for taken in [&of_all, &interrupts] {
            if free.iter().any(|&index| !cores[index].overlaps(taken)) {
                free.retain(|&index| !cores[index].overlaps(taken));
            }
        }
        free.sort_by_key(|&index| (!is_isolated(index), distance(index), index));
        free.into_iter().map(|index| cores[index].clone()).collect()
    }

    /// What the interrupts of a card do not allow.
    fn tell_of_interrupts(&mut self, card: &Card, node: Option<u32>, taking: usize, cores: usize) {
        let (name, interrupts) = (&card.name, card.receive_cpus());
        if interrupts.is_empty() {
            self.remark(format!("the kernel does not tell which CPUs take the interrupts of {name}"));
        } else if taking == cores && cores > 1 {
            self.remark(format!(
                "every core near {name} takes its interrupts ({} queues), so that none is free of them; \
                 with fewer queues (`ethtool -L {name} combined 1`) some would be",
                card.receive_queues
            ));
        } else if let (0, Some(node)) = (taking, node) {
            self.remark(format!(
                "the interrupts of {name} come to CPU {interrupts}, away from its node {node}; better to a CPU there \
                 (/proc/irq/NUMBER/smp_affinity_list)"
            ));
        }
    }

    /// The CPUs for all threads that do not read, and why these; `None` if nothing is left for them.
    fn rest(&self) -> Option<(CpuList, &'static str)> {
        let machine = self.machine;
        let reserved = self.taken.union(&self.kept_for_interrupts());
        // The kernel moves no thread between isolated CPUs, so that they are of no use to threads that share.
        let free = machine.permitted.without(&machine.isolated).without(&reserved);
        let near: Vec<Option<u32>> = self.feeds.iter().map(|source| source.node).collect();
        let away: CpuList = free.iter().filter(|&cpu| !near.contains(&machine.node_of(cpu))).collect();
        if !away.is_empty() && !near.contains(&None) {
            Some((away, "away from the card and what reads it"))
        } else if !free.is_empty() {
            Some((free, "what reading and interrupts leave free"))
        } else {
            None
        }
    }

    /// The cores that take the interrupts of a card, whole; not of cards that use more than half of a node's cores.
    fn kept_for_interrupts(&self) -> CpuList {
        let machine = self.machine;
        let mut kept = CpuList::default();
        for card in machine.cards.iter().filter(|card| card.is_usable()) {
            let cores = machine.whole_cores(&card.receive_cpus());
            for node in &machine.nodes {
                let cores = cores.intersection(&node.cpus);
                if cores.len() * 2 <= node.cpus.len() {
                    kept = kept.union(&cores);
                }
            }
        }
        kept
    }

    /// Places memory that receives data on the card's node.
    fn place_pools(&mut self) {
        for item in (0..self.items.len()).filter(|&index| self.items[index].kind == Kind::Pool) {
            let Some(source) = self.fed_by[item].filter(|_| !self.plan.placements[item].is_placed()) else { continue };
            let Source { card, node } = &self.feeds[source];
            let Some(node) = node.and_then(|node| self.machine.node(node)) else { continue };
            if self.machine.nodes.len() == 1 {
                continue;
            }
            if node.is_allowed {
                self.decide(item, node.cpus.clone(), Some(node.number), format!("on the node of {}", card.name));
            } else {
                self.remark(format!(
                    "this process may take no memory from node {}, where {} is",
                    node.number, card.name
                ));
            }
        }
    }
}
