//! FED fragments and files of them: no bytes panic, and what is accepted comes back when encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_terms::SourceId;
use ropewalk_wire::fed::{Fragment, Header, Patch, split_file};

fuzz_target!(|bytes: &[u8]| {
    let split = split_file(bytes);
    let covered: usize = split.fragments.iter().chain([&split.gap]).map(ExactSizeIterator::len).sum();
    assert_eq!(covered, bytes.len());
    for range in split.fragments {
        let fragment = Fragment::parse(&bytes[range]).expect("what was cut is a fragment");
        let mut encoded = Vec::new();
        fragment.to_value().encode(&mut encoded).expect("it has whole words");
        if fragment.check_crc().is_ok() {
            // Equal but for bits outside the CRC, which the encoder keeps as well.
            assert_eq!(encoded, fragment.bytes());
        }
        let patch = Patch::for_length(encoded.len());
        let (header, rest) = encoded.split_first_chunk_mut().expect("a header");
        patch.apply(header, rest.last_chunk_mut().expect("a trailer"), Header::new(SourceId(1), 2, 3));
        assert_eq!(Fragment::parse(&encoded).map(|fragment| fragment.check_crc()), Ok(Ok(())));
    }
});
