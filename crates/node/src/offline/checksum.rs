//! The checksum of a run file, and the file beside it in which it stands.

use ropewalk_io::disk::checksum_file;
use ropewalk_wire::run_file::Checksum;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// A file's CRC-32C, and how many bytes it has.
pub(crate) fn checksum_of(path: &Path) -> io::Result<(Checksum, u64)> {
    let mut file = File::open(path)?;
    let (mut checksum, mut chunk, mut bytes) = (Checksum::default(), vec![0; CHUNK], 0);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok((checksum, bytes)),
            read => {
                checksum.update(&chunk[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// Writes the checksum of a file beside the place where the file will be.
pub(super) fn note_checksum(file: &Path, target: &Path) -> io::Result<()> {
    let (checksum, _) = checksum_of(file)?;
    let (beside, text) = checksum_file(target, checksum);
    fs::write(&beside, text)?;
    File::open(&beside)?.sync_all()
}
