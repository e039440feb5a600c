//! Messages between builder units and filter nodes: no bytes panic, and what is accepted comes back when encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_wire::filter_node::{
    EVENT_HEAD, FILTER_NODE_VERSION, FRAGMENT_HEAD, FRAME_BYTES, Frame, Kind, decode_begin, decode_decision,
    decode_event_head, decode_fragment, decode_hello, decode_welcome, encode_begin, encode_decision, encode_event,
    encode_hello, encode_welcome,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, body)) = bytes.split_first_chunk::<FRAME_BYTES>() else { return };
    let Ok(frame) = Frame::parse(head) else { return };
    assert_eq!(frame.to_bytes(), *head, "a frame comes back");
    let mut encoded = Vec::new();
    match frame.kind {
        Kind::Hello => match decode_hello(body) {
            Ok((FILTER_NODE_VERSION, filter)) => encode_hello(filter, &mut encoded),
            _ => return,
        },
        Kind::Welcome => match decode_welcome(body) {
            Ok((events, histograms)) => encode_welcome(events, &histograms, &mut encoded),
            Err(_) => return,
        },
        Kind::Begin => match decode_begin(body) {
            Ok(run) => encode_begin(run, &mut encoded),
            Err(_) => return,
        },
        Kind::Decision => {
            let mut fills = Vec::new();
            match decode_decision(body, |histogram, value| fills.push((histogram, value))) {
                Ok((decision, result)) => encode_decision(&decision, fills.into_iter(), result, &mut encoded),
                Err(_) => return,
            }
        }
        Kind::Event => return read_event(body),
        Kind::Refuse | Kind::End => return,
    }
    assert_eq!(encoded[FRAME_BYTES..], *body, "a message comes back");
});

fn read_event(body: &[u8]) {
    let Some((head, rest)) = body.split_first_chunk::<EVENT_HEAD>() else { return };
    let Ok(event) = decode_event_head(head) else { return };
    let heads = rest.as_chunks::<FRAGMENT_HEAD>().0.iter().take(event.fragments.into());
    let fragments: Vec<_> = heads.map_while(|head| decode_fragment(head).ok()).collect();
    let payloads: u64 = fragments.iter().map(|fragment| u64::from(fragment.length)).sum();
    if fragments.len() == usize::from(event.fragments) && payloads < 1 << 20 {
        let mut encoded = Vec::new();
        encode_event(&event, fragments.iter(), &mut encoded);
        assert_eq!(encoded[FRAME_BYTES..], body[..encoded.len() - FRAME_BYTES], "the heads come back");
    }
}
