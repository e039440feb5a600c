//! What finds fragments in a connection's bytes, ready before the connection is there.

use ropewalk_flow::readout::{Framer, FramerLimits, SourceConfig};
use ropewalk_terms::SourceId;
use ropewalk_wire::description::Description;

/// Framers for two connections of each source, as there are for a moment when one comes back.
pub(super) fn spare_framers(sources: usize) -> Vec<Framer> {
    (0..2 * sources).map(|_| Framer::new(FramerLimits { max_fragment: 0, check_crc: false, gather: None })).collect()
}

/// What describes the frames of a source; none where it says itself how it is framed.
pub(super) fn described<'a>(
    source: &SourceConfig,
    descriptions: &'a [(SourceId, Description)],
) -> Option<&'a Description> {
    descriptions.iter().find(|(id, _)| *id == source.id).map(|(_, description)| description)
}

/// Framers for two connections of a source whose frames are described; none of another one.
pub(super) fn own_framers(source: &SourceConfig, description: Option<&Description>) -> Vec<Framer> {
    (0..2).filter_map(|_| own_framer(source, description)).collect()
}

pub(super) fn own_framer(source: &SourceConfig, description: Option<&Description>) -> Option<Framer> {
    Some(Framer::described(source.id, description?.clone(), limits(source)).counting_from(source.first))
}

/// What a source's fragments are held to.
pub(super) const fn limits(source: &SourceConfig) -> FramerLimits {
    let SourceConfig { max_fragment, check_crc, gather, .. } = *source;
    FramerLimits { max_fragment, check_crc, gather }
}
