//! Messages between nodes: no bytes panic, and what is accepted comes back when encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::message::{
    FragmentMeta, HEADER_BYTES, Header, Message, SuperFragmentEntry, SuperFragmentsEncoder, SuperFragmentsView,
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
        assert!(length <= SuperFragmentsView::MAX_TABLES, "nobody waits for tables that are too long");
    }
    let Some(read) = entries(body) else { return };
    let mut encoder = SuperFragmentsEncoder::default();
    for (entry, metas) in &read {
        // The encoder sums lengths up; a stranger's may be longer than any event.
        if metas.iter().map(|meta| u64::from(meta.length)).sum::<u64>() > u64::from(u32::MAX) {
            return;
        }
        encoder.add(*entry, metas.iter().copied());
    }
    let mut encoded = Vec::new();
    encoder.encode(&mut encoded);
    let again = entries(&encoded).expect("it was just encoded");
    assert_eq!(again.len(), read.len());
    for ((entry, metas), (before, metas_before)) in again.iter().zip(&read) {
        let bytes = metas_before.iter().map(|meta| meta.length).sum();
        assert_eq!(*entry, SuperFragmentEntry { bytes, ..*before }, "a super-fragment comes back");
        assert_eq!(metas, metas_before, "its fragments come back");
    }
}

/// All super-fragments with their fragments; none where the tables are not what they should be.
fn entries(head: &[u8]) -> Option<Vec<(SuperFragmentEntry, Vec<FragmentMeta>)>> {
    let mut view = SuperFragmentsView::new(head).ok()?;
    let mut all = Vec::new();
    while let Some(entry) = view.next_super_fragment().ok()? {
        let mut metas = Vec::new();
        while let Some(meta) = view.next_fragment().ok()? {
            metas.push(meta);
        }
        all.push((entry, metas));
    }
    Some(all)
}
