//! The fragments of a real detector: CMS cathode-strip chambers, local run 307511, FED 841 and FED 843.
//!
//! The files are not part of the repository. The tests need `ROPEWALK_DATA` and report if it is missing.

use ropewalk_terms::SourceId;
use ropewalk_wire::{fed, ferol};
use std::collections::BTreeMap;

struct File {
    name: &'static str,
    source: SourceId,
    largest: usize,
    of_48_bytes: usize,
    ferol_blocks: usize,
}

const FILES: [File; 2] = [
    File {
        name: "csc_00307511_EmuRUI01_Local_000.raw",
        source: SourceId(841),
        largest: 23_104,
        of_48_bytes: 4051,
        ferol_blocks: 4841,
    },
    File {
        name: "csc_00307511_EmuRUI03_Local_000.raw",
        source: SourceId(843),
        largest: 10_544,
        of_48_bytes: 4028,
        ferol_blocks: 4856,
    },
];

const EVENTS: usize = 4685;

/// The files' bytes, unless `test` must be skipped.
fn data(test: &str) -> Option<[Vec<u8>; 2]> {
    let directory = ropewalk_tidy::real_data(test, "cms_csc")?;
    Some(FILES.map(|file| {
        let path = directory.join(file.name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }))
}

fn fragments(bytes: &[u8]) -> Vec<fed::Fragment<'_>> {
    let split = fed::split_file(bytes);
    assert!(split.gap.is_empty());
    split.fragments.into_iter().map(|range| fed::Fragment::parse(&bytes[range]).expect("it was just cut")).collect()
}

#[test]
fn every_fragment_is_found_and_its_crc_is_right() {
    let Some(data) = data("every_fragment_is_found_and_its_crc_is_right") else { return };
    for (file, bytes) in FILES.iter().zip(&data) {
        let fragments = fragments(bytes);
        assert_eq!(fragments.len(), EVENTS);
        for (index, fragment) in fragments.iter().enumerate() {
            assert_eq!(fragment.check_crc(), Ok(()), "event {index}");
            assert_eq!(fragment.check_source(file.source), Ok(()));
            assert_eq!(fragment.header().level1_id() as usize, index + 1);
        }
        let sizes = fragments.iter().map(|fragment| fragment.bytes().len());
        assert_eq!((sizes.clone().min(), sizes.clone().max()), (Some(48), Some(file.largest)));
        assert_eq!(sizes.filter(|&size| size == 48).count(), file.of_48_bytes);
    }
}

#[test]
fn both_sources_saw_the_same_bunch_crossings() {
    let Some([one, two]) = data("both_sources_saw_the_same_bunch_crossings") else { return };
    let bunch_crossings = |bytes| -> BTreeMap<u32, u16> {
        let headers = fragments(bytes).into_iter().map(|fragment| fragment.header());
        headers.map(|header| (header.level1_id(), header.bunch_crossing())).collect()
    };
    assert_eq!(bunch_crossings(&one).len(), EVENTS);
    assert_eq!(bunch_crossings(&one), bunch_crossings(&two));
}

#[test]
fn interior_words_do_look_like_trailers() {
    let Some(data) = data("interior_words_do_look_like_trailers") else { return };
    let lookalikes = data.iter().flat_map(|bytes| fragments(bytes)).map(|fragment| {
        let words = fragment.payload().as_chunks().0;
        words.iter().filter(|&&word| fed::Trailer::parse(word).is_ok()).count()
    });
    assert_eq!(lookalikes.sum::<usize>(), 1366);
}

#[test]
fn a_cut_file_gives_every_fragment_before_the_cut() {
    let Some([bytes, _]) = data("a_cut_file_gives_every_fragment_before_the_cut") else { return };
    let whole = fed::split_file(&bytes).fragments;
    let split = fed::split_file(&bytes[..bytes.len() / 2]);
    assert_eq!(split.fragments, whole[..split.fragments.len()]);
    assert!(split.gap.len() < whole[split.fragments.len()].len());
}

#[test]
fn as_ferol_blocks_they_come_back() {
    let Some(data) = data("as_ferol_blocks_they_come_back") else { return };
    for (file, bytes) in FILES.iter().zip(&data) {
        let (mut stream, mut again) = (Vec::new(), Vec::new());
        for fragment in fragments(bytes) {
            ferol::encode_fragment(fragment.bytes(), file.source, fragment.header().level1_id(), &mut stream);
        }
        let (mut assembly, mut rest, mut blocks, mut completed) = (ferol::Assembly::new(32 << 10), &stream[..], 0, 0);
        while let Some((block, behind)) = ferol::Block::split_first(rest).expect("blocks") {
            let accepted = assembly.accept(&block.header);
            assert_eq!(accepted.gives_up, None);
            completed += usize::from(accepted.completes.is_some());
            blocks += 1;
            again.extend_from_slice(block.payload);
            rest = behind;
        }
        assert_eq!((completed, blocks), (EVENTS, file.ferol_blocks));
        assert!(&again == bytes, "the fragments differ");
    }
}

#[test]
fn patched_headers_give_right_crcs() {
    let Some([mut bytes, _]) = data("patched_headers_give_right_crcs") else { return };
    for range in fed::split_file(&bytes).fragments.into_iter().step_by(50) {
        let patch = fed::Patch::for_length(range.len());
        let fragment = &mut bytes[range];
        let new = fed::Header::new(SourceId(1), 0xAB_CDEF, 777);
        let (header, rest) = fragment.split_first_chunk_mut().expect("it has a header");
        patch.apply(header, rest.last_chunk_mut().expect("it has a trailer"), new);
        let view = fed::Fragment::parse(fragment).expect("well formed");
        assert_eq!((view.header(), view.check_crc()), (new, Ok(())));
    }
}
