//! Stretches of packed segments.

use super::super::*;
use super::{cases, records};
use proptest::collection::vec;
use proptest::prelude::*;

const ALL: [Compression; 3] = [Compression::Zstd(1), Compression::Zstd(9), Compression::Lz4];

/// What the stretches of a file unpack to, one behind the other.
fn unpacked(file: &[u8]) -> Vec<u8> {
    let (mut all, mut stretch) = (Vec::new(), Vec::new());
    for (_, record) in records(file) {
        let packed = PackedStretch::parse(&record).expect("a packed stretch");
        assert_eq!(packed.offset, all.len() as u64);
        packed.unpack(&mut stretch).expect("what was packed");
        all.extend_from_slice(&stretch);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn what_is_packed_is_unpacked(pieces in vec(vec(0_u8..4, 0..3000), 1..5), which in 0..ALL.len()) {
        let mut packer = Packer::new(ALL[which]).expect("it packs");
        let (mut file, mut whole) = (Vec::new(), Vec::new());
        for piece in pieces {
            packer.pack(whole.len() as u64, &piece, &mut file).expect("it fits");
            whole.extend(piece);
        }
        prop_assert_eq!(unpacked(&file), whole);
    }

    #[test]
    fn no_bytes_make_unpacking_panic(bytes in vec(any::<u8>(), 24..200), codec in 0_u16..4, length in 0_u32..5000) {
        let mut file = Vec::new();
        let content = [&bytes[..8], &length.to_le_bytes(), &(bytes.len() as u32 - 24).to_le_bytes(), &codec.to_le_bytes(),
            &[0; 6], &bytes[24..]].concat();
        super::append_record(&mut file, RecordKind::PACKED, |out| out.extend_from_slice(&content)).expect("it is short");
        let record = records(&file)[0].1;
        let mut out = Vec::new();
        if let Ok(packed) = PackedStretch::parse(&record) && packed.unpack(&mut out).is_ok() {
            prop_assert_eq!(out.len(), length as usize);
        }
    }
}

#[test]
fn what_is_long_falls_apart_into_stretches_of_one_length() {
    let bytes: Vec<u8> = (0..2 * STRETCH_BYTES + 5).map(|place| (place / 1000) as u8).collect();
    let mut file = Vec::new();
    Packer::new(Compression::Lz4).expect("it packs").pack(0, &bytes, &mut file).expect("it fits");
    let places: Vec<_> = records(&file)
        .iter()
        .map(|(offset, _)| {
            let front = file[*offset as usize..][..PACKED_HEAD_BYTES].try_into().expect("a record's front");
            PackedStretch::place(front)
        })
        .collect();
    let stretch = STRETCH_BYTES as u64;
    assert_eq!(places, [(0, stretch + 3), (stretch + 3, stretch + 2)]);
    assert_eq!(unpacked(&file), bytes);
}

#[test]
fn compressions_have_names() {
    for (text, compression) in
        [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd:3", Compression::Zstd(3))]
    {
        assert_eq!((text.parse(), compression.to_string().as_str()), (Ok(compression), text));
    }
    for wrong in ["zstd", "zstd:0", "zstd:20", "gzip", ""] {
        assert_eq!(wrong.parse::<Compression>(), Err(NoCompression), "{wrong}");
    }
    assert!(Packer::new(Compression::None).is_none());
}
