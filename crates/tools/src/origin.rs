//! Where bytes come from: a file, a FIFO or standard input, read without being stuck there when it is over.
//!
//! Packed files are known by their first bytes, and read as if they were not packed, as far as they go.

use super::OfflineError;
use lz4_flex::frame::FrameDecoder;
use ropewalk_config::ByteOrigin;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Cursor, Error, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long nothing may come before the end is checked: 50 ms.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Opens an origin for reading. The bytes end when no writer is left, or when `is_over` is set.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn open_origin(
    origin: &ByteOrigin,
    is_over: &Arc<AtomicBool>,
) -> Result<Box<dyn Read + Send>, OfflineError> {
    let reader = match origin {
        ByteOrigin::File(path) => InputReader::open(path, Arc::clone(is_over)),
        ByteOrigin::Fifo(path) => InputReader::fifo(path, Arc::clone(is_over)),
    };
    Ok(Box::new(reader?))
}

/// Bytes as they come. They end when no writer is left, or when `is_over` is set.
#[derive(Debug)]
struct InputReader {
    file: File,
    is_over: Arc<AtomicBool>,
}

impl InputReader {
    /// Opens a file or a FIFO, or standard input if the path is `-`. A FIFO does not need a writer yet.
    fn open(path: &Path, is_over: Arc<AtomicBool>) -> Result<Self, OfflineError> {
        let system = OfflineError::system("open", path);
        let descriptor = if path == Path::new("-") {
            std::io::stdin().as_fd().try_clone_to_owned()
        } else {
            // Otherwise opening a FIFO waits for its writer.
            rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
                .map_err(Into::into)
        };
        Ok(Self { file: descriptor.map_err(system)?.into(), is_over })
    }

    /// Opens a FIFO, which is made if it does not exist.
    fn fifo(path: &Path, is_over: Arc<AtomicBool>) -> Result<Self, OfflineError> {
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(OfflineError::system("make the FIFO", path)(error.into())),
        }
        let reader = Self::open(path, is_over)?;
        let stat =
            rustix::fs::fstat(&reader.file).map_err(|error| OfflineError::system("look at", path)(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo {
            return Ok(reader);
        }
        let error = std::io::Error::new(ErrorKind::AlreadyExists, "it is no FIFO; leave out `fifo:`, or name another");
        Err(OfflineError::system("read it as a FIFO", path)(error))
    }
}

impl Read for InputReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while !self.is_over.load(Ordering::Relaxed) {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
        Ok(0)
    }
}

/// Memory that unpacking an xz file may take: `xz -9` needs 65 MiB.
const MOST_XZ_BYTES: u64 = 256 << 20;
/// Matches any byte of a packed file's magic number.
const ANY: u8 = 0;

/// How a file is packed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Packing {
    /// It is not.
    #[default]
    None,
    /// Members of `gzip`.
    Gzip,
    /// Streams of `bzip2`.
    Bzip2,
    /// Streams of `xz`.
    Xz,
    /// Frames of `zstd`.
    Zstd,
    /// Frames of `lz4`.
    Lz4,
}

impl Packing {
    /// What packed files begin with.
    const MAGICS: [(Self, &[u8]); 6] = [
        (Self::Gzip, &[0x1F, 0x8B, 8]),
        (Self::Bzip2, &[b'B', b'Z', b'h', ANY, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59]),
        // Of a file without content.
        (Self::Bzip2, &[b'B', b'Z', b'h', ANY, 0x17, 0x72, 0x45, 0x38, 0x50, 0x90]),
        (Self::Xz, &[0xFD, b'7', b'z', b'X', b'Z']),
        (Self::Zstd, &[0x28, 0xB5, 0x2F, 0xFD]),
        (Self::Lz4, &[0x04, 0x22, 0x4D, 0x18]),
    ];

    /// The name for display.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }

    /// The compression of data with these first bytes; `None` also while there are too few of them.
    fn of(first: &[u8]) -> Self {
        let known = Self::MAGICS.iter().find(|(_, magic)| first.len() == magic.len() && agrees(magic, first));
        known.map_or(Self::None, |(packing, _)| *packing)
    }
}

/// Whether `first` are the first bytes of `magic`.
fn agrees(magic: &[u8], first: &[u8]) -> bool {
    first.len() <= magic.len() && magic.iter().zip(first).all(|(magic, byte)| *magic == ANY || magic == byte)
}

/// The bytes of a file, decompressed if it is compressed.
///
/// Reading fails if the compressed bytes are damaged or cut off, after everything before that was read.
pub(crate) struct Unpacked {
    packing: Packing,
    read: Box<dyn Read + Send>,
}

impl Unpacked {
    /// Reads the bytes needed to recognise the compression: usually one.
    ///
    /// # Errors
    /// If the first bytes cannot be read.
    pub(crate) fn new(mut read: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut first = Vec::new();
        let is_open = |first: &[u8]| {
            Packing::of(first) == Packing::None && Packing::MAGICS.iter().any(|(_, magic)| agrees(magic, first))
        };
        while is_open(&first) {
            let mut byte = [0];
            match read.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => first.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let packing = Packing::of(&first);
        let whole = Cursor::new(first).chain(read);
        let read: Box<dyn Read + Send> = match packing {
            Packing::None => Box::new(whole),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(whole)),
            Packing::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(whole)),
            Packing::Xz => {
                let stream = liblzma::stream::Stream::new_stream_decoder(MOST_XZ_BYTES, liblzma::stream::CONCATENATED)?;
                Box::new(liblzma::read::XzDecoder::new_stream(whole, stream))
            }
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(whole)?),
            Packing::Lz4 => Box::new(Lz4::new(whole)),
        };
        Ok(Self { packing, read })
    }

    /// How the file is packed.
    pub(crate) const fn packing(&self) -> Packing {
        self.packing
    }
}

impl Read for Unpacked {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read.read(into)
    }
}

/// Successive LZ4 frames.
///
/// The decoder takes the end of the file for the end of a frame, wherever it is, so this reader follows the frames too.
struct Lz4<R: Read> {
    /// One for each frame: it does not take a second one with smaller blocks.
    decoder: Option<FrameDecoder<Frames<R>>>,
}

impl<R: Read> Lz4<R> {
    fn new(file: R) -> Self {
        let frames = Frames { file, has_ended: false, item: Item::Magic, left: 4, gathered: Vec::new(), flags: 0 };
        Self { decoder: Some(FrameDecoder::new(frames)) }
    }
}

impl<R: Read> Read for Lz4<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(mut decoder) = self.decoder.take() {
            let bytes = decoder.read(into)?;
            let frames = decoder.get_ref();
            let is_between = frames.item == Item::Magic && frames.left == 4;
            if bytes > 0 || into.is_empty() {
                self.decoder = Some(decoder);
                return Ok(bytes);
            }
            if !is_between {
                return Err(Error::new(ErrorKind::UnexpectedEof, "the file ends within a frame"));
            }
            if !frames.has_ended {
                // Another frame may follow the end of a frame.
                self.decoder = Some(FrameDecoder::new(decoder.into_inner()));
            }
        }
        Ok(0)
    }
}

/// A file of LZ4 frames, and where in them it was read to.
struct Frames<R> {
    file: R,
    has_ended: bool,
    item: Item,
    /// Bytes of the item that are still to come.
    left: usize,
    /// The bytes of the item that arrived, if they are needed.
    gathered: Vec<u8>,
    /// Of the frame: which checksums and numbers it has.
    flags: u8,
}

/// What a frame consists of, in this order.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Item {
    Magic,
    /// Flags, and the blocks' size.
    Descriptor,
    /// The content's size and a dictionary, if present, and a checksum.
    RestOfHeader,
    /// The size of the next block; 0 at the end.
    BlockSize,
    Block,
    ContentChecksum,
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(into)?;
        self.has_ended = bytes == 0 && !into.is_empty();
        let mut rest = &into[..bytes];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(self.left));
            if matches!(self.item, Item::Descriptor | Item::BlockSize) {
                self.gathered.extend_from_slice(now);
            }
            self.left -= now.len();
            rest = later;
            while self.left == 0 {
                self.next_item();
            }
        }
        Ok(bytes)
    }
}

impl<R> Frames<R> {
    /// Handles a complete item.
    fn next_item(&mut self) {
        if self.item == Item::Descriptor {
            self.flags = self.gathered[0];
        }
        let has = |bit: u8| usize::from(self.flags >> bit & 1);
        (self.item, self.left) = match self.item {
            Item::Magic => (Item::Descriptor, 2),
            Item::Descriptor => (Item::RestOfHeader, 8 * has(3) + 4 * has(0) + 1),
            Item::RestOfHeader | Item::Block => (Item::BlockSize, 4),
            Item::BlockSize => {
                let size = u32::from_le_bytes(*self.gathered.first_chunk().expect("the item has four bytes"));
                match size {
                    0 if has(2) == 0 => (Item::Magic, 4),
                    0 => (Item::ContentChecksum, 4),
                    // The highest bit marks an uncompressed block.
                    _ => (Item::Block, (size & i32::MAX as u32) as usize + 4 * has(4)),
                }
            }
            Item::ContentChecksum => (Item::Magic, 4),
        };
        self.gathered.clear();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;

    /// The same bytes, packed as each packing does it.
    pub(crate) fn packed(bytes: &[u8]) -> [(Packing, Vec<u8>); 5] {
        const WHOLE: &str = "a vector takes everything";
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).expect(WHOLE);
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        bzip2.write_all(bytes).expect(WHOLE);
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(bytes).expect(WHOLE);
        let mut lz4 = FrameEncoder::with_frame_info(FrameInfo::new().block_size(BlockSize::Max64KB), Vec::new());
        lz4.write_all(bytes).expect(WHOLE);
        [
            (Packing::Gzip, gzip.finish().expect(WHOLE)),
            (Packing::Bzip2, bzip2.finish().expect(WHOLE)),
            (Packing::Xz, xz.finish().expect(WHOLE)),
            (Packing::Zstd, zstd::encode_all(bytes, 1).expect(WHOLE)),
            (Packing::Lz4, lz4.finish().expect(WHOLE)),
        ]
    }

    /// Numbers that do not pack well, so that there are several blocks.
    pub(crate) fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    fn read(bytes: &[u8]) -> (Packing, Vec<u8>, Option<String>) {
        let mut unpacked = Unpacked::new(Box::new(Cursor::new(bytes.to_vec()))).expect("it can be read");
        let (mut all, mut some) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match unpacked.read(&mut some) {
                Ok(0) => return (unpacked.packing(), all, None),
                Ok(bytes) => all.extend_from_slice(&some[..bytes]),
                Err(error) => return (unpacked.packing(), all, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn what_is_packed_is_read_as_if_it_were_not() {
        for bytes in [vec![], noise(1), noise(300_000)] {
            for (packing, packed) in packed(&bytes) {
                assert!(read(&packed) == (packing, bytes.clone(), None), "{packing:?} of {} bytes", bytes.len());
                let twice = [&packed[..], &packed].concat();
                assert!(read(&twice) == (packing, [&bytes[..], &bytes].concat(), None), "{packing:?} twice");
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_read_up_to_there_and_said() {
        let bytes = noise(600_000);
        for (packing, packed) in packed(&bytes) {
            for cut in [1, 2, 4, 1000, packed.len() / 3, packed.len() - 20] {
                let (found, all, wrong) = read(&packed[..packed.len() - cut]);
                assert!(found == packing && wrong.is_some(), "{packing:?} without {cut} bytes");
                assert!(bytes.starts_with(&all), "{packing:?} without {cut} bytes");
                // Blocks have 128 KiB at most here.
                let least = bytes.len().saturating_sub(cut + (256 << 10));
                assert!(all.len() >= least, "{packing:?} without {cut} bytes: {}", all.len());
            }
            let mut wrong = packed.clone();
            wrong[packed.len() / 2..][..64].fill(0xA5);
            let (_, all, error) = read(&wrong);
            assert!(error.is_some() || all != bytes, "{packing:?}");
        }
    }

    #[test]
    fn lz4_frames_of_every_kind_may_follow_each_other() {
        let bytes = noise(200_000);
        let mut all = Vec::new();
        for (block_size, sums) in [(BlockSize::Max4MB, true), (BlockSize::Max64KB, false), (BlockSize::Max256KB, true)]
        {
            let info = FrameInfo::new().block_size(block_size).block_checksums(sums).content_checksum(sums);
            let info = info.content_size(sums.then_some(bytes.len() as u64));
            let mut frame = FrameEncoder::with_frame_info(info, Vec::new());
            frame.write_all(&bytes).expect("a vector takes everything");
            all.extend(frame.finish().expect("a vector takes everything"));
        }
        let thrice = [&bytes[..], &bytes, &bytes].concat();
        assert!(read(&all) == (Packing::Lz4, thrice, None));
        for cut in [1, 4, 5, 8, 9, 100_000] {
            assert!(read(&all[..all.len() - cut]).2.is_some(), "without {cut} bytes");
        }
    }

    #[test]
    fn an_lz4_file_that_ends_between_two_blocks_is_cut_off() {
        let (_, packed) = packed(&noise(300_000)).into_iter().next_back().expect("there are five");
        // Its last 4 bytes end the frame.
        let (_, all, wrong) = read(&packed[..packed.len() - 4]);
        assert_eq!((all.len(), wrong.as_deref()), (300_000, Some("the file ends within a frame")));
    }

    #[test]
    fn what_is_not_packed_is_left_alone() {
        for bytes in [&b""[..], b"B", b"BZh", b"BZh9 is a name", b"\x1F\x8B", b"\x04\x22\x4D\x19 or so", b"\xFD7z"] {
            assert_eq!(read(bytes), (Packing::None, bytes.to_vec(), None));
        }
    }
}
