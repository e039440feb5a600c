"""Runs the commands of pages: the blocks marked `sh` of a page are one script, which stops at the first error.

    readme_commands.py --program PROGRAM --directory DIRECTORY PAGE...

Each page gets a separate directory with links to `examples` and `bindings`, and PROGRAM as `ropewalk` in the path.
`cargo run --release --` becomes PROGRAM, which is what it builds; `cargo build` and `cargo test` are other steps and are
left out. Runs without `--events`, `--duration` or `--idle` get two seconds. Blocks marked otherwise (`console`, `text`,
`toml`) are for reading.
"""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys

LIMIT_SECONDS = 120
ENDS = ("--events", "--duration", "--idle")


def blocks(text):
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def adapted(line, program):
    """The line as it is run here; empty for a command of another step."""
    if re.match(r"cargo (build|test)\b", line):
        return ""
    if re.match(r"(cargo run --release --|ropewalk) (demo|run)\b", line) and not any(end in line for end in ENDS):
        command, ampersand, rest = line.partition(" &")
        line = f"{command} --duration 2s{ampersand}{rest}"
    return line.replace("cargo run --release --", program)


def script(text, program):
    """All blocks as one script, which names each before it begins."""
    parts = []
    for number, block in enumerate(blocks(text), 1):
        lines = [adapted(line, program) for line in block.splitlines()]
        parts += [f"echo '--- block {number}'", *filter(None, lines)]
    return "\n".join(parts)


def run(commands, directory, program):
    """Whether the commands ended well in time. What they left running is ended with them."""
    path = os.pathsep.join([os.path.dirname(program), os.environ["PATH"]])
    with open(directory / "output", "w+", encoding="utf-8", errors="replace") as output:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=directory,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            status = f"none after {LIMIT_SECONDS} s"
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if status != 0:
            output.seek(0)
            print(f"exit status {status}\n{output.read()[-3000:]}")
    return status == 0


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("pages", nargs="+", type=pathlib.Path)
    arguments.add_argument("--program", required=True, type=os.path.abspath)
    arguments.add_argument("--directory", required=True, type=pathlib.Path)
    given = arguments.parse_args()
    good = 0
    for page in given.pages:
        commands = script(page.read_text(encoding="utf-8"), given.program)
        if not commands:
            print(f"{page} has no block marked sh")
            continue
        directory = given.directory / page.stem
        directory.mkdir(parents=True)
        for name in ("examples", "bindings"):
            (directory / name).symlink_to(pathlib.Path(name).resolve())
        is_good = run(commands, directory, given.program)
        print(f"{page}: {'good' if is_good else 'FAILED'}, {commands.count('--- block')} blocks")
        good += is_good
    return 0 if good == len(given.pages) else 1


if __name__ == "__main__":
    sys.exit(main())
