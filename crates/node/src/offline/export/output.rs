//! A file that has its name when it is whole.

use crate::offline::OfflineError;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file being written. Where it is not finished, it goes away.
pub(super) struct Output {
    /// The name that it will have.
    path: PathBuf,
    part: PathBuf,
    file: Option<BufWriter<File>>,
    length: u64,
}

impl Output {
    /// Begins a file.
    pub(super) fn create(directory: &Path, name: &str) -> Result<Self, OfflineError> {
        let (path, part) = (directory.join(name), directory.join(format!("{name}.part")));
        if path.exists() {
            let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(OfflineError::system("create", &path)(exists));
        }
        let file = File::create_new(&part).map_err(OfflineError::system("create", &part))?;
        Ok(Self { path, part, file: Some(BufWriter::new(file)), length: 0 })
    }

    /// Bytes so far.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), OfflineError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).map_err(OfflineError::system("write", &self.part))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes over the file's first bytes.
    pub(super) fn begin_with(&mut self, bytes: &[u8]) -> Result<(), OfflineError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(bytes));
        let written = written.and_then(|()| file.seek(SeekFrom::End(0)));
        written.map(|_| ()).map_err(OfflineError::system("write", &self.part))
    }

    /// The file is whole.
    pub(super) fn finish(mut self) -> Result<PathBuf, OfflineError> {
        let written = self.file.take().map_or(Ok(()), |mut file| file.flush().and_then(|()| file.get_ref().sync_all()));
        written.map_err(OfflineError::system("write", &self.part))?;
        std::fs::rename(&self.part, &self.path).map_err(OfflineError::system("rename", &self.part))?;
        Ok(std::mem::take(&mut self.path))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Under its name nothing is left here; where half a file cannot be removed, its name says what it is.
        let _ = std::fs::remove_file(&self.part);
    }
}
