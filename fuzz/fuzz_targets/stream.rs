//! Messages of a stream of chunks: no bytes panic, and what is accepted comes back when encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::stream::{ChunkHead, ChunksView, FRAME_BYTES, Frame, Kind, Message, encode_heads, heads_bytes};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, body)) = bytes.split_first_chunk::<FRAME_BYTES>() else { return };
    let Ok(frame) = Frame::parse(head) else { return };
    assert_eq!(frame.to_bytes(), *head, "a frame comes back");
    if frame.kind == Kind::Chunks {
        return read_chunks(body, frame.body);
    }
    if let Ok(message) = Message::decode(frame.kind, body) {
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        assert_eq!(encoded[FRAME_BYTES..], *body, "a message comes back");
    }
});

fn read_chunks(table: &[u8], body: u32) {
    let Ok(view) = ChunksView::parse(table, body) else { return };
    let heads: Vec<ChunkHead> = view.heads().collect();
    let mut encoded = Vec::new();
    encode_heads(heads.iter().copied(), &mut encoded);
    assert_eq!(encoded.len(), heads_bytes(heads.len()));
    assert_eq!(encoded[FRAME_BYTES..], table[..encoded.len() - FRAME_BYTES], "the heads come back");
    assert_eq!(Frame::parse(encoded.first_chunk().expect("a frame")), Ok(Frame { kind: Kind::Chunks, body }));
}
