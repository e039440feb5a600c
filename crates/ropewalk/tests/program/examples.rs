//! The examples of the repository, changed as a test needs them.

use crate::support::TemporaryDirectory;
use std::path::Path;

/// A copy of `examples/NAME` in `directory`, with ports of its own and whatever else; its path. What is changed must be there.
pub(crate) fn example(directory: &TemporaryDirectory, name: &str, changes: &[(&str, &str)]) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let mut text = std::fs::read_to_string(example).expect("the example is there");
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no `{from}`");
        text = text.replace(from, to);
    }
    let file = directory.path().join(name);
    std::fs::write(&file, text).expect("a file can be written");
    file.display().to_string()
}
