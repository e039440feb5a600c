//! Unknown datagrams: senders, guesses, and a draft of their configuration.

use crate::arguments::SniffOptions;
use crate::exit::{self, Failure};
use crate::files::write_out;
use crate::render::grouped;
use ropewalk_node::offline::foreign::{sniff_capture, sniff_socket};
use ropewalk_wire::sniff::{Guess, Meaning, Sniffed, tick_text};
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

pub(crate) fn sniff(options: &SniffOptions) -> Result<u8, Failure> {
    let found = match options.input.strip_prefix("udp:") {
        None => sniff_capture(Path::new(&options.input))?,
        Some(port) => {
            let text = || format!("`udp:{port}`: a port is a number below 65536, such as udp:6006");
            let port: u16 = port.parse().map_err(|_| Failure::Usage(text()))?;
            let socket = UdpSocket::bind(("0.0.0.0", port));
            let socket = socket.map_err(|error| Failure::Environment(format!("udp:{port}: {error}")))?;
            let local = socket.local_addr().map_err(|error| Failure::Environment(error.to_string()))?;
            // Ports may be 0: whoever sends is told.
            write_out(format!("ready udp {local}\n").as_bytes())?;
            sniff_socket(&socket, Duration::from_secs(options.seconds), options.save.as_deref())?
        }
    };
    if found.is_empty() {
        write_out(b"no datagrams\n")?;
        return Ok(exit::LOST);
    }
    let text: Vec<String> = found.iter().map(port_text).collect();
    write_out(text.join("\n").as_bytes())?;
    Ok(exit::GOOD)
}

fn port_text(sniffed: &Sniffed) -> String {
    let mut text = format!("port {}\n", sniffed.port);
    for sender in &sniffed.senders {
        let rate = sender.rate_hz.map_or_else(String::new, |rate| format!(", {rate:.1} Hz"));
        let (datagrams, bytes) = (grouped(sender.datagrams), grouped(sender.bytes));
        let (least, most) = (sender.least_bytes, sender.most_bytes);
        text.push_str(&format!(
            "  {}: {datagrams} datagrams, {bytes} bytes, {least} to {most} each{rate}\n",
            sender.address
        ));
    }
    for head in &sniffed.heads {
        let hex: Vec<String> = head.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("    {}\n", hex.join(" ")));
    }
    sniffed.guesses.iter().for_each(|guess| text.push_str(&format!("  {}\n", guess_text(guess))));
    text.push_str(&format!("\n{}", sniffed.draft));
    text
}

fn guess_text(guess: &Guess) -> String {
    let (at, kind, end) = (guess.place.at, guess.place.type_text(), guess.place.at + guess.place.bytes - 1);
    match &guess.meaning {
        Meaning::Counter => format!("{at:>3} {kind:<6} counts, one more each time"),
        Meaning::Clock { tick_nanoseconds } => {
            format!("{at:>3} {kind:<6} a clock, tick {}", tick_text(*tick_nanoseconds))
        }
        Meaning::Length { unit, more } => format!("{at:>3} {kind:<6} the length: {unit} B each, and {more} B"),
        Meaning::Constant(bytes) => format!("{at:>3}-{end:<6} always \"{}\"", bytes.escape_ascii()),
        Meaning::Sender => format!("{at:>3}-{end:<6} the same for each sender"),
    }
}
