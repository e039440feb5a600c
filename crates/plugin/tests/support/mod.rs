//! Libraries that are built for a test, and frames for them.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod events;

use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_plugin::filter::FilterConfig;
use ropewalk_plugin::filter::process::ProcessConfig;
use ropewalk_plugin::{Keys, SplitterConfig};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of the test's own.
pub(crate) struct TemporaryDirectory(pub(crate) PathBuf);

impl TemporaryDirectory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ropewalk-plugin-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Self(path)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds a library of this source, with these macros.
pub(crate) fn build(directory: &TemporaryDirectory, source: &str, macros: &[&str]) -> PathBuf {
    compile(directory, source, macros, &["-shared", "-fPIC"])
}

/// Builds a program of this source, with these macros.
pub(crate) fn build_program(directory: &TemporaryDirectory, source: &str, macros: &[&str]) -> PathBuf {
    compile(directory, source, macros, &[])
}

fn compile(directory: &TemporaryDirectory, source: &str, macros: &[&str], flags: &[&str]) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let built = directory.0.join(format!("built{}.so", NEXT.fetch_add(1, Ordering::Relaxed)));
    let quiet = ["-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-result"];
    let status = Command::new("cc")
        .args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O2", "-I"])
        .arg(root().join("bindings/c"))
        .args(quiet)
        .args(flags)
        .args(macros.iter().map(|name| format!("-D{name}")))
        .arg("-o")
        .args([&built, &root().join(source)])
        .status();
    assert!(status.expect("a C compiler is there").success(), "{source} {macros:?}");
    built
}

pub(crate) const MISBEHAVING: &str = "crates/plugin/tests/misbehaving.c";
pub(crate) const MISBEHAVING_FILTER: &str = "crates/plugin/tests/misbehaving_filter.c";
pub(crate) const OLD_KERNEL: &str = "crates/plugin/tests/old_kernel.c";
pub(crate) const TRIGGER_BOARD: &str = "examples/splitter/trigger_board.c";

pub(crate) fn config(library: &Path, configuration: &str) -> SplitterConfig {
    let (library, configuration) = (library.to_owned(), configuration.to_owned());
    SplitterConfig { library, configuration, keys: Keys::Events, max_frame: 64 << 10 }
}

/// Set for a test program that is to be a filter's process.
pub(crate) const SERVES: &str = "ROPEWALK_TEST_SERVES";

/// The command by which this test program is the process of a plug-in.
pub(crate) fn serving() -> Vec<PathBuf> {
    let test = std::env::current_exe().expect("it runs");
    vec!["/usr/bin/env".into(), format!("{SERVES}=1").into(), test]
}

/// A library's filter in a process: this test program anew.
pub(crate) fn process_config(library: &Path, configuration: &str) -> ProcessConfig {
    let filter = FilterConfig { library: library.to_owned(), configuration: configuration.to_owned() };
    ProcessConfig { filter, memory: 16 << 20, copies: 1 << 20, command: serving() }
}

/// Memory for frames, in small blocks.
pub(crate) fn memory() -> Staging {
    Staging::new(Pool::new(PoolConfig::heap("frames", 4096, 64)).expect("memory"))
}

pub(crate) fn frame(memory: &mut Staging, bytes: &[u8]) -> Payload {
    let mut payload = Payload::default();
    for part in bytes.chunks(1000) {
        payload.push(memory.write(part).expect("room"));
    }
    payload
}
