//! No dead files: every Rust file is reached by `mod` from something that cargo builds, and every test runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::metadata::{Package, ours};
use crate::modules::{declarations, included, places};
use crate::source::Source;
use crate::tree::{Finding, expect_none, root, rust_files, text_files};

/// Every file that is reached from the root file of a target.
fn reach(root_file: &Path, reached: &mut BTreeSet<PathBuf>) {
    let mut waiting = vec![(root_file.to_owned(), true)];
    while let Some((file, is_root)) = waiting.pop() {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        if !reached.insert(file.clone()) {
            continue;
        }
        let modules = declarations(&text);
        waiting.extend(modules.iter().flat_map(|module| places(&file, is_root, module)).map(|path| (path, false)));
        let directory = file.parent().unwrap_or(Path::new(""));
        waiting.extend(included(&text).into_iter().map(|path| (directory.join(path), true)));
    }
}

fn in_repository(path: &str) -> &str {
    let root = root().to_str().expect("cargo wants UTF-8 paths");
    path.strip_prefix(root).unwrap_or(path).trim_start_matches('/')
}

/// Targets whose tests `cargo test` leaves out although they may hold some.
fn untested(package: &Package) -> impl Iterator<Item = Finding> {
    let left_out = package.targets.iter().filter(|target| !target.tested);
    left_out.filter(|target| ["lib", "bin", "test"].contains(&target.kind.as_str())).map(|target| {
        let what = format!("target `{}` is not tested: take `test = false` out of its manifest", target.name);
        Finding::new(in_repository(&target.root), 1, what)
    })
}

#[test]
fn every_file_is_reached() {
    let mut reached = BTreeSet::new();
    for target in ours().flat_map(|package| &package.targets) {
        reach(Path::new(&target.root), &mut reached);
    }
    let dead = rust_files()
        .filter(|file| file.path.starts_with("crates/") && !reached.contains(&root().join(&file.path)))
        .map(|file| Finding::new(&file.path, 1, "no `mod` reaches this file: declare it or delete it"));
    expect_none(&dead.collect::<Vec<_>>());
}

#[test]
fn every_fuzz_target_is_built() {
    let manifest = text_files().iter().find(|file| file.path == "fuzz/Cargo.toml");
    let named = |path: &str| manifest.is_some_and(|manifest| manifest.text.contains(path.trim_start_matches("fuzz/")));
    let dead = rust_files()
        .filter(|file| file.path.starts_with("fuzz/fuzz_targets/") && !named(&file.path))
        .map(|file| Finding::new(&file.path, 1, "fuzz/Cargo.toml does not name this target: add a [[bin]]"));
    expect_none(&dead.collect::<Vec<_>>());
}

#[test]
fn every_test_runs() {
    let mut findings: Vec<Finding> = ours().flat_map(untested).collect();
    for file in rust_files() {
        for (index, line) in Source::new(&file.text).code.lines().enumerate() {
            if line.trim_start().starts_with("#[ignore") {
                let what = "an ignored test is not counted: let it run, or call `ropewalk_tidy::skipped` in it";
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
    }
    expect_none(&findings);
}
