//! Messages between nodes: no bytes panic, and what is accepted comes back when encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::message::{
    FragmentEntry, HEADER_BYTES, Header, Message, SuperFragmentEntry, SuperFragmentsEncoder, SuperFragmentsView,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = Header::decode(first) else { return read_tables(bytes) };
    assert_eq!(Header::decode(&header.to_bytes()), Ok(header), "a header comes back");
    if let Ok(message) = Message::decode(header.kind, body) {
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        // Not the same bytes: what is to be zero is ignored.
        assert_eq!(Message::decode(header.kind, &encoded), Ok(message), "a message comes back");
    }
    read_tables(body);
});

/// Reads prefix and tables of super-fragments, whose payloads would follow.
fn read_tables(body: &[u8]) {
    let prefix = body.first_chunk::<{ SuperFragmentsEncoder::PREFIX }>();
    if let Some(Ok(length)) = prefix.map(|prefix| SuperFragmentsView::table_bytes(*prefix)) {
        assert!(length <= SuperFragmentsView::MAX_TABLES, "tables that are too long are refused");
    }
    let Some(read) = entries(body) else { return };
    let mut encoded = Vec::new();
    let mut encoder = SuperFragmentsEncoder::new(&mut encoded);
    for (entry, fragments) in &read {
        encoder.add(*entry, fragments.iter().copied());
    }
    encoder.finish();
    let again = entries(&encoded).expect("it was just encoded");
    assert_eq!(again.len(), read.len());
    for ((entry, fragments), (before, fragments_before)) in again.iter().zip(&read) {
        // The encoder sums lengths up; a stranger's may be longer than any event.
        let bytes = fragments.iter().fold(0_u32, |bytes, fragment| bytes.saturating_add(fragment.meta.length));
        assert_eq!(*entry, SuperFragmentEntry { bytes, ..*before }, "a super-fragment comes back");
        assert_eq!(fragments, fragments_before, "its fragments come back");
    }
}

/// All super-fragments with their fragments; none if the tables are invalid.
fn entries(head: &[u8]) -> Option<Vec<(SuperFragmentEntry, Vec<FragmentEntry>)>> {
    let mut view = SuperFragmentsView::new(head).ok()?;
    let mut all = Vec::new();
    while let Some(entry) = view.next_super_fragment().ok()? {
        let mut fragments = Vec::new();
        while let Some(fragment) = view.next_fragment().ok()? {
            fragments.push(fragment);
        }
        all.push((entry, fragments));
    }
    Some(all)
}
