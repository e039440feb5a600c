//! A file in the place of a source: a capture's datagrams or connection, or the bytes of any other file.

use super::account::unreadable;
use super::choosing::{Chooser, ChosenFrames};
use super::connections::Connections;
use super::frames::{Carriage, Passing};
use super::holes::{give_on, write_holes};
use super::input::{CutOff, Input};
use super::wanted::{Carrier, Wanted};
use crate::offline::{ByteOrigin, OfflineError, Packing};
use ropewalk_terms::Utc;
use ropewalk_wire::capture::{CaptureReader, Carried, Streams, Stretches};
use ropewalk_wire::mending::Mended;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was read of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// How it is packed.
    pub packing: Packing,
    /// Whether it is a capture.
    pub is_capture: bool,
    /// Bytes that were read, unpacked.
    pub bytes: u64,
    /// Packets that the source was given.
    pub taken: u64,
    /// Packets that are none of it, by the reason's name.
    pub aside: BTreeMap<&'static str, u64>,
    /// Connections that nobody wants, each as who sent to whom, with its packets.
    pub connections: BTreeMap<String, u64>,
    /// Places at which the capture is damaged.
    pub damaged: u64,
    /// Datagrams of which some IP fragments are missing.
    pub unfinished_datagrams: u64,
    /// Frames of a stream, where it holds those of several boards.
    pub chosen: Option<ChosenFrames>,
    /// The file breaks off.
    pub cut_off: Option<CutOff>,
    /// Bytes of a connection that a capture misses.
    pub mended: Mended,
}

impl Passed {
    fn aside(&mut self, name: &'static str) {
        *self.aside.entry(name).or_default() += 1;
    }

    /// Whether every packet and frame was some source's, and one was this source's.
    pub fn is_pure(&self) -> bool {
        let has_some = self.chosen.as_ref().map_or(self.has_some(), ChosenFrames::is_pure);
        let is_whole = self.cut_off.is_none()
            && self.mended == Mended::default()
            && self.damaged == 0
            && self.unfinished_datagrams == 0;
        self.aside.is_empty() && is_whole && has_some
    }

    /// Whether something of it was the source's.
    pub fn has_some(&self) -> bool {
        match &self.chosen {
            Some(chosen) => chosen.own > 0,
            None if self.is_capture => self.taken > 0,
            None => self.bytes > 0,
        }
    }

    /// Packets that cannot be read: damaged, kept in part, or with wrong lengths or checksums.
    pub fn unreadable_packets(&self) -> u64 {
        self.damaged + unreadable(&self.aside)
    }

    /// What an input was, from which all has been read that is wanted.
    fn of(self, input: &Input, is_over: &AtomicBool) -> Self {
        // A run that is stopped does not read to the end.
        let cut_off = self.cut_off.or_else(|| input.cut_off()).filter(|_| !is_over.load(Ordering::Relaxed));
        Self { packing: input.packing(), bytes: input.bytes_read(), cut_off, ..self }
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(chosen) = &self.chosen {
            chosen.fmt(out)?;
        }
        if self.is_capture {
            out.write_str(if self.chosen.is_some() { "; " } else { "" })?;
            self.write_packets(out)?;
        } else if self.chosen.is_none() {
            write!(out, "{} bytes were read", self.bytes)?;
        }
        write_holes(&self.mended, out)?;
        if let Some(CutOff { why, .. }) = &self.cut_off {
            write!(out, "; it breaks off: {why}")?;
        }
        Ok(())
    }
}

impl Passed {
    fn write_packets(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 8;
        write!(out, "{} packets were the source's", self.taken)?;
        let aside = self.aside.iter().map(|(name, count)| (*name, *count));
        let others = [("damaged", self.damaged), ("unfinished_datagrams", self.unfinished_datagrams)];
        let not = aside.chain(others.into_iter().filter(|(_, count)| *count > 0));
        let not = not.map(|(name, count)| format!("{name}: {count}")).collect::<Vec<_>>();
        if !not.is_empty() {
            write!(out, "; not {}", not.join(", "))?;
        }
        if self.connections.is_empty() {
            return Ok(());
        }
        let named = self.connections.iter().take(MOST).map(|(whose, count)| format!("{whose} ({count})"));
        let (named, count) = (named.collect::<Vec<_>>().join(", "), self.connections.len());
        write!(
            out,
            "; connections that no source reads: {count}: {named}: `from`, `from_port` or `connection` in `packets` says \
             which one is meant"
        )
    }
}

/// Whether a file is a capture, packed or not.
///
/// # Errors
/// Where it cannot be opened, or nothing of it can be read.
pub fn is_capture_file(path: &Path) -> Result<bool, OfflineError> {
    let mut input = Input::open(path)?;
    let is_capture = CaptureReader::recognises(input.begin());
    match input.unreadable() {
        Some(error) => Err(error),
        None => Ok(is_capture),
    }
}

/// Whether a file is a capture in which what is wanted comes in datagrams: the first packet that is wanted tells, whatever
/// carries it. None where it is no capture.
///
/// # Errors
/// Where it cannot be read.
pub fn capture_has_datagrams(path: &Path, wanted: &Wanted) -> Result<Option<bool>, OfflineError> {
    let mut input = Input::open(path)?;
    if !CaptureReader::recognises(input.begin()) {
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
    });
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
    let mut input = Input::of_origin(origin, is_over)?;
    if !is_capture(&mut input) {
        return Err(OfflineError::NeedsCapture { path: origin.path().to_owned(), format: "a source of datagrams" });
    }
    let mut passed = Passed { is_capture: true, ..Passed::default() };
    let rest = Carriage::default().read(&mut input, &mut |passing| {
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
    });
    let (unfinished_datagrams, cut_off) = (rest.unfinished_datagrams, rest.cut_off);
    Ok(Passed { unfinished_datagrams, cut_off, ..passed }.of(&input, is_over))
}

/// Gives the bytes of a file, unpacked where it is packed; of a capture those of the connection that is wanted; of the frames
/// of several boards those that are chosen. Says what was read, and how many frames were chosen.
///
/// # Errors
/// Where it cannot be read.
pub fn feed_stream(
    origin: &ByteOrigin,
    wanted: &Wanted,
    is_over: &Arc<AtomicBool>,
    give: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Passed, OfflineError> {
    let Some(chosen) = &wanted.chosen else { return feed_bytes(origin, wanted, is_over, give) };
    let mut chooser = Chooser::new(chosen.clone());
    let passed = feed_bytes(origin, wanted, is_over, &mut |bytes| chooser.push(bytes, give))?;
    let chosen = Some(chooser.end(give));
    Ok(Passed { chosen, ..passed })
}

fn feed_bytes(
    origin: &ByteOrigin,
    wanted: &Wanted,
    is_over: &Arc<AtomicBool>,
    give: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Passed, OfflineError> {
    let mut input = Input::of_origin(origin, is_over)?;
    if is_capture(&mut input) {
        return Ok(feed_connection(&mut input, wanted, give).of(&input, is_over));
    }
    // As it comes: whoever writes it may take his time.
    while !input.window().is_empty() || input.fill(1) {
        let count = input.window().len();
        if !give(input.window()) {
            break;
        }
        input.take(count);
    }
    Ok(Passed::default().of(&input, is_over))
}

/// Asks for no more bytes than it takes to see that.
fn is_capture(input: &mut Input) -> bool {
    input.fill(CaptureReader::MAGIC_BYTES);
    CaptureReader::recognises(input.window())
}

fn feed_connection(input: &mut Input, wanted: &Wanted, give: &mut dyn FnMut(&[u8]) -> bool) -> Passed {
    let (mut passed, mut streams, mut stretches) = (Passed::default(), Streams::new(), Stretches::default());
    let (mut connections, mut mender) = (Connections::default(), wanted.mender());
    let rest = Carriage::default().read(input, &mut |passing| {
        let Some(carried) = passed.packet(passing) else { return ControlFlow::Continue(()) };
        let segment = match wanted.pick(Carrier::Connections, carried) {
            Ok(Carried::Segment(segment)) => segment,
            Ok(_) => return ControlFlow::Continue(()),
            Err(name) => {
                passed.aside(name);
                return ControlFlow::Continue(());
            }
        };
        stretches.clear();
        streams.accept(&segment, &mut stretches);
        let is_wanted_still = match connections.number_of(&segment) {
            Some(number) if number == wanted.connection => passed.take(|| give_on(&stretches, &mut mender, give)),
            Some(number) if !wanted.others.contains(&number) => {
                passed.aside("other_connection");
                let whose = format!("{} to {}", segment.source, segment.destination);
                *passed.connections.entry(whose).or_default() += 1;
                true
            }
            _ => true,
        };
        if is_wanted_still { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    streams.end(&mut |whose, stretches| {
        if connections.known(whose) == Some(wanted.connection) {
            give_on(stretches, &mut mender, give);
        }
    });
    mender.end(give);
    Passed { is_capture: true, cut_off: rest.cut_off, mended: mender.mended().clone(), ..passed }
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
