//! A `[[source]]` for what was sniffed, to be tried and corrected.

use super::stand_ins::StandIns;
use ropewalk_flow::sniff::{Group, Transport, draft};
use ropewalk_wire::framing::Framing;
use ropewalk_wire::layout::{Clock, Counts, Frame, Layout, Length, Number, Pattern, Plan, Size};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

/// The tables of the boards of a group, one for each address that datagrams come from; none where no frames were found.
/// With a `[[readout]]` named `ru0` beside them they are good configuration.
pub fn draft_text(group: &Group) -> Option<String> {
    let layout = draft(group)?;
    let plan = Plan::compile(&layout).ok()?;
    let (peer, is_udp) = (group.peers.first()?.peer, group.peers[0].peer.transport == Transport::Udp);
    let addresses: BTreeSet<IpAddr> = group.peers.iter().map(|account| account.peer.from.ip()).collect();
    let boards: Vec<Option<IpAddr>> =
        if is_udp && addresses.len() > 1 { addresses.into_iter().map(Some).collect() } else { vec![None] };
    let (mut text, mut stand_ins) = (String::new(), StandIns::default());
    // In the order in which a replay comes across them.
    group.peers.iter().for_each(|account| _ = stand_ins.of(account.peer.from.ip()));
    for (index, board) in boards.iter().enumerate() {
        let first = group.peers.iter().find(|account| board.is_none_or(|board| account.peer.from.ip() == board));
        let first = first.and_then(|account| account.shown.first()).map(|shown| plan.fields(&shown[..]));
        let scheme = if is_udp { "udp" } else { "tcp" };
        let is_file = peer.transport == Transport::File;
        let separator = if index == 0 { "" } else { "\n" };
        let (id, port) = (index + 1, peer.port);
        line(&mut text, format_args!("{separator}[[source]]\nname = \"board-{id}\"\nid = {id}\nreadout = \"ru0\""));
        let any = if peer.from.is_ipv6() { "[::]" } else { "0.0.0.0" };
        if is_file {
            line(&mut text, format_args!("input = \"FILE\""));
        } else {
            line(&mut text, format_args!("listen = \"{scheme}://{any}:{port}\""));
        }
        group.doubts.iter().for_each(|doubt| line(&mut text, format_args!("# Not certain: {doubt}")));
        frame(&mut text, &layout);
        if let Some(pattern) = &layout.matches {
            line(&mut text, format_args!("match = {}", pattern_text(pattern)));
        }
        if let Some(board) = board {
            demux(&mut text, *board, stand_ins.of(*board));
        }
        fields(&mut text, &layout, first.and_then(|fields| fields.event));
    }
    Some(text)
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // A string takes everything.
    let _ = text.write_fmt(words);
    text.push('\n');
}

/// Which board it is, by its own address and by that from which `ropewalk replay` plays it on one machine.
fn demux(text: &mut String, board: IpAddr, here: Ipv4Addr) {
    if board == IpAddr::V4(here) {
        return line(text, format_args!("demux = {{ at = \"ip.source\", is = \"{board}\" }}"));
    }
    line(
        text,
        format_args!("# The board's own address, and the one from which `ropewalk replay` plays it on this machine."),
    );
    line(text, format_args!("demux = {{ at = \"ip.source\", is = [\"{board}\", \"{here}\"] }}"));
}

fn fields(text: &mut String, layout: &Layout, first: Option<u64>) {
    if let Some(event) = layout.event.first() {
        let first = first.map_or_else(String::new, |first| format!(", first = {first}"));
        line(text, format_args!("event = {{ {}{first} }}", number_text(event)));
    }
    if let Some(sequence) = &layout.sequence {
        line(text, format_args!("sequence = {{ {} }}", number_text(sequence)));
    }
    if let Some(time) = &layout.time {
        line(text, format_args!("time = {{ {} }}", clock_text(time)));
    }
}

/// How frames are found.
fn frame(text: &mut String, layout: &Layout) {
    let max = layout.max;
    match &layout.frame {
        Frame::Length(length) => {
            line(text, format_args!("frame = {{ length = {{ {} }}, max = \"{max}B\" }}", length_text(length)));
        }
        Frame::Fixed { bytes } => line(text, format_args!("frame = {{ fixed = \"{bytes}B\" }}")),
        Frame::Sync { word, size: Size::Fixed { bytes } } => {
            line(text, format_args!("frame = {{ sync = {}, fixed = \"{bytes}B\" }}", bytes_text(word)));
        }
        Frame::Sync { word, size: Size::Length(length) } => {
            let (word, length) = (bytes_text(word), length_text(length));
            line(text, format_args!("frame = {{ sync = {word}, length = {{ {length} }}, max = \"{max}B\" }}"));
        }
        Frame::Delimiter { bytes } => {
            line(text, format_args!("frame = {{ delimiter = {}, max = \"{max}B\" }}", bytes_text(bytes)));
        }
        // Nobody guesses the others.
        Frame::Datagram | Frame::Several(_) | Frame::Pieces(_) | Frame::Trailer { .. } => {
            line(text, format_args!("frame = \"datagram\""));
        }
    }
}

fn number_text(number: &Number) -> String {
    let Number { at, bytes, is_big_endian, mask, .. } = *number;
    let order = match (bytes, is_big_endian) {
        (1, _) => "",
        (_, true) => "be",
        (_, false) => "le",
    };
    let mask = mask.map_or_else(String::new, |mask| format!(", mask = {mask:#x}"));
    format!("at = {at}, type = \"u{}{order}\"{mask}", 8 * u32::from(bytes))
}

fn length_text(length: &Length) -> String {
    let mut text = number_text(&length.number);
    if length.unit > 1 {
        let _ = write!(text, ", unit = {}", length.unit);
    }
    let _ = match length.counts {
        Counts::Frame => Ok(()),
        Counts::AfterField => write!(text, ", counts = \"after-field\""),
        Counts::Payload { header } => write!(text, ", counts = \"payload\", header = {header}"),
    };
    if length.add != 0 {
        let _ = write!(text, ", add = {}", length.add);
    }
    text
}

fn clock_text(clock: &Clock) -> String {
    let ticks = clock.ticks.first().map(number_text).unwrap_or_default();
    let nanoseconds = clock.tick_attoseconds as f64 / 1e9;
    let seconds = clock
        .seconds
        .as_ref()
        .map_or_else(String::new, |seconds| format!(", seconds = {{ {} }}", number_text(seconds)));
    format!("{ticks}, tick = \"{nanoseconds}ns\"{seconds}")
}

fn pattern_text(pattern: &Pattern) -> String {
    format!("{{ at = {}, bytes = {} }}", pattern.at, bytes_text(&pattern.bytes))
}

/// Letters as they are, other bytes as numbers.
fn bytes_text(bytes: &[u8]) -> String {
    if bytes.iter().all(u8::is_ascii_alphanumeric) {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    let numbers: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
    format!("[{}]", numbers.join(", "))
}
