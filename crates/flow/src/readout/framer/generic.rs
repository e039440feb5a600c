//! Generic fragments: a header of 32 bytes in front of each payload.

use crate::messages::{FragmentFlags, FragmentMeta, Received};
use ropewalk_memory::ByteQueue;
use ropewalk_terms::Cause;
use ropewalk_wire::generic::{HEADER_BYTES, Header, Hello};

/// A stream of generic fragments, behind its hello.
#[derive(Debug)]
pub(super) struct GenericStream {
    hello: Hello,
}

impl GenericStream {
    /// The stream of the source that its hello names.
    pub(super) const fn new(hello: Hello) -> Self {
        Self { hello }
    }

    pub(super) const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Appends whole fragments until `out` has `end`, or the next one has not come whole.
    pub(super) fn next_batch(
        &mut self,
        queue: &mut ByteQueue,
        out: &mut Vec<Received>,
        end: usize,
        max_fragment: u32,
    ) -> Result<(), Cause> {
        while out.len() < end {
            let Some(bytes) = queue.peek_array::<HEADER_BYTES>(0) else { break };
            let header = Header::parse(&bytes).map_err(|error| error.cause())?;
            let checked = header.check(self.hello.source, max_fragment);
            if let Err(error) = checked
                && error.loses_framing()
            {
                return Err(error.cause());
            }
            if queue.len() < header.fragment_bytes() {
                break;
            }
            queue.skip(HEADER_BYTES);
            let payload = queue.take(header.payload_bytes as usize);
            let mut meta = self.describe(&header);
            if checked.is_err() {
                meta.flags = meta.flags.with(FragmentFlags::WRONG_SOURCE);
            }
            out.push(Received { meta, restarts: header.flags.has_resync(), payload });
        }
        Ok(())
    }

    #[inline]
    fn describe(&self, header: &Header) -> FragmentMeta {
        FragmentMeta {
            source: self.hello.source,
            length: header.payload_bytes,
            flags: if header.timestamp == 0 { FragmentFlags::default() } else { FragmentFlags::HAS_TIME },
            bunch_crossing: 0,
            trigger_type: 0,
            raw_id: header.event_number,
            time: header.timestamp,
        }
    }
}
