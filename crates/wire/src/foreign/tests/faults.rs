//! Frames that contradict themselves: each fault is told.

use super::*;
use crate::message::FragmentFlags;

/// What is told about a frame of which these bytes were changed.
fn damaged(format: ForeignFormat, event: u32, at: usize, bytes: &[u8]) -> Told {
    let mut frame = sample(format, 3, event).concat();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    told(format, &frame)
}

#[test]
fn a_part_that_goes_beyond_its_frame_is_a_fault() {
    let bank = damaged(ForeignFormat::Midas, 1, 16 + 8 + 8, &1000_u32.to_le_bytes());
    assert_eq!((bank.faults, bank.parts.len()), (vec!["a bank goes beyond its event"], 0));
    let readout = damaged(ForeignFormat::Ess, 1, 32, &1000_u16.to_le_bytes());
    assert_eq!((readout.faults, readout.parts.len()), (vec!["a readout goes beyond its packet"], 0));
    let none = damaged(ForeignFormat::Ess, 1, 32, &3_u16.to_le_bytes());
    assert_eq!(none.faults, ["a readout goes beyond its packet"], "it is shorter than its own header");
    let segment = damaged(ForeignFormat::Ejfat, 1, 4, &1000_u32.to_be_bytes());
    assert_eq!(segment.faults, ["the segment goes beyond its event"]);
    let page = damaged(ForeignFormat::Alice, 1, 10, &5000_u16.to_le_bytes());
    assert_eq!(page.faults, ["more memory is used than the page has"]);
    let header = damaged(ForeignFormat::Nscldaq, 1, 8, &5000_u32.to_le_bytes());
    assert_eq!(header.faults, ["the body header goes beyond the item"]);
}

#[test]
fn lengths_that_contradict_each_other_are_faults() {
    let banks = damaged(ForeignFormat::Midas, 1, 16, &9_u32.to_le_bytes());
    assert_eq!(banks.faults, ["the banks do not fill the event"]);
    let event = sample(ForeignFormat::Eudaq, 3, 1).concat();
    assert_eq!(told(ForeignFormat::Eudaq, &event[..event.len() - 1]).faults.len(), 1);
    assert_eq!(told(ForeignFormat::Eudaq, &[&event[..], b"x"].concat()).faults.len(), 1);
    let datagram = [&sample(ForeignFormat::Srs, 3, 1).concat()[..], b"xy"].concat();
    assert_eq!(told(ForeignFormat::Srs, &datagram).faults, ["the datagram ends within a word"]);
    assert!(ForeignFormat::Srs.fields(&datagram[..]).flags.has_error());
    let packet = damaged(ForeignFormat::LhcbMep, 1, 4, &5_u16.to_le_bytes());
    assert_eq!(packet.faults, ["the fragments are not those that the header promises"]);
    let header = damaged(ForeignFormat::Atlas, 1, 8, &3_u32.to_le_bytes());
    assert_eq!(header.faults, ["the header's lengths contradict each other"]);
    let frd = damaged(ForeignFormat::Frd, 1, 24 + 7, &[0x60]);
    assert_eq!(frd.faults, ["the data do not fall apart into FED fragments"]);
    let event = sample(ForeignFormat::Frd, 3, 1).concat();
    assert_eq!(told(ForeignFormat::Frd, &event[..event.len() - 1]).faults.len(), 1);
    let mdf = damaged(ForeignFormat::Mdf, 1, 48, &[0]);
    assert_eq!(mdf.faults, ["there is no bank where one should begin"]);
    let packed = damaged(ForeignFormat::Mdf, 1, 16, &[4]);
    assert_eq!((packed.faults, &packed.parts[..]), (vec![], &["compressed banks".to_owned()][..]));
    let fed = damaged(ForeignFormat::Fed, 1, 7, &[0x60]);
    assert_eq!(fed.faults, ["header, trailer and length do not belong together"]);
}

#[test]
fn fragments_within_fragments_are_looked_into() {
    let event = sample(ForeignFormat::Atlas, 3, 1).concat();
    // A full event's header has 17 words here, a ROB's 8, a ROD's 9; then a word of data, one of status, three of trailer.
    let rob = 17 * 4;
    let no_child = damaged(ForeignFormat::Atlas, 1, rob, &[0; 4]);
    assert_eq!(no_child.faults, ["no fragment where one should begin"]);
    let no_rod = damaged(ForeignFormat::Atlas, 1, rob + 32, &[0; 4]);
    assert_eq!(no_rod.faults, ["no ROD fragment in a ROB fragment"]);
    let trailer = damaged(ForeignFormat::Atlas, 1, rob + 32 + 11 * 4, &9_u32.to_le_bytes());
    assert_eq!(trailer.faults, ["the ROD trailer counts other words than there are"]);
    assert_eq!(event.len(), rob + 2 * (8 + 9 + 2 + 3) * 4);
    let is_flagged = |event: &[u8]| ForeignFormat::Atlas.fields(event).flags.contains(FragmentFlags::FRAMES_MISSING);
    let mut hole = event.clone();
    hole[rob..].fill(0);
    assert_eq!((is_flagged(&event), is_flagged(&hole)), (false, true), "a run says so, too");
}

#[test]
fn what_the_sender_marked_as_bad_is_a_fault() {
    let dune = damaged(ForeignFormat::Dune, 1, 52, &4_u32.to_le_bytes());
    assert_eq!(dune.faults, ["the sender set error bits"]);
    let artdaq = damaged(ForeignFormat::Artdaq, 1, 24, &[0]);
    assert_eq!(artdaq.faults, ["not marked valid", "not marked complete"]);
}

#[test]
fn banks_are_no_duty_of_a_fragment_but_half_a_bank_is_a_fault() {
    let mut packet = Vec::new();
    encode_mep(1, 0, [&b"no banks at all"[..], b""].into_iter(), &mut packet).expect("it is short");
    let without = told(ForeignFormat::LhcbMep, &packet);
    assert_eq!((without.faults, &without.parts[..]), (vec![], &["event", "no banks", "event"].map(String::from)[..]));
    assert_eq!(ForeignFormat::LhcbMep.fields(&packet[..]).source, None);
    let (mut banks, mut packet) = (Vec::new(), Vec::new());
    encode_bank(&bank(3, b"data"), &mut banks).expect("it is short");
    banks.extend_from_slice(b"rest");
    encode_mep(1, 0, [&banks[..]].into_iter(), &mut packet).expect("it is short");
    assert_eq!(told(ForeignFormat::LhcbMep, &packet).faults, ["there is no bank where one should begin"]);
}

#[test]
fn banks_with_headers_of_every_width_are_read() {
    for (flags, header) in [(1_u32, 8), (0x11, 12), (0x31, 16)] {
        let mut event = Vec::new();
        for data in [&b"eight..8"[..], b"five."] {
            event.extend_from_slice(b"BANK");
            if header == 8 {
                event.extend_from_slice(&1_u16.to_le_bytes());
                event.extend_from_slice(&(data.len() as u16).to_le_bytes());
            } else {
                event.extend_from_slice(&1_u32.to_le_bytes());
                event.extend_from_slice(&(data.len() as u32).to_le_bytes());
                event.resize(event.len() + header - 12, 0);
            }
            event.extend_from_slice(data);
            event.resize(event.len() + data.len().next_multiple_of(8) - data.len(), 0);
        }
        let bytes = event.len() as u64;
        let head = Header::<24>::new().with(midas::SIZE, bytes + 8).with(midas::BANK_BYTES, bytes);
        let event = [&head.with(midas::BANK_FLAGS, flags.into()).0[..], &event].concat();
        let banks: Vec<_> = midas::Banks::of(&event).map(|bank| bank.expect("a bank").data.to_vec()).collect();
        assert_eq!(banks, [b"eight..8".to_vec(), b"five.".to_vec()], "flags {flags:#x}");
        assert_eq!(told(ForeignFormat::Midas, &event).faults, [""; 0]);
    }
}

#[test]
fn a_datagram_that_ends_within_the_balancers_header_is_told_as_far_as_it_goes() {
    let datagram = &sample(ForeignFormat::Ejfat, 3, 2)[0][..12];
    let told = told(ForeignFormat::Ejfat, datagram);
    assert!(told.fields.contains("balancer version=2;") && !told.fields.contains("data id"), "{told:?}");
    assert!(!ForeignFormat::Ejfat.goes_on(datagram));
}
