//! Messages of netlink(7): made, and read without trust in what is in them.
//!
//! Numbers are in the byte order of the machine; everything begins at a multiple of four bytes.
//!
//! ```text
//! length 4 | kind 2 | flags 2 | sequence 4 | port 4 | head of the family | attributes: length 2, kind 2, value
//! ```

/// Bytes of a message before the family's own head.
const HEAD: usize = 16;
/// Bytes of an attribute before its value.
const ATTRIBUTE: usize = 4;
/// Whether there are attributes in an attribute's value.
const NESTED: u16 = 1 << 15;
/// The bits of an attribute's kind that are not flags.
const KIND: u16 = 0x3fff;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
/// The kind of a message that ends the answer to a request.
const ERROR: u16 = 2;

/// A message that is being made.
pub(super) struct Message {
    kind: u16,
    body: Vec<u8>,
}

impl Message {
    /// A message with the head of its family.
    pub(super) fn new(kind: u16, head: &[u8]) -> Self {
        Self { kind, body: head.to_vec() }
    }

    /// A message of a generic family (linux/genetlink.h: command, version, two bytes of nothing).
    pub(super) fn generic(family: u16, command: u8) -> Self {
        Self::new(family, &[command, 1, 0, 0])
    }

    /// With another attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        push(&mut self.body, kind, value);
        self
    }

    /// With an attribute that has attributes in it.
    pub(super) fn with_nested(self, kind: u16, attributes: &Attributes) -> Self {
        self.with(kind | NESTED, &attributes.0)
    }

    /// The bytes of a request whose end the kernel acknowledges.
    pub(super) fn bytes(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = ((HEAD + self.body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&(REQUEST | ACKNOWLEDGE).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// Attributes that are being made.
#[derive(Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// With another one.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        push(&mut self.0, kind, value);
        self
    }

    /// With one that has attributes in it.
    pub(super) fn with_nested(self, kind: u16, attributes: &Self) -> Self {
        self.with(kind | NESTED, &attributes.0)
    }
}

fn push(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend_from_slice(&((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// What an answer is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part<'a> {
    /// A message with what was asked for: what stands behind its head.
    Body(&'a [u8]),
    /// The end: 0, or the number of an error.
    End(i32),
}

/// The parts in bytes from the kernel that answer the request with this number; what else is in them is passed over.
pub(super) fn parts(mut bytes: &[u8], sequence: u32) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    while let Some((length, head)) = number(bytes).map(|length| length as usize).zip(bytes.get(..HEAD)) {
        let Some(body) = bytes.get(HEAD..length) else { break };
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        if number(&head[8..]) == Some(sequence) {
            match number(body) {
                // Errors are told as negative numbers.
                Some(error) if kind == ERROR => parts.push(Part::End((error as i32).wrapping_neg())),
                _ => parts.push(Part::Body(body)),
            }
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    parts
}

/// The attributes in some bytes: kind and value. They end where one does not fit.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.first_chunk().copied()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & KIND;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of a kind.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(other, _)| *other == kind).map(|(_, value)| value)
}

/// The number of four bytes at the beginning.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A text, without the zero that ends it.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The bytes of a text with the zero that ends it.
pub(super) fn ended(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
