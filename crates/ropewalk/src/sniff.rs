//! Unknown frames: who sends them, guesses, and a draft of their configuration.

use crate::arguments::SniffOptions;
use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::render::grouped;
use ropewalk_flow::sniff::{Findings, Group, Transport};
use ropewalk_node::offline::foreign::{
    SniffReport, Sniffed, draft_text, sniff_connections, sniff_datagrams, sniff_file,
};
use std::fmt::Write;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

pub(crate) fn sniff(options: &SniffOptions) -> Result<u8, Failure> {
    let (time, save) = (Duration::from_secs(options.seconds), options.save.as_deref());
    let environment = |error: std::io::Error| Failure::Environment(format!("{}: {error}", options.input));
    let whole = |findings| Sniffed { findings, cut_off: None, missed_bytes: 0 };
    let sniffed = if let Some(place) = options.input.strip_prefix("udp:") {
        let socket = UdpSocket::bind(address(place, &options.input)?).map_err(environment)?;
        ready("udp", socket.local_addr().map_err(environment)?);
        whole(sniff_datagrams(&socket, time, save)?)
    } else if let Some(place) = options.input.strip_prefix("tcp-listen:") {
        let listener = TcpListener::bind(address(place, &options.input)?).map_err(environment)?;
        ready("tcp", listener.local_addr().map_err(environment)?);
        whole(sniff_connections(&listener, time, save)?)
    } else {
        sniff_file(Path::new(&options.input))?
    };
    if options.json {
        print_json(&SniffReport::new(&sniffed))?;
    } else {
        let mut text = findings_text(&sniffed.findings);
        if sniffed.missed_bytes > 0 {
            text.push_str(&format!("MISSING: {} bytes of connections\n", grouped(sniffed.missed_bytes)));
        }
        text.extend(sniffed.cut_off.iter().map(|cut_off| format!("CUT OFF: {}\n", cut_off.why)));
        write_results(text.as_bytes());
    }
    let is_whole = sniffed.cut_off.is_none() && sniffed.missed_bytes == 0;
    Ok(if sniffed.findings.groups.is_empty() || !is_whole { exit::LOST } else { exit::GOOD })
}

/// `PORT`, at all interfaces, or `ADDRESS:PORT`.
fn address(place: &str, whole: &str) -> Result<std::net::SocketAddr, Failure> {
    let port = place.parse::<u16>().map(|port| std::net::SocketAddr::from(([0; 4], port)));
    port.or_else(|_| place.parse()).map_err(|_| {
        let examples = "udp:6006, udp:127.0.0.1:6006, tcp-listen:5000";
        Failure::Usage(format!("`{whole}` is no place to listen at; such are {examples}"))
    })
}

/// Ports may be 0: whoever sends is told.
fn ready(scheme: &str, local: std::net::SocketAddr) {
    say!("ready {scheme} {local}");
}

fn findings_text(findings: &Findings) -> String {
    if findings.groups.is_empty() {
        return "nothing came\n".to_owned();
    }
    let groups: Vec<String> = findings.groups.iter().map(group_text).collect();
    let mut text = groups.join("\n");
    if findings.unheard > 0 {
        let _ = writeln!(text, "\n{} packets of further peers were not looked at", grouped(findings.unheard));
    }
    text
}

fn group_text(group: &Group) -> String {
    let mut text = String::new();
    // A string takes everything.
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    let transport = group.peers.first().map_or(Transport::Udp, |account| account.peer.transport);
    let port = group.peers.first().map_or(0, |account| account.peer.port);
    let what = match transport {
        Transport::File => return file_text(group),
        Transport::Tcp => "pieces",
        Transport::Udp => "datagrams",
    };
    line(format!("{} port {port}", if transport.is_stream() { "tcp" } else { "udp" }));
    for account in &group.peers {
        let (packets, bytes, rate) = (grouped(account.packets), grouped(account.bytes), account.rate());
        let (from, least, most) = (account.peer.from, account.least_bytes, account.most_bytes);
        line(format!("  {from}: {packets} {what}, {bytes} bytes, {least} to {most} each, {rate:.1} a second"));
        for shown in &account.shown {
            let hex: Vec<String> = shown.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
            line(format!("    {}", hex.join(" ")));
        }
    }
    text + &frames_text(group, transport.is_stream())
}

fn file_text(group: &Group) -> String {
    let bytes = group.peers.iter().map(|account| account.bytes).sum();
    format!("file, of which {} bytes were looked at\n{}", grouped(bytes), frames_text(group, true))
}

/// What frames were found, what they may mean, and the draft.
fn frames_text(group: &Group, is_stream: bool) -> String {
    let mut text = String::new();
    // A string takes everything.
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    if is_stream && group.framing.is_none() {
        line("  no frames were found".to_owned());
    } else {
        let (frames, least, most) = (grouped(group.frames), group.least_frame, group.most_frame);
        let rest = match group.unframed_bytes {
            _ if !is_stream => String::new(),
            0 => ", to the last byte".to_owned(),
            bytes => format!("; {} bytes belong to none", grouped(bytes)),
        };
        line(format!("  looked at {frames} frames of {least} to {most} bytes{rest}"));
    }
    group.guesses.iter().for_each(|guess| line(format!("  {guess}")));
    group.doubts.iter().for_each(|doubt| line(format!("  NOT CERTAIN: {doubt}")));
    if let Some(draft) = draft_text(group) {
        line(format!("\n# A draft, to be tried with `ropewalk source test`\n{}", draft.trim_end()));
    }
    text
}
