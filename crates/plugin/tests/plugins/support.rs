//! Plug-ins that are built for a test, frames and events for them, and this program as the process of a plug-in.

use ropewalk_flow::messages::{Fragment, FragmentFlags, FragmentMeta};
use ropewalk_memory::{HugePages, MemoryKind, Payload, Pool, PoolConfig, Staging};
use ropewalk_plugin::filter::process::ProcessConfig;
use ropewalk_plugin::filter::{FilterConfig, FilterEvent};
use ropewalk_plugin::{Keys, SplitterConfig, filter, process};
use ropewalk_terms::{Attempt, EventKey, SourceId};
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

/// Set for this program where it is to be the process of a plug-in: the kind of the plug-in.
const SERVES: &str = "ROPEWALK_TEST_SERVES";
const SPLITTER: &str = "splitter";
const FILTER: &str = "filter";

/// Serves as the process of a plug-in where [`SERVES`] is set. It runs before `main`, which starts threads: the process of a plug-in has
/// only one thread.
extern "C" fn serve_if_asked() {
    let Some(kind) = std::env::var_os(SERVES) else { return };
    let is_served = if kind == SPLITTER { process::serve().is_ok() } else { filter::process::serve().is_ok() };
    std::process::exit(i32::from(!is_served));
}

#[used]
#[allow(unsafe_code)]
// SAFETY: the system calls each function of this section once; this one ignores the arguments.
#[unsafe(link_section = ".init_array")]
static SERVE_IF_ASKED: extern "C" fn() = serve_if_asked;

/// The command by which this program is the process of a plug-in of this kind.
fn serving(kind: &str) -> Vec<PathBuf> {
    let test = std::env::current_exe().expect("it runs");
    vec!["/usr/bin/env".into(), format!("{SERVES}={kind}").into(), test]
}

/// The command by which this program is the process of a splitter.
pub(crate) fn serving_splitter() -> Vec<PathBuf> {
    serving(SPLITTER)
}

/// A library's filter in a process: this test program anew.
pub(crate) fn process_config(library: &Path, configuration: &str) -> ProcessConfig {
    let filter = FilterConfig { library: library.to_owned(), configuration: configuration.to_owned() };
    ProcessConfig { filter, memory: 16 << 20, copies: 1 << 20, command: serving(FILTER) }
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

/// An event of a test.
#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) key: EventKey,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) is_complete: bool,
}

impl Event {
    pub(crate) fn new(number: u64, fragments: impl IntoIterator<Item = Fragment>) -> Self {
        Self { key: EventKey::new(2, number), fragments: fragments.into_iter().collect(), is_complete: true }
    }
}

impl FilterEvent for Event {
    fn key(&self) -> EventKey {
        self.key
    }

    fn attempt(&self) -> Attempt {
        Attempt(3)
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn trigger_type(&self) -> u16 {
        9
    }

    fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments.iter()
    }
}

/// Memory for payloads, which others can be given to read or not.
pub(crate) fn pool(memory: MemoryKind, block_size: usize, blocks: usize) -> Staging {
    let config =
        PoolConfig { memory, huge_pages: HugePages::Never, ..PoolConfig::heap("payloads", block_size, blocks) };
    Staging::new(Pool::new(config).expect("memory"))
}

/// A fragment whose bytes lie in pieces of at most this many.
pub(crate) fn fragment(memory: &mut Staging, source: u32, bytes: &[u8], piece: usize) -> Fragment {
    let mut payload = Payload::default();
    for part in bytes.chunks(piece) {
        // A byte between neighbours keeps them apart.
        let room = memory.write(&[part, b"|"].concat());
        let mut slice = room.expect("room");
        slice.truncate(part.len());
        payload.push(slice);
    }
    let meta = FragmentMeta {
        source: SourceId(source),
        length: bytes.len() as u32,
        flags: FragmentFlags(FragmentFlags::HAS_TIME.0 | FragmentFlags::CRC_CHECKED.0),
        bunch_crossing: 3000,
        trigger_type: 5,
        raw_id: 1 << 40 | u64::from(source),
        time: 1 << 50,
    };
    Fragment { meta, payload }
}
