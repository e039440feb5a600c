//! What `cargo metadata` says about the workspace, read once.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::tree::root;

/// A package of the workspace or from outside.
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its licence expression, where it has one.
    pub(crate) licence: Option<String>,
    /// Whether it is ours.
    pub(crate) is_ours: bool,
    /// The directory of its manifest.
    pub(crate) directory: String,
    /// What it names as dependencies.
    pub(crate) dependencies: Vec<Dependency>,
    /// What is built from it.
    pub(crate) targets: Vec<Target>,
}

/// An entry in a manifest's tables of dependencies.
pub(crate) struct Dependency {
    /// The package's name.
    pub(crate) name: String,
    /// Whether only tests, benches and examples use it.
    pub(crate) is_dev: bool,
}

/// A library, a program or a test.
pub(crate) struct Target {
    /// Its name.
    pub(crate) name: String,
    /// The file it starts from.
    pub(crate) root: String,
    /// `lib`, `bin`, `test`, `bench`, `example`, `custom-build`.
    pub(crate) kind: String,
    /// Whether `cargo test` runs its tests.
    pub(crate) tested: bool,
}

/// All packages that this machine needs to build and test the workspace.
pub(crate) fn packages() -> &'static [Package] {
    static PACKAGES: OnceLock<Vec<Package>> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let metadata = read();
        metadata["packages"].as_array().into_iter().flatten().map(package).collect()
    })
}

/// Our packages.
pub(crate) fn ours() -> impl Iterator<Item = &'static Package> {
    packages().iter().filter(|package| package.is_ours)
}

/// The packages of others.
pub(crate) fn external() -> impl Iterator<Item = &'static Package> {
    packages().iter().filter(|package| !package.is_ours)
}

/// Runs cargo. Only this machine's platform is asked for: crates of other platforms are not downloaded.
fn read() -> Value {
    let platform = host_platform();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform])
        .current_dir(root())
        .output()
        .expect("the cargo that runs this test can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata (after a first `cargo fetch`?): {errors}");
    serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON")
}

fn host_platform() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc stands beside cargo");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc -vV names its host").to_owned()
}

fn package(value: &Value) -> Package {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let manifest = text("manifest_path");
    Package {
        name: text("name"),
        version: text("version"),
        licence: value["license"].as_str().map(str::to_owned),
        is_ours: value["source"].is_null(),
        directory: manifest.trim_end_matches("/Cargo.toml").to_owned(),
        dependencies: value["dependencies"].as_array().into_iter().flatten().map(dependency).collect(),
        targets: value["targets"].as_array().into_iter().flatten().map(target).collect(),
    }
}

fn dependency(value: &Value) -> Dependency {
    Dependency {
        name: value["name"].as_str().unwrap_or_default().to_owned(),
        is_dev: value["kind"].as_str() == Some("dev"),
    }
}

fn target(value: &Value) -> Target {
    Target {
        name: value["name"].as_str().unwrap_or_default().to_owned(),
        root: value["src_path"].as_str().unwrap_or_default().to_owned(),
        kind: value["kind"][0].as_str().unwrap_or_default().to_owned(),
        tested: value["test"].as_bool().unwrap_or_default(),
    }
}

#[test]
fn this_package_is_read_with_its_parts() {
    let by_name: BTreeMap<&str, &Package> = ours().map(|package| (package.name.as_str(), package)).collect();
    let tidy = by_name["ropewalk-tidy"];
    assert!(tidy.dependencies.iter().any(|dependency| dependency.name == "serde_json" && dependency.is_dev));
    assert!(tidy.targets.iter().any(|target| target.name == "house" && target.kind == "test" && target.tested));
    assert!(external().any(|package| package.name == "serde_json" && package.licence.is_some()));
}
