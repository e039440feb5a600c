//! Streams of generic fragments: no bytes panic, and what is accepted comes back when encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::generic::{Fragment, HELLO_BYTES, Hello};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    if let Some((hello, behind)) = bytes.split_first_chunk::<HELLO_BYTES>()
        && let Ok(hello) = Hello::parse(hello)
    {
        assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        rest = behind;
    }
    while let Ok(Some((fragment, behind))) = Fragment::split_first(rest) {
        let mut encoded = Vec::new();
        fragment.to_value().encode(&mut encoded).expect("the length came out of 32 bits");
        let (again, nothing) = Fragment::split_first(&encoded).expect("a fragment").expect("a whole one");
        assert_eq!((again, nothing), (fragment, &[][..]));
        rest = behind;
    }
});
