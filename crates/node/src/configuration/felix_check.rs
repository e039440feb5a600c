//! What cards and their e-links must fulfil.

use super::check::fault;
use super::felix::{FelixSection, WriterChoice};
use super::felix_serve::ServeSection;
use super::model::Configuration;
use super::parse::Fault;
use crate::quantity::Bytes;
use ropewalk_flow::source::felix::FAULTS;
use ropewalk_wire::felix::ELINKS;
use std::collections::BTreeMap;

/// Checks every card and every source that is an e-link; the first fault is returned.
pub(super) fn check(configuration: &Configuration) -> Result<(), Fault> {
    links(configuration)?;
    for (index, card) in configuration.felix.iter().enumerate() {
        let key = |field: &str| format!("felix[{index}].{field}");
        self::card(configuration, card, key)?;
    }
    Ok(())
}

/// Every e-link is one of a card, is one source, and lies with the others of its card in one readout unit.
fn links(configuration: &Configuration) -> Result<(), Fault> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut taken = BTreeMap::new();
    for (index, source) in configuration.source.iter().enumerate() {
        let Some(link) = &source.felix else { continue };
        let key = |field: &str| format!("source[{index}].{field}");
        if configuration.felix.iter().all(|card| card.name != link.card) {
            let known = configuration.felix.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(", ");
            let message = format!("no [[felix]] card is named `{}`; there are: {known}", link.card);
            return Err(fault(key("felix.card"), message));
        }
        if usize::from(link.elink) >= ELINKS {
            return Err(fault(key("felix.elink"), format!("a card has the e-links 0 to {}", ELINKS - 1)));
        }
        if let Some(other) = taken.insert((&link.card, link.elink), index) {
            let message = format!("source[{other}] is that e-link already");
            return Err(fault(key("felix.elink"), message));
        }
        let other = *first.entry(&link.card).or_insert(index);
        if configuration.source[other].readout != source.readout {
            let readout = &configuration.source[other].readout;
            let message = format!("source[{other}] of the same card is in `{readout}`: one readout unit reads a card");
            return Err(fault(key("readout"), message));
        }
        let bits =
            configuration.felix.iter().find(|card| card.name == link.card).and_then(|card| card.event.rule().bits());
        if source.counter_bits.is_some() && source.counter_bits != bits {
            return Err(fault(
                key("counter_bits"),
                "the card's `event` says how many bits the number has: leave it out",
            ));
        }
    }
    Ok(())
}

fn card(configuration: &Configuration, card: &FelixSection, key: impl Fn(&str) -> String) -> Result<(), Fault> {
    let links = configuration.source.iter().filter_map(|source| Some((source, source.felix.as_ref()?)));
    let links: Vec<_> = links.filter(|(_, link)| link.card == card.name).collect();
    if links.is_empty() {
        let message =
            format!("no source is an e-link of it: give one `felix = {{ card = \"{}\", elink = 0 }}`", card.name);
        return Err(fault(key("name"), message));
    }
    if card.event.rule().bits().is_none_or(|bits| bits < 8) {
        let message = "a field of 1 to 8 bytes, and a mask of at least 8 neighbouring bits in it";
        return Err(fault(key("event"), message));
    }
    let largest = links.iter().map(|(source, _)| source.max_fragment.0).max().unwrap_or(0);
    let needed = (4 * largest).max(1 << 20);
    if card.memory.0 < needed {
        let message = format!(
            "{} hold too little: four of the largest chunks and 1 MiB at least, {} in all; enlarge it, or lower the \
             sources' max_fragment",
            card.memory,
            Bytes(needed)
        );
        return Err(fault(key("memory"), message));
    }
    if let Some((name, message)) = card.serve.as_ref().and_then(ServeSection::fault) {
        return Err(fault(key(&format!("serve.{name}")), message));
    }
    if card.input.is_some() && card.emulate.is_some() {
        return Err(fault(key("input"), "an emulated card reads nothing: leave out `input` or [felix.emulate]"));
    }
    if card.input_speed.is_some() && card.input.is_none() {
        return Err(fault(key("input_speed"), "nothing is read: give `input`, or leave it out"));
    }
    if card.writer == WriterChoice::Process && card.emulate.is_none() {
        return Err(fault(
            key("writer"),
            "only an emulated card is written by a process that a run starts: leave it out",
        ));
    }
    let Some(emulate) = &card.emulate else { return Ok(()) };
    let sizes =
        [("emulate.chunk_size", emulate.chunk_size), ("emulate.trigger_chunk_size", emulate.trigger_chunk_size)];
    for (name, size) in sizes {
        if u64::from(size.0.largest()) > largest {
            return Err(fault(key(name), "the emulated chunks are larger than the sources' max_fragment allows"));
        }
    }
    for (index, outage) in emulate.outages.iter().enumerate() {
        if links.iter().all(|(_, link)| link.elink != outage.elink) {
            return Err(fault(key(&format!("emulate.outages[{index}].elink")), "no source is this e-link"));
        }
    }
    match FAULTS.iter().find(|fault| fault.is_of_streams() && emulate.faults.0.of(**fault) > 0.0) {
        Some(fault) => Err(self::fault(
            key(&format!("emulate.faults.{}", fault.name())),
            "in a card's memory every block has its place; only a stream can lose bytes, see `felix generate`",
        )),
        None => Ok(()),
    }
}
