//! The arrows between rooms: who may use whom (ARCHITECTURE.md, the table of rooms).
//!
//! A decision that needs a socket belongs elsewhere, and a reader must be able to understand a room with the
//! rooms below it alone. Dev-dependencies are free.

use crate::metadata::{Package, ours};
use crate::source::{Source, line_of};
use crate::tree::{Finding, expect_none, root, rust_files};

/// Each room, and the rooms it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("terms", &[]),
    ("kernels", &[]),
    ("memory", &["terms"]),
    ("wire", &["terms", "kernels"]),
    ("io", &["terms", "memory", "wire"]),
    ("flow", &["terms", "wire", "memory"]),
    ("monitor", &["terms"]),
    ("host", &[]),
    ("tune", &["terms", "kernels", "host", "io"]),
    ("plugin", &["terms", "memory", "wire", "flow"]),
    ("engine", &["terms", "kernels", "memory", "wire", "io", "flow", "monitor"]),
    ("config", &["terms", "wire", "io", "flow", "monitor", "host", "plugin", "engine"]),
    ("tools", &["terms", "kernels", "memory", "wire", "io", "flow", "plugin", "engine", "config"]),
    ("run", &["terms", "memory", "wire", "io", "flow", "monitor", "host", "plugin", "engine", "config", "tools"]),
    ("control", &["engine", "config", "run", "monitor", "terms"]),
    ("doctor", &["terms", "kernels", "memory", "wire", "io", "host", "tune", "config", "run"]),
    ("console", &["terms", "config", "tools", "run", "plugin", "tune"]),
    (
        PROGRAM,
        &[
            "terms", "memory", "wire", "flow", "monitor", "host", "tune", "plugin", "engine", "config", "tools", "run",
            "control", "doctor", "console",
        ],
    ),
    ("sim", &["terms", "memory", "wire", "io", "flow", "engine", "config"]),
    ("limits", ANY_BUT_PROGRAMS),
    ("bench", ANY_BUT_PROGRAMS),
    (LABORATORY, ANY_BUT_PROGRAMS),
    ("tidy", &[]),
];

const PROGRAM: &str = "ropewalk";
/// The other program, with what the product does without: benches, bare probes, the simulator.
const LABORATORY: &str = "lab";
const ANY_BUT_PROGRAMS: &[&str] = &[
    "terms", "kernels", "memory", "wire", "io", "flow", "monitor", "host", "tune", "plugin", "engine", "config",
    "tools", "run", "control", "doctor", "console", "sim", "limits", "bench",
];

/// Crates of others that only these rooms may use: an async runtime next to the data path costs predictability.
const RESERVED: &[(&str, &[&str])] =
    &[("tokio", &["control"]), ("axum", &["control"]), ("clap", &[PROGRAM, LABORATORY])];

/// Modules that only the crate root names: no other module of the crate may use them.
const TOP_MODULES: &[(&str, &str)] = &[("run", "session")];

/// The room's name: the package's without the house's.
fn room(package: &str) -> Option<&str> {
    if package == PROGRAM { Some(PROGRAM) } else { package.strip_prefix("ropewalk-") }
}

/// What is wrong with a dependency of room `from` on the package `to`.
fn breach(from: &str, to: &str) -> Option<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == from) else {
        return Some(format!("room `{from}` is in no table: add it to ARCHITECTURE.md and to ARROWS"));
    };
    if let Some((_, users)) = RESERVED.iter().find(|(name, _)| *name == to) {
        let told = format!("`{to}` is reserved for {users:?}: let `{from}` do without it");
        return (!users.contains(&from)).then_some(told);
    }
    let to = room(to)?;
    let may = allowed.contains(&to);
    let told = format!("`{from}` may not use `{to}` (allowed: {allowed:?}): move the code to the room it belongs to");
    (!may).then_some(told)
}

fn findings(package: &Package) -> Vec<Finding> {
    let manifest = format!("{}/Cargo.toml", package.directory);
    let text = std::fs::read_to_string(&manifest).unwrap_or_default();
    let file = manifest.trim_start_matches(&format!("{}/", root().display())).to_owned();
    let Some(from) = room(&package.name) else {
        return vec![Finding::new(&file, 1, format!("`{}`: our packages are called ropewalk-<room>", package.name))];
    };
    let line = |name: &str| 1 + text.lines().position(|line| line.starts_with(name)).unwrap_or(0);
    let used = package.dependencies.iter().filter(|dependency| !dependency.is_dev);
    used.filter_map(|to| Some(Finding::new(&file, line(&to.name), breach(from, &to.name)?))).collect()
}

/// Each use of the top module `module` of crate `room` in another module of that crate.
fn uses_of_top(room: &str, module: &str, path: &str, text: &str) -> Vec<Finding> {
    let source = format!("crates/{room}/src/");
    let Some(inside) = path.strip_prefix(&source) else { return Vec::new() };
    let is_own = inside.split('/').next().is_some_and(|first| first.trim_end_matches(".rs") == module);
    if is_own || inside == "lib.rs" {
        return Vec::new();
    }
    let code = Source::new(text).code;
    let what = || format!("`{module}` uses the other modules of `{room}`: move what both need below it");
    let places = ["crate", "super"].map(|from| format!("{from}::{module}"));
    let uses = places.iter().flat_map(|place| code.match_indices(place.as_str()));
    uses.map(|(at, _)| Finding::new(path, line_of(&code, at), what())).collect()
}

#[test]
fn rooms_use_only_the_rooms_they_may() {
    let all: Vec<Finding> = ours().flat_map(findings).collect();
    expect_none(&all);
}

#[test]
fn top_modules_are_used_by_no_other_module() {
    for (room, module) in TOP_MODULES {
        let own = |file: &&crate::tree::TextFile| file.path.starts_with(&format!("crates/{room}/src/{module}"));
        assert!(rust_files().any(|file| own(&file)), "there is no module `{module}` in `{room}`");
        let all: Vec<Finding> =
            rust_files().flat_map(|file| uses_of_top(room, module, &file.path, &file.text)).collect();
        expect_none(&all);
    }
}

#[test]
fn a_use_of_a_top_module_is_seen() {
    let seen = |path: &str, text: &str| uses_of_top("run", "session", path, text).len();
    assert_eq!(seen("crates/run/src/resolve.rs", "use crate::session::Launch;\n"), 1);
    assert_eq!(seen("crates/run/src/gateway/farm.rs", "// crate::session\nuse super::super::session::Launch;\n"), 1);
    assert_eq!(seen("crates/run/src/session/masks.rs", "use crate::session::Launch;\n"), 0);
    assert_eq!(seen("crates/run/src/lib.rs", "pub mod session;\n"), 0);
    assert_eq!(seen("crates/control/src/view.rs", "use crate::session::Launch;\n"), 0);
}

#[test]
fn every_room_of_the_workspace_is_in_the_table() {
    let unknown: Vec<&str> = ours()
        .map(|package| package.name.as_str())
        .filter(|name| room(name).is_none_or(|room| !ARROWS.iter().any(|(known, _)| *known == room)))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}: add the room to ARCHITECTURE.md and to ARROWS");
}

#[test]
fn every_permission_is_used() {
    let mut unused = Vec::new();
    for (from, allowed) in ARROWS.iter().filter(|(_, allowed)| *allowed != ANY_BUT_PROGRAMS) {
        let package = ours().find(|package| room(&package.name) == Some(*from));
        let used = |to: &str| {
            package.is_some_and(|package| {
                package.dependencies.iter().any(|one| !one.is_dev && room(&one.name) == Some(to))
            })
        };
        unused.extend(allowed.iter().filter(|to| !used(to)).map(|to| format!("`{from}` does not use `{to}`")));
    }
    assert!(unused.is_empty(), "{unused:?}: take it out of ARROWS");
}

#[test]
fn wrong_arrows_are_seen() {
    assert_eq!(breach("io", "ropewalk-memory"), None);
    assert_eq!(breach("io", "rustix"), None);
    assert_eq!(breach("ropewalk", "ropewalk-run"), None);
    assert!(breach("flow", "ropewalk-io").is_some_and(|text| text.contains("may not use `io`")));
    assert!(breach("engine", "ropewalk-config").is_some_and(|text| text.contains("may not use `config`")));
    assert!(breach("config", "ropewalk-tools").is_some_and(|text| text.contains("may not use `tools`")));
    assert!(breach("bench", "ropewalk").is_some());
    assert!(breach("ropewalk", "ropewalk-sim").is_some_and(|text| text.contains("may not use `sim`")));
    assert!(breach("run", "tokio").is_some_and(|text| text.contains("reserved")));
    assert!(breach("attic", "ropewalk-terms").is_some_and(|text| text.contains("no table")));
}

#[test]
fn the_table_has_no_circle() {
    let allowed = |room: &str| ARROWS.iter().find(|(name, _)| *name == room).map_or(&[] as &[&str], |row| row.1);
    for (room, _) in ARROWS.iter().filter(|(room, _)| !["limits", "bench"].contains(room)) {
        let (mut seen, mut waiting) = (Vec::new(), allowed(room).to_vec());
        while let Some(next) = waiting.pop() {
            assert_ne!(next, *room, "`{room}` reaches itself");
            if !seen.contains(&next) {
                seen.push(next);
                waiting.extend(allowed(next));
            }
        }
    }
}
