//! A file in the place of a source: a capture's datagrams or connection, or the bytes of any other file.

use super::choosing::{Chooser, ChosenFrames};
use super::connections::Connections;
use super::frames::{Carriage, Passing};
use super::input::Input;
use super::wanted::{Carrier, Wanted};
use crate::offline::{ByteOrigin, OfflineError};
use ropewalk_terms::Utc;
use ropewalk_wire::capture::{CaptureReader, Carried, Streams};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What was in a capture.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Packets that the source was given.
    pub taken: u64,
    /// Packets that are none of it, by the reason's name.
    pub aside: BTreeMap<&'static str, u64>,
    /// Connections that nobody wants, each as who sent to whom, with its packets.
    pub connections: BTreeMap<String, u64>,
    /// Places at which the capture is damaged.
    pub damaged: u64,
    /// Frames of a stream, where it holds those of several boards.
    pub chosen: Option<ChosenFrames>,
}

impl Passed {
    fn aside(&mut self, name: &'static str) {
        *self.aside.entry(name).or_default() += 1;
    }

    /// Whether every packet and frame was some source's, and one was this source's.
    pub fn is_pure(&self) -> bool {
        let has_some = self.chosen.as_ref().map_or(self.taken > 0, ChosenFrames::is_pure);
        self.aside.is_empty() && self.damaged == 0 && has_some
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 8;
        if let Some(chosen) = &self.chosen {
            chosen.fmt(out)?;
            if self.taken == 0 && self.aside.is_empty() && self.damaged == 0 {
                return Ok(());
            }
            out.write_str("; ")?;
        }
        write!(out, "{} packets were the source's", self.taken)?;
        if self.aside.is_empty() && self.damaged == 0 {
            return Ok(());
        }
        out.write_str("; not")?;
        let damaged = (self.damaged > 0).then_some(("damaged", self.damaged));
        for (index, (name, count)) in self.aside.iter().map(|(name, count)| (*name, *count)).chain(damaged).enumerate()
        {
            write!(out, "{} {name}: {count}", if index == 0 { "" } else { "," })?;
        }
        if !self.connections.is_empty() {
            let named = self.connections.iter().take(MOST).map(|(whose, count)| format!("{whose} ({count})"));
            let named = named.collect::<Vec<_>>().join(", ");
            let count = self.connections.len();
            write!(
                out,
                "; connections that no source reads: {count}: {named}: `from`, `from_port` or `connection` in `packets` \
                 says which one is meant"
            )?;
        }
        Ok(())
    }
}

/// Whether a file is a capture in which what is wanted comes in datagrams: the first packet that is wanted tells, whatever
/// carries it. None where it is no capture.
///
/// # Errors
/// Where it cannot be read.
pub fn capture_has_datagrams(path: &Path, wanted: &Wanted) -> Result<Option<bool>, OfflineError> {
    let mut input = Input::open(path)?;
    if !CaptureReader::recognises(input.begin()?) {
        return Ok(None);
    }
    let mut found = false;
    Carriage::default().read(&mut input, &mut |passing| {
        let Passing::Packet { carried, .. } = passing else { return ControlFlow::Continue(()) };
        found = wanted.pick(Carrier::Datagrams, carried).is_ok();
        if found || wanted.pick(Carrier::Connections, carried).is_ok() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(Some(found))
}

/// Takes a datagram: who sent it, when it came, and what it is; false where nobody wants any more.
pub(super) type Give<'a> = dyn FnMut(IpAddr, u16, Option<Utc>, &[u8]) -> bool + 'a;

/// Gives the wanted datagrams of a capture, each with who sent it and when, until `give` says that nobody wants any more.
///
/// # Errors
/// Where it cannot be read, or is no capture.
pub fn feed_datagrams(
    origin: &ByteOrigin,
    wanted: &Wanted,
    is_over: &Arc<AtomicBool>,
    give: &mut Give<'_>,
) -> Result<Passed, OfflineError> {
    let mut input = Input::of(origin.path(), origin.open(is_over)?)?;
    if !is_capture(&mut input)? {
        return Err(OfflineError::NeedsCapture { path: origin.path().to_owned(), format: "a source of datagrams" });
    }
    let mut passed = Passed::default();
    Carriage::default().read(&mut input, &mut |passing| {
        let time = if let Passing::Packet { time, .. } = &passing { *time } else { None };
        let Some(carried) = passed.packet(passing) else { return ControlFlow::Continue(()) };
        let is_wanted_still = match wanted.pick(Carrier::Datagrams, carried) {
            Ok(Carried::Datagram(it)) => passed.take(|| give(it.source.ip(), it.source.port(), time, it.payload)),
            Ok(Carried::Other(it)) => passed.take(|| give(it.source, 0, time, it.payload)),
            Ok(Carried::Segment(_) | Carried::Aside(_)) => true,
            Err(name) => {
                passed.aside(name);
                true
            }
        };
        if is_wanted_still { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(passed)
}

/// Gives the bytes of a file, unpacked if it is an LZ4 frame; of a capture those of the connection that is wanted; of the frames
/// of several boards those that are chosen. Says what passed in a capture, and how many frames were chosen.
///
/// # Errors
/// Where it cannot be read.
pub fn feed_stream(
    origin: &ByteOrigin,
    wanted: &Wanted,
    is_over: &Arc<AtomicBool>,
    give: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Option<Passed>, OfflineError> {
    let Some(chosen) = &wanted.chosen else { return feed_bytes(origin, wanted, is_over, give) };
    let mut chooser = Chooser::new(chosen.clone());
    let passed = feed_bytes(origin, wanted, is_over, &mut |bytes| chooser.push(bytes, give))?;
    let chosen = Some(chooser.end(give));
    Ok(Some(Passed { chosen, ..passed.unwrap_or_default() }))
}

fn feed_bytes(
    origin: &ByteOrigin,
    wanted: &Wanted,
    is_over: &Arc<AtomicBool>,
    give: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Option<Passed>, OfflineError> {
    let mut input = Input::of(origin.path(), origin.open(is_over)?)?;
    if is_capture(&mut input)? {
        return feed_connection(&mut input, wanted, give).map(Some);
    }
    // As it comes: whoever writes it may take his time.
    while !input.window().is_empty() || input.fill(1)? {
        let count = input.window().len();
        if !give(input.window()) {
            break;
        }
        input.take(count);
    }
    Ok(None)
}

/// Asks for no more bytes than it takes to see that.
fn is_capture(input: &mut Input) -> Result<bool, OfflineError> {
    input.fill(CaptureReader::MAGIC_BYTES)?;
    Ok(CaptureReader::recognises(input.window()))
}

fn feed_connection(
    input: &mut Input,
    wanted: &Wanted,
    give: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Passed, OfflineError> {
    let (mut passed, mut streams, mut bytes) = (Passed::default(), Streams::new(), Vec::new());
    let mut connections = Connections::default();
    Carriage::default().read(input, &mut |passing| {
        let Some(carried) = passed.packet(passing) else { return ControlFlow::Continue(()) };
        let segment = match wanted.pick(Carrier::Connections, carried) {
            Ok(Carried::Segment(segment)) => segment,
            Ok(_) => return ControlFlow::Continue(()),
            Err(name) => {
                passed.aside(name);
                return ControlFlow::Continue(());
            }
        };
        bytes.clear();
        streams.accept(&segment, &mut bytes);
        let is_wanted_still = match connections.number_of(&segment, !bytes.is_empty()) {
            Some(number) if number == wanted.connection => passed.take(|| bytes.is_empty() || give(&bytes)),
            Some(number) if !wanted.others.contains(&number) => {
                passed.aside("other_connection");
                let whose = format!("{} to {}", segment.source, segment.destination);
                *passed.connections.entry(whose).or_default() += 1;
                true
            }
            _ => true,
        };
        if is_wanted_still { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(passed)
}

impl Passed {
    /// What a packet carries; damage is counted.
    fn packet<'a>(&mut self, passing: Passing<'a>) -> Option<Carried<'a>> {
        match passing {
            Passing::Packet { carried, .. } => Some(carried),
            Passing::Damage { .. } => {
                self.damaged += 1;
                None
            }
        }
    }

    /// Counts what is given; false where nobody wants more.
    fn take(&mut self, give: impl FnOnce() -> bool) -> bool {
        self.taken += 1;
        give()
    }
}
