//! What a configuration would say of datagrams, as far as it was guessed.

use super::{Guess, Meaning};
use core::fmt::Write;
use core::net::IpAddr;

/// Bytes that a configuration can demand of every datagram.
const MOST_MATCHED: usize = 8;

/// A `[[source]]` for what goes to this port.
pub(super) fn draft(port: u16, addresses: &[IpAddr], guesses: &[Guess], longest: usize) -> String {
    let mut text = format!(
        "[[source]]\nname = \"port-{port}\"\nid = 1\nlisten = \"udp://0.0.0.0:{port}\"\nframe = \"datagram\"\n"
    );
    let mut line = |words: core::fmt::Arguments<'_>| {
        // A string takes everything.
        let _ = text.write_fmt(words);
        text.push('\n');
    };
    if let Some((at, bytes)) = magic(guesses) {
        let bytes = &bytes[..bytes.len().min(MOST_MATCHED)];
        line(format_args!("match = {{ at = {at}, bytes = {} }}", bytes_text(bytes)));
    }
    let mut different = addresses.to_vec();
    different.sort_unstable();
    different.dedup();
    if different.len() > 1 {
        line(format_args!("demux = {{ at = \"ip.source\" }}                 # {} senders", different.len()));
    }
    let mut counters = 0;
    for guess in guesses {
        let (at, kind) = (guess.place.at, guess.place.type_text());
        match &guess.meaning {
            Meaning::Counter if counters == 0 => {
                counters += 1;
                line(format_args!("sequence = {{ at = {at}, type = \"{kind}\" }}"));
                line(format_args!(
                    "event = {{ at = {at}, type = \"{kind}\" }}        # or another field: is this the event's number?"
                ));
            }
            Meaning::Counter => line(format_args!("# counts, too: {{ at = {at}, type = \"{kind}\" }}")),
            Meaning::Clock { tick_nanoseconds } => {
                line(format_args!(
                    "# a clock: time = {{ at = {at}, type = \"{kind}\", tick = \"{}\" }}",
                    tick_text(*tick_nanoseconds)
                ));
            }
            Meaning::Length { unit, more } => {
                line(format_args!("# a length: {{ at = {at}, type = \"{kind}\" }}, {unit} B each and {more} B more"));
            }
            Meaning::Constant(_) | Meaning::Sender => {}
        }
    }
    line(format_args!("# the longest datagram had {longest} B"));
    text
}

/// The constant that tells such datagrams best: letters before other bytes, the longer the better.
fn magic(guesses: &[Guess]) -> Option<(usize, &[u8])> {
    let constants = guesses.iter().filter_map(|guess| match &guess.meaning {
        Meaning::Constant(bytes) => Some((guess.place.at, &bytes[..])),
        _ => None,
    });
    let runs = constants.flat_map(|(at, bytes)| letters(at, bytes).into_iter().chain(others(at, bytes)));
    runs.max_by_key(|(at, bytes)| (bytes.iter().all(u8::is_ascii_graphic), bytes.len(), core::cmp::Reverse(*at)))
}

/// The longest run of letters, of at least two.
fn letters(at: usize, bytes: &[u8]) -> Option<(usize, &[u8])> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric();
    let runs = bytes.chunk_by(|one, two| is_letter(one) == is_letter(two)).scan(0, |start, run| {
        *start += run.len();
        Some((*start - run.len(), run))
    });
    let longest = runs.filter(|(_, run)| is_letter(&run[0]) && run.len() > 1).max_by_key(|(_, run)| run.len());
    longest.map(|(start, run)| (at + start, run))
}

/// All of it, unless it is zeros or a single byte.
fn others(at: usize, bytes: &[u8]) -> Option<(usize, &[u8])> {
    (bytes.len() > 1 && bytes.iter().any(|byte| *byte != 0)).then_some((at, bytes))
}

/// Letters as they are, other bytes as numbers.
fn bytes_text(bytes: &[u8]) -> String {
    if bytes.iter().all(u8::is_ascii_alphanumeric) {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    let numbers: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
    format!("[{}]", numbers.join(", "))
}

/// The length of a clock's tick with a unit, to four digits.
pub fn tick_text(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ..1e3 => (nanoseconds, "ns"),
        1e3..1e6 => (nanoseconds / 1e3, "us"),
        1e6..1e9 => (nanoseconds / 1e6, "ms"),
        _ => (nanoseconds / 1e9, "s"),
    };
    let digits = 3 - (value.max(1e-9).log10().floor() as i32).clamp(0, 3);
    let text = format!("{value:.*}", digits as usize);
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short}{unit}")
}
