//! `init`: what is written runs at once, and nothing is written over.

use crate::process::Program;
use crate::support::TemporaryDirectory;

#[test]
fn what_init_writes_is_checked_and_runs_at_once() {
    for kind in ["testbeam", "pull", "gateway", "felix"] {
        let directory = TemporaryDirectory::new("init");
        let path = directory.path().join("new");
        let (place, file) = (path.display().to_string(), path.join(format!("{kind}.toml")));
        let written = Program::run(["init", kind, &place]);
        assert!(written.expect_status(0).out.iter().any(|line| line.contains("--duration 10s")), "{written:#?}");
        // A port of its own: other tests run beside this one.
        let text = std::fs::read_to_string(&file).expect("it was written");
        std::fs::write(&file, text.replace("127.0.0.1:9570", "127.0.0.1:0")).expect("it is ours");
        let name = file.display().to_string();
        Program::run(["config", "check", &name]).expect_status(0);
        let ran = Program::run(["run", &name, "--duration", "1s", "--output", &place, "--json"]);
        let account = ran.expect_status(0).account();
        assert_eq!(account["ledger"]["balanced"], true, "{kind}: {account}");
        let events = account["events"]["written"].as_u64();
        assert!(events > Some(20), "{kind}: {account}");
    }
}

#[test]
fn init_writes_over_nothing() {
    let directory = TemporaryDirectory::new("init-twice");
    let place = directory.path().display().to_string();
    Program::run(["init", "pull", &place]).expect_status(0);
    let file = directory.path().join("pull.toml");
    std::fs::write(&file, "mine").expect("it is ours");
    let again = Program::run(["init", "pull", &place]);
    assert!(again.expect_status(2).errors.contains("is there already"), "{again:#?}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "mine");
    Program::run(["init", "pull", "/proc/nowhere"]).expect_status(4);
    let unknown = Program::run(["init", "beam", &place]);
    assert!(unknown.expect_status(2).errors.contains("testbeam"), "{unknown:#?}");
}
