//! A front end that sends anything.

use super::choices::Choices;
use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{Framer, FramerLimits, FramingError};
use ropewalk_memory::{Pool, PoolConfig, Slice, Staging};

/// Fragments up to this length are believed.
pub(super) const LIMITS: FramerLimits = FramerLimits { max_fragment: 4096, check_crc: true, gather: None };
/// Bytes of a connection that are looked at.
pub(super) const MOST_BYTES: usize = 16 << 10;

/// Feeds a framer with the same bytes cut in two ways: what it finds must not depend on the cuts.
///
/// # Panics
/// Where the machine does, where cuts matter, or where bytes are not accounted for.
pub fn framer(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let cuts = cuts(&mut choices);
    agree(&|| Framer::new(LIMITS), &cuts, choices.raw(MOST_BYTES));
}

/// Lengths in which a stream comes.
pub(super) fn cuts(choices: &mut Choices<'_>) -> [usize; 4] {
    std::array::from_fn(|_| 1 + choices.below(200) as usize)
}

/// What framers find in a stream must not depend on its cuts.
pub(super) fn agree(framer: &dyn Fn() -> Framer, cuts: &[usize], stream: &[u8]) {
    let Some(whole) = staged(stream) else { return };
    // What is given up is found as well: at most once between two fragments.
    let at_once = found(framer(), std::iter::once(whole.clone()), 2 * stream.len());
    let mut rest = whole;
    let mut next = cuts.iter().cycle();
    let pieces = std::iter::from_fn(|| {
        let cut = next.next().copied().unwrap_or(1).min(rest.len());
        (cut > 0).then(|| rest.split_to(cut))
    });
    let in_pieces = found(framer(), pieces, usize::MAX);
    assert_eq!(at_once.0.len(), in_pieces.0.len(), "cuts change how many fragments there are");
    for (one, other) in at_once.0.iter().zip(&in_pieces.0) {
        assert_eq!((one.meta, one.restarts), (other.meta, other.restarts));
        assert_eq!(contents(one), contents(other));
    }
    let cause = |error: Option<FramingError>| error.map(|error| error.cause);
    assert_eq!(cause(at_once.1), cause(in_pieces.1), "cuts change what is wrong");
}

fn contents(fragment: &Received) -> Vec<u8> {
    let mut bytes = vec![0; fragment.payload.len()];
    assert!(fragment.payload.copy_to(0, &mut bytes));
    bytes
}

/// The bytes in a pool's block.
pub(super) fn staged(bytes: &[u8]) -> Option<Slice> {
    let pool = Pool::new(PoolConfig::heap("stream", MOST_BYTES, 1)).expect("memory for one block");
    Staging::new(pool).write(bytes).filter(|_| !bytes.is_empty())
}

fn found(
    mut framer: Framer,
    pieces: impl Iterator<Item = Slice>,
    most: usize,
) -> (Vec<Received>, Option<FramingError>) {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    for piece in pieces {
        framer.push(piece);
        loop {
            let result = framer.next_batch(&mut batch, 8);
            let count = batch.len();
            assert!(count <= 8 && all.len() <= most, "more fragments than bytes");
            all.append(&mut batch);
            match result {
                Err(error) => return (all, Some(error)),
                Ok(()) if count == 0 => break,
                Ok(()) => {}
            }
        }
        let _ = (framer.is_mid_fragment(), framer.source(), framer.format());
    }
    (all, None)
}
