//! Reading a gateway's decisions in the order of events.

use crate::arguments::DecisionsOptions;
use crate::exit::{self, Failure};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::gateway::{Frame, Message, Stream};
use std::io::{BufWriter, Read, Write};
use std::net::TcpStream;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Prints a line for each decision until the gateway ends, or so many were printed.
pub(crate) fn decisions(options: &DecisionsOptions) -> Result<u8, Failure> {
    let environment = |error: std::io::Error| Failure::Environment(format!("{}: {error}", options.address));
    let mut connection = TcpStream::connect(&options.address).map_err(environment)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut bytes, mut room, mut left) = (Vec::new(), vec![0; READ_BYTES], options.count.unwrap_or(u64::MAX));
    while left > 0 {
        let read = connection.read(&mut room).map_err(environment)?;
        bytes.extend_from_slice(&room[..read]);
        let taken = print_whole(&bytes, &mut out, &mut left, options.json).map_err(|error| match error {
            Unprinted::Frame(error) => {
                Failure::Environment(format!("{}: not a gateway's decisions: {error}", options.address))
            }
            Unprinted::Output(error) => Failure::Environment(format!("standard output: {error}")),
        })?;
        bytes.drain(..taken);
        out.flush().map_err(|error| Failure::Environment(format!("standard output: {error}")))?;
        if read == 0 {
            break;
        }
    }
    Ok(exit::GOOD)
}

/// Why decisions could not be printed.
enum Unprinted {
    Frame(FrameError),
    Output(std::io::Error),
}

/// Prints the messages that are whole; how many bytes they had.
fn print_whole(bytes: &[u8], out: &mut impl Write, left: &mut u64, json: bool) -> Result<usize, Unprinted> {
    let mut rest = bytes;
    loop {
        let (kind, body, behind) = match Frame::split(rest) {
            Err(FrameError::Short) => return Ok(bytes.len() - rest.len()),
            split => split.map_err(Unprinted::Frame)?,
        };
        if let Message::Stream(stream) = Message::decode(kind, body).map_err(Unprinted::Frame)? {
            print(&stream, out, left, json).map_err(Unprinted::Output)?;
        }
        rest = behind;
    }
}

fn print(stream: &Stream, out: &mut impl Write, left: &mut u64, json: bool) -> std::io::Result<()> {
    for (number, entry) in (stream.before..).zip(stream.entries.iter()) {
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        if json {
            let line = serde_json::json!({
                "number": number,
                "event": entry.key.number(),
                "accept": entry.accept,
                "word": entry.word,
                "by_default": entry.by_default,
            });
            writeln!(out, "{line}")?;
        } else {
            let (decision, default) =
                (if entry.accept { "accept" } else { "reject" }, if entry.by_default { " by default" } else { "" });
            writeln!(out, "{} {decision} {:#x}{default}", entry.key, entry.word)?;
        }
    }
    Ok(())
}
