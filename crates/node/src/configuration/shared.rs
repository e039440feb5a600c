//! Sources that share their way in: boards that send to one address, or whose packets are in one capture.

use super::entrance::NetworkAddress;
use super::layout::{BoardChoice, DemuxTable};
use super::model::Configuration;
use super::parse::{Fault, Faults};
use super::source::SourceSection;

/// Whether all that share their way in are told apart.
pub(super) fn check(configuration: &Configuration, faults: &mut Faults) {
    for (index, source) in configuration.source.iter().enumerate() {
        for (first, known) in configuration.source[..index].iter().enumerate() {
            let key = |field: &str| format!("source[{index}].{field}");
            if listens_beside(known, source) {
                faults.keep(one_socket(first, known, source).map_err(|message| Fault::new(key("listen"), message)));
            }
            if listens_beside(known, source) || known.shares_capture(source) {
                let (Some(known), Some(demux)) = (&known.demux, &source.demux) else { continue };
                faults.keep(told_apart(first, known, demux).map_err(|message| Fault::new(key("demux"), message)));
            }
        }
    }
}

/// Whether both take datagrams at the same address of one readout unit; those of others may be other machines.
fn listens_beside(known: &SourceSection, source: &SourceSection) -> bool {
    let is_any_port = matches!(&source.listen, Some(place @ NetworkAddress::Udp(..)) if place.port().is_none());
    source.comes_in_datagrams() && source.listen == known.listen && !is_any_port && source.readout == known.readout
}

/// There is one socket, and whose a datagram is must be known.
fn one_socket(first: usize, known: &SourceSection, source: &SourceSection) -> Result<(), String> {
    if known.demux.is_none() || source.demux.is_none() {
        let demux = "`demux = { at = \"ip.source\" }` in both";
        return Err(format!("source[{first}] listens there, too: what tells the two boards apart? {demux}"));
    }
    Ok(())
}

/// Boards are told apart by one thing, and each says which one it is, or none.
fn told_apart(first: usize, known: &DemuxTable, demux: &DemuxTable) -> Result<(), String> {
    let by = |demux: &DemuxTable| (demux.at, demux.kind, demux.mask, demux.shift);
    if by(known) != by(demux) {
        return Err(format!(
            "source[{first}], which shares its way in, is told apart by something else: one of the two is wrong"
        ));
    }
    match (&known.is, &demux.is) {
        (Some(one), Some(other)) => match other.all().iter().find(|board| one.all().contains(board)) {
            Some(board) => Err(format!("source[{first}] is {} already", name(*board))),
            None => Ok(()),
        },
        (Some(_), None) | (None, Some(_)) => {
            Err(format!("either both this and source[{first}] say which board they are (`is`), or neither does"))
        }
        _ => Ok(()),
    }
}

fn name(board: BoardChoice) -> String {
    match board {
        BoardChoice::Number(number) => format!("the board {number}"),
        BoardChoice::Address(address) => format!("the board at {address}"),
    }
}
