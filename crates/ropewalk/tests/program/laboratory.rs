//! Commands that the laboratory beside the program carries out.

use crate::support::TemporaryDirectory;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A copy of the program in a directory of its own, with this script as its laboratory.
fn program(directory: &TemporaryDirectory, laboratory: Option<&str>) -> PathBuf {
    let program = directory.path().join("ropewalk");
    std::fs::copy(env!("CARGO_BIN_EXE_ropewalk"), &program).expect("a file can be copied");
    if let Some(script) = laboratory {
        let file = directory.path().join("ropewalk-lab");
        std::fs::write(&file, script).expect("a file can be written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    program
}

fn run(program: &PathBuf, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output().expect("it is a program");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_missing_laboratory_is_named_with_the_command_that_builds_it() {
    let directory = TemporaryDirectory::new("no-laboratory");
    let program = program(&directory, None);
    for arguments in [&["bench", "builder", "--quick"][..], &["simulate", "--campaign", "8"]] {
        let (status, out, errors) = run(&program, arguments);
        assert_eq!((status, out.as_str()), (Some(4), ""), "{errors}");
        assert!(errors.contains(&directory.path().join("ropewalk-lab").display().to_string()), "{errors}");
        assert!(errors.contains("cargo build --release -p ropewalk-lab"), "{errors}");
    }
    let (status, out, _) = run(&program, &["bench", "--help"]);
    assert_eq!(status, Some(0));
    for words in ["Usage: ropewalk bench", "ropewalk bench builder --quick", "cargo build --release -p ropewalk-lab"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let (status, out, _) = run(&program, &["--help"]);
    assert!(status == Some(0) && out.contains("ropewalk-lab"), "{out}");
}

#[test]
fn the_laboratory_gets_arguments_input_and_the_process_and_gives_the_status() {
    let directory = TemporaryDirectory::new("laboratory");
    let script = "#!/bin/sh\nprintf '<%s>' \"$@\"\ncat\necho \"process $$\" >&2\nexit 3\n";
    let program = program(&directory, Some(script));
    let input = directory.path().join("input");
    std::fs::write(&input, "what it reads").expect("a file can be written");
    let mut command = Command::new(&program);
    command.args(["simulate", "--seed=1", "--", "two words", "--help", ""]);
    command.stdin(std::fs::File::open(&input).expect("it was written"));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("it is a program");
    let process = child.id();
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    assert_eq!(text(stdout), "<simulate><--seed=1><--><two words><--help><>what it reads");
    assert_eq!(status.code(), Some(3));
    // The same process, so that signals reach the laboratory.
    assert_eq!(text(stderr), format!("process {process}\n"));
}
