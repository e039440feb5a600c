"""Counts instructions of the hot paths and compares them with bench/instructions.json.

    python3 bench/instructions.py LABORATORY            fails if one is more than 3 % above the file, or far below it
    python3 bench/instructions.py LABORATORY --bless    writes the file

LABORATORY is a ropewalk-lab of the dev profile (target/debug/ropewalk-lab), which CI builds anyway: its hot crates are optimised.
valgrind's callgrind counts; the same program on the same input gives the same number within 0.1 %. Numbers of different
compilers, or with other vector instructions, are not compared.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

FILE = pathlib.Path(__file__).resolve().parent / "instructions.json"
# A regression fails, and a file that has become too generous does as well: it would hide the next one.
ABOVE, BELOW = 0.03, 0.10
FELIX = "chunk_bytes={} consumer=heads figure=pipeline sizes=equal"
# Name: bench, case, the function whose instructions count with all that it calls, and how many of what it works on. A tiny run
# has 600 events of 16 fragments, and 1,024 blocks.
COUNTS = {
    "machines, per fragment": (
        "machines",
        "fragment_bytes=2048 histograms=0 sources=16 synchrony=off",
        "ropewalk_bench::machines::Machines::take_turns*",
        600 * 16,
    ),
    **{
        f"felix {name}, chunks of {size} B, per block": (
            "felix", FELIX.format(size), f"ropewalk_bench::felix::pipeline::Pipeline::{function}*", 1024
        )  # fmt: skip
        for size in (64, 1024)
        for name, function in (("decoder", "decode"), ("pipeline", "consume"))
    },
}


def conditions():
    """What numbers depend on beside the source."""
    version = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout
    flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii"), re.MULTILINE)
    vectors = "avx2" if flags and "avx2" in flags.group(1).split() else "without avx2"
    return {"rustc": ".".join(version.split()[1].split(".")[:2]), "vectors": vectors}


def count(laboratory, name):
    bench, case, function, units = COUNTS[name]
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "callgrind"
        command = [
            "valgrind", "--tool=callgrind", f"--toggle-collect={function}", f"--callgrind-out-file={out}",
            laboratory, "bench", bench, "--tiny", "--json", "--case", case, "--output", directory,
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        totals = re.search(r"^(?:totals|summary): (\d+)", out.read_text() if out.exists() else "", re.MULTILINE)
        if ran.returncode != 0 or not totals or int(totals.group(1)) == 0:
            sys.exit(f"{name}: nothing was counted in {function}: {' '.join(command)}\n{ran.stdout}{ran.stderr}")
        return int(totals.group(1)) / units


def verdict(name, before, now):
    """Why a number is not good, or None."""
    if not before:
        return f"{name}: {now:.1f} instructions, and {FILE.name} has no number"
    part = now / before - 1
    if part > ABOVE:
        return f"{name}: {now:.1f} instructions, {part:+.1%} against {before:.1f}"
    if part < -BELOW:
        return f"{name}: {now:.1f} instructions, {part:+.1%} against {before:.1f}: better than {FILE.name} says"
    return None


def test():
    assert not verdict("any", 100.0, 102.9) and not verdict("any", 100.0, 91.0)
    assert "+3.1%" in verdict("any", 100.0, 103.1)
    assert "better than" in verdict("any", 100.0, 89.0)
    assert "has no number" in verdict("any", None, 89.0)


def main():
    test()
    arguments = [argument for argument in sys.argv[1:] if argument != "--bless"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    here = conditions()
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if "--bless" not in sys.argv and kept.get("conditions") != here:
        print(f"not compared: the numbers of {FILE.name} are of {kept.get('conditions')}, and this machine has {here}")
        return
    counts = {}
    for name in COUNTS:
        counts[name] = round(count(arguments[0], name), 1)
        print(f"{counts[name]:10.1f}  {name}", flush=True)
    if "--bless" in sys.argv:
        FILE.write_text(json.dumps({"conditions": here, "instructions": counts}, indent=2) + "\n", encoding="utf-8")
        return
    before = kept["instructions"]
    bad = [why for why in (verdict(name, before.get(name), now) for name, now in counts.items()) if why]
    bad += [f"{name}: {FILE.name} has a number, and nothing counts it" for name in before if name not in counts]
    if bad:
        bless = f"python3 bench/instructions.py {arguments[0]} --bless"
        sys.exit("\n".join([*bad, f"If that is right, say why in the commit, and write the file: {bless}"]))


if __name__ == "__main__":
    main()
