"""Runs the commands of a page: every block marked `sh`, in order, each as one script that stops at the first error.

    readme_commands.py PAGE --program PROGRAM --directory DIRECTORY

`cargo run --release --` becomes PROGRAM, which is what it builds; the test command is a step of its own and is left
out. Runs without an end of their own (`--events`, `--duration`) are given two seconds. Blocks marked otherwise
(`console`, `text`, `toml`) are for reading.
"""

import argparse
import re
import subprocess
import sys

LIMIT_SECONDS = 90


def blocks(text):
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def adapted(line, program):
    """The line as it is run here; empty for a command that has a step of its own."""
    if line.startswith("cargo test"):
        return ""
    ends = "--events" in line or "--duration" in line
    if re.match(r"cargo run --release -- (demo|run)\b", line) and not ends:
        command, ampersand, _ = line.partition(" &")
        line = f"{command} --duration 2s{ampersand}"
    return line.replace("cargo run --release --", program)


def run(script, directory):
    """Whether the script ended well in time."""
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_SECONDS,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as late:
        print(f"not done after {LIMIT_SECONDS} s\n{(late.stdout or b'')[-3000:]}")
        return False
    if done.returncode:
        print(f"exit status {done.returncode}\n{done.stdout[-3000:]}")
    return done.returncode == 0


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("page")
    arguments.add_argument("--program", required=True)
    arguments.add_argument("--directory", required=True)
    given = arguments.parse_args()
    with open(given.page, encoding="utf-8") as file:
        found = blocks(file.read())
    adaptations = ([adapted(line, given.program) for line in block.splitlines()] for block in found)
    scripts = [script for lines in adaptations if (script := "\n".join(filter(None, lines)))]
    if not scripts:
        print(f"{given.page} has no block marked sh")
        return 1
    good = 0
    for script in scripts:
        print("$ " + script.replace("\n", "\n$ ").replace(given.program, "ropewalk"))
        good += run(script, given.directory)
    print(f"{good} of {len(scripts)} blocks ended well")
    return 0 if good == len(scripts) else 1


if __name__ == "__main__":
    sys.exit(main())
