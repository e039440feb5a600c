//! Checks of link cards and of the sources that are their e-links.

use crate::Configuration;
use crate::error::{Faults, no_such};
use crate::felix::{ELinkSection, EmulateCard, EventChoice, FelixSection, ServeSection, WriterChoice};
use crate::quantity::Bytes;
use crate::source::SourceSection;
use ropewalk_flow::source::felix::{BLOCK_TIMEOUT, CHUNK_HEAD_BYTES, FAULTS, FaultError};
use ropewalk_wire::felix::ELINKS;
use std::collections::BTreeMap;

/// Checks every card and every source that is an e-link.
pub(super) fn check_cards(configuration: &Configuration, faults: &mut Faults) {
    links(configuration, faults);
    for (index, card) in configuration.felix.iter().enumerate() {
        let key = |field: &str| format!("felix[{index}].{field}");
        check_card(configuration, card, key, faults);
    }
}

/// Every e-link belongs to a card, is one source, and is in one readout unit with the others of its card.
fn links(configuration: &Configuration, faults: &mut Faults) {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut taken = BTreeMap::new();
    for (index, source) in configuration.source.iter().enumerate() {
        let Some(link) = source.link() else { continue };
        let key = |field: &str| format!("source[{index}].{field}");
        if configuration.felix.iter().all(|card| card.name != link.card) {
            let known = configuration.felix.iter().map(|card| card.name.as_str());
            faults.add(key("felix.card"), no_such("[[felix]] card is named", &link.card, known));
        }
        if usize::from(link.elink) >= ELINKS {
            faults.add(key("felix.elink"), format!("a card has the e-links 0 to {}", ELINKS - 1));
        }
        if let Some(other) = taken.insert((&link.card, link.elink), index) {
            let message = format!("source[{other}] is that e-link already");
            faults.add(key("felix.elink"), message);
        }
        let other = *first.entry(&link.card).or_insert(index);
        if configuration.source[other].readout != source.readout {
            let readout = &configuration.source[other].readout;
            let message = format!("source[{other}] of the same card is in `{readout}`: one readout unit reads a card");
            faults.add(key("readout"), message);
        }
        if link.event.is_some_and(|event| !is_rule(event)) {
            faults.add(key("felix.event"), EVENT);
        }
        let card = configuration.felix.iter().find(|card| card.name == link.card);
        let bits = card.and_then(|card| card.rule_of(source).bits());
        if source.counter_bits.is_some() && source.counter_bits != bits {
            faults.add(key("counter_bits"), "`event` says how many bits the number has: leave it out");
        }
    }
}

/// If part of a block has no room in the window, the following blocks wait, and with them the e-links that could make
/// room: until their time-out.
fn window(
    configuration: &Configuration,
    card: &FelixSection,
    emulate: &EmulateCard,
    links: &[(&SourceSection, &ELinkSection)],
    faults: &mut Faults,
) {
    let format = card.blocks.0;
    let in_block = |source: &SourceSection| {
        let size = if source.trigger { emulate.trigger_chunk_size } else { emulate.chunk_size };
        let least = card.rule_of(source).head_bytes().max(CHUNK_HEAD_BYTES);
        let chunk = size.0.mean().max(least as f64) + format.trailer_bytes() as f64;
        let full = format.most_data_bytes() as f64 / chunk;
        // A block that is not full leaves all the same, after a while.
        let in_time = emulate
            .rate
            .and_then(|rate| rate.0.hertz())
            .map_or(f64::INFINITY, |hertz| hertz * BLOCK_TIMEOUT.as_secs_f64() + 1.0);
        full.min(in_time).ceil() as u64
    };
    let needed = links.iter().map(|(source, _)| in_block(source)).max().unwrap_or(0);
    let readout = |readout: &&str| configuration.readout.iter().position(|one| one.name == **readout);
    let readout = links.first().map(|(source, _)| source.readout.as_str()).as_ref().and_then(readout);
    let Some((index, readout)) = readout.map(|index| (index, &configuration.readout[index])) else { return };
    if u64::from(readout.window) >= needed {
        return;
    }
    let message = format!(
        "a block of {} brings chunks of {needed} events, and what does not fit into the window keeps the other e-links \
         waiting until their time-out: {needed} at least",
        card.name
    );
    faults.add(format!("readout[{index}].window"), message)
}

/// What a field must be.
const EVENT: &str = "a field of 1 to 8 bytes, and a mask of at least 8 neighbouring bits in it";

fn is_rule(event: EventChoice) -> bool {
    event.rule().bits().is_some_and(|bits| bits >= 8)
}

fn check_card(configuration: &Configuration, card: &FelixSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let links = configuration.source.iter().filter_map(|source| Some((source, source.link()?)));
    let links: Vec<_> = links.filter(|(_, link)| link.card == card.name).collect();
    if links.is_empty() {
        let message =
            format!("no source is an e-link of it: give one `felix = {{ card = \"{}\", elink = 0 }}`", card.name);
        faults.add(key("name"), message);
    }
    if !is_rule(card.event) {
        faults.add(key("event"), EVENT);
    }
    let largest = links.iter().map(|(source, _)| source.max_fragment.0).max().unwrap_or(0);
    let needed = largest.saturating_mul(4).max(1 << 20);
    if card.memory.0 < needed {
        let message = format!(
            "{} hold too little: four of the largest chunks and 1 MiB at least, {} in all; enlarge it, or lower the \
             sources' max_fragment",
            card.memory,
            Bytes(needed)
        );
        faults.add(key("memory"), message);
    }
    if let Some((name, message)) = card.serve.as_ref().and_then(ServeSection::fault) {
        faults.add(key(&format!("serve.{name}")), message);
    }
    if card.input.is_some() && card.emulate.is_some() {
        faults.add(key("input"), "an emulated card reads nothing: leave out `input` or [felix.emulate]");
    }
    if card.input_speed.is_some() && card.input.is_none() {
        faults.add(key("input_speed"), "nothing is read: give `input`, or leave it out");
    }
    if card.writer == WriterChoice::Process && card.emulate.is_none() {
        faults.add(key("writer"), "only an emulated card is written by a process that a run starts: leave it out");
    }
    let Some(emulate) = &card.emulate else { return };
    let sizes =
        [("emulate.chunk_size", emulate.chunk_size), ("emulate.trigger_chunk_size", emulate.trigger_chunk_size)];
    for (name, size) in sizes {
        if u64::from(size.0.largest()) > largest {
            faults.add(key(name), "the emulated chunks are larger than the sources' max_fragment allows");
        }
    }
    window(configuration, card, emulate, &links, faults);
    for (index, outage) in emulate.outages.iter().enumerate() {
        if links.iter().all(|(_, link)| link.elink != outage.elink) {
            faults.add(key(&format!("emulate.outages[{index}].elink")), "no source is this e-link");
        }
    }
    if let Err(error @ FaultError::Impossible(fault, _)) = emulate.faults.0.check(card.blocks.0) {
        faults.add(key(&format!("emulate.faults.{}", fault.name())), error.to_string());
    }
    for fault in FAULTS.iter().filter(|fault| fault.is_of_streams() && emulate.faults.0.of(**fault) > 0.0) {
        faults.add(
            key(&format!("emulate.faults.{}", fault.name())),
            "in a card's memory every block has its place; only a stream can lose bytes, see `felix generate`",
        );
    }
}
