//! A test front end that sends given data, and records it.

use super::PATIENCE;
use super::encode::{Random, SLINK_WORD, fed_fragment, ferol_blocks, generic_header, generic_hello, generic_payload};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The format of a front end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// FED fragments in FEROL blocks.
    Ferol,
    /// Generic fragments.
    Generic,
}

/// A front end with its connection and its record.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    pub(crate) id: u32,
    dialect: Dialect,
    address: String,
    stream: Option<TcpStream>,
    /// Completely sent events, each with a hash of the expected content of a file. Of duplicates the first one counts.
    sent: BTreeMap<u64, u64>,
    /// Sizes of its fragments: from `least` to `most` bytes.
    least: usize,
    most: usize,
}

/// Returns the hash by which contents are compared.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl FrontEnd {
    /// Connects a front end of FEROL blocks.
    pub(crate) fn ferol(address: &str, id: u32) -> Self {
        Self::new(address, id, Dialect::Ferol)
    }

    /// Connects a front end of generic fragments, and sends its hello.
    pub(crate) fn generic(address: &str, id: u32) -> Self {
        Self::new(address, id, Dialect::Generic)
    }

    fn new(address: &str, id: u32, dialect: Dialect) -> Self {
        let address = address.to_owned();
        let mut one = Self { id, dialect, address, stream: None, sent: BTreeMap::new(), least: 48, most: 6000 };
        one.connect();
        one
    }

    /// Sets one size for all further fragments, in bytes.
    pub(crate) fn with_size(mut self, bytes: usize) -> Self {
        (self.least, self.most) = (bytes, bytes);
        self
    }

    /// Opens the connection, or a new one.
    pub(crate) fn connect(&mut self) {
        let stream = TcpStream::connect(&self.address).expect("the readout unit listens");
        stream.set_nodelay(true).expect("a TCP option");
        // A readout unit that never reads again hangs, and a hang fails the test.
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket option");
        self.stream = Some(stream);
        if self.dialect == Dialect::Generic {
            self.send_bytes(&generic_hello(self.id));
        }
    }

    /// Closes the connection in order: everything that was sent arrives.
    pub(crate) fn disconnect(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns the expected content of a file for this event's fragment: the FED fragment, or the generic payload.
    pub(crate) fn content(&self, event: u64) -> Vec<u8> {
        let range = (self.most - self.least) as u64 / 8 + 1;
        // Most fragments are small, and some span several blocks.
        let draw = Random::new(event << 12 ^ u64::from(self.id)).next();
        let extra = if draw.is_multiple_of(8) { (draw >> 8) % range } else { (draw >> 8) % range.min(64) };
        let bytes = self.least + extra as usize * SLINK_WORD;
        match self.dialect {
            Dialect::Ferol => fed_fragment(self.id, event, bytes),
            Dialect::Generic => generic_payload(self.id, event, bytes),
        }
    }

    /// Returns the framed bytes for this event with this content.
    pub(crate) fn framed(&self, event: u64, content: &[u8]) -> Vec<u8> {
        match self.dialect {
            Dialect::Ferol => ferol_blocks(self.id, event, content),
            Dialect::Generic => {
                let mut bytes = generic_header(self.id, event, content.len() as u32);
                bytes.extend_from_slice(content);
                bytes
            }
        }
    }

    /// Sends the fragments of these events and records them.
    pub(crate) fn send(&mut self, events: impl IntoIterator<Item = u64>) {
        for event in events {
            let content = self.content(event);
            self.send_content(event, &content);
        }
    }

    /// Sends a fragment with this content and records it.
    pub(crate) fn send_content(&mut self, event: u64, content: &[u8]) {
        self.send_bytes(&self.framed(event, content));
        self.sent.entry(event).or_insert(hash(content));
    }

    /// As [`FrontEnd::send`], with a pause after each.
    pub(crate) fn send_slowly(&mut self, events: impl IntoIterator<Item = u64>, pause: Duration) {
        for event in events {
            self.send([event]);
            std::thread::sleep(pause);
        }
    }

    /// Sends as long as the peer listens, and records the completely sent events. Returns the number of the first event
    /// that was not sent.
    pub(crate) fn send_until_closed(&mut self, events: impl IntoIterator<Item = u64>, pause: Duration) -> Option<u64> {
        for event in events {
            let content = self.content(event);
            let bytes = self.framed(event, &content);
            let stream = self.stream.as_mut().expect("the front end is connected");
            if stream.write_all(&bytes).is_err() {
                return Some(event);
            }
            self.sent.entry(event).or_insert(hash(&content));
            std::thread::sleep(pause);
        }
        None
    }

    /// Sends exactly these bytes without recording them.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let id = self.id;
        let stream = self.stream.as_mut().expect("the front end is connected");
        stream.write_all(bytes).unwrap_or_else(|error| panic!("front end {id} cannot send: {error}"));
    }

    /// Sends these bytes as far as they are accepted: the peer may close at once.
    pub(crate) fn offer_bytes(&mut self, bytes: &[u8]) {
        let stream = self.stream.as_mut().expect("the front end is connected");
        let _ = stream.write_all(bytes);
    }

    /// Returns the events that it sent, each with the hash of the expected content.
    pub(crate) const fn sent(&self) -> &BTreeMap<u64, u64> {
        &self.sent
    }

    /// Removes the events after this one from the record, because the run was over: files need not contain them.
    pub(crate) fn forget_after(&mut self, last: u64) {
        self.sent.retain(|&event, _| event <= last);
    }

    /// Waits until the peer closes the connection.
    pub(crate) fn expect_closed(&mut self) {
        let stream = self.stream.take().expect("the front end is connected");
        assert!(is_closed(&stream), "the connection of front end {} is still open", self.id);
    }
}

/// Returns whether the peer closes the connection in time.
pub(crate) fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket option");
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => panic!("front ends get no answers"),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return true,
        }
    }
    false
}
