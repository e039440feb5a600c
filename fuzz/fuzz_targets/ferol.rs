//! Streams of FEROL blocks: no bytes panic, and every fragment that begins is completed, given up or unfinished.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::ferol::{Assembly, Block, BlockHeader, FragmentError, HEADER_BYTES, Place};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((block, behind))) = Block::split_first(rest) {
        assert_eq!(block.header.block_bytes(), rest.len() - behind.len());
        rest = behind;
    }
    // Headers without payloads, each with a signature: the fuzzer cannot guess so many.
    let (mut assembly, mut begun, mut ended) = (Assembly::new(16 << 10), 0, 0);
    for header in bytes.as_chunks::<HEADER_BYTES>().0 {
        let mut header = *header;
        header[..2].copy_from_slice(&[0x47, 0x5A]);
        let Ok(header) = BlockHeader::parse(&header) else { continue };
        assert_eq!(BlockHeader::parse(&header.to_bytes()), Ok(header));
        let accepted = assembly.accept(&header);
        begun += u32::from(accepted.place == Place::Begins);
        ended += u32::from(accepted.completes.is_some());
        ended += u32::from(accepted.gives_up.is_some_and(|error| error != FragmentError::NoBeginning));
    }
    assert_eq!(begun, ended + u32::from(assembly.unfinished_bytes().is_some()));
});
