"""Writes docs/figures.md: the current figures of bench/runs as one table.

    python3 bench/figures.py            writes the page
    python3 bench/figures.py --check    fails if the page differs
    python3 bench/figures.py --test     tests the merging

A case that was measured several times on one day, by any number of runs, is one point. Of the days only the last one counts, and
quick runs of a day only if it has no full run of the case.
"""

import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "figures.md"
# What tells the figures of a bench apart; the other keys of a case are its points.
KINDS = (
    "figure", "series", "nodes", "job", "table", "effect", "limit", "stage", "mechanism", "kernel", "tuning", "by", "beside", "write",
    "packed", "checksum", "data", "format", "crc", "measured", "consumer", "quantile", "peer",
)  # fmt: skip
HEAD = """# Figures of the benches

`bench/figures.py` makes this table from the records in `bench/runs`. [Performance](performance.md) describes the
benches and what the figures mean. Each case of a bench counts once, with the figures of the last day on which it was
measured; runs of one day are merged. A line has the range of the medians over the points of a figure (sizes, loads), and
the range of their ratios to the limit that was measured in turns with them. `bench/runs/README.md` has the conditions.

"""


def command_of(machine, bench):
    """What was typed. Older records do not have it; what they say of it is the name and how much was measured."""
    quick = " --quick" if machine.get("scale") == "quick" else ""
    return machine.get("command") or f"ropewalk bench {bench}{quick}"


def processor_of(machine):
    return f"{machine.get('cpu', 'unknown')}, {machine.get('cpus', '?')} CPUs"


def points(lines):
    """The current rows: (bench, case, unit) to its rows of the last day, each with its machine."""
    found, machine = {}, {}
    for line in lines:
        if line.get("bench") == "machine":
            machine = line
        elif "median" in line:
            key = (line["bench"], json.dumps(line["case"], sort_keys=True), line["unit"])
            found.setdefault(key, {}).setdefault(machine.get("date", ""), []).append((machine, line))
    last = {key: days[max(days)] for key, days in found.items()}
    full = {key: [row for row in rows if row[0].get("scale") == "full"] for key, rows in last.items()}
    return {key: full[key] or rows for key, rows in last.items()}


def merged(rows):
    """The rows of a case on one day as one: median, ratio."""
    medians = [line["median"] for _, line in rows]
    ratios = [line["ratio_to_limit"] for _, line in rows if line.get("ratio_to_limit")]
    return statistics.median(medians), statistics.median(ratios) if ratios else None


def figures(lines):
    """The lines of the table, by bench, kind, unit, day, processor and command."""
    table = {}
    for (bench, case, unit), rows in points(lines).items():
        case, machine = json.loads(case), rows[-1][0]
        kind = ", ".join(f"{key}={case[key]}" for key in KINDS if key in case) or "all"
        key = (bench, kind, unit, machine.get("date", ""), processor_of(machine), command_of(machine, bench))
        table.setdefault(key, []).append(merged(rows))
    return table


def span(values):
    low, high = (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def page(lines):
    rows = [
        "| Bench | Figure | Points | Median | Unit | Ratio to the limit | Day | Processor | Command |",
        "|---|---|---:|---|---|---|---|---|---|",
    ]
    for (bench, kind, unit, day, processor, command), measured in sorted(figures(lines).items()):
        ratios = [ratio for _, ratio in measured if ratio]
        cells = [
            f"`{bench}`", f"`{kind}`", str(len(measured)), span([median for median, _ in measured]), unit,
            span(ratios) if ratios else "-", day, processor, f"`{command}`",
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return HEAD + "\n".join(rows) + "\n"


def records():
    for file in sorted((ROOT / "bench" / "runs").glob("*/*.jsonl")):
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def test():
    def machine(date, **more):
        return {"bench": "machine", "date": date, "cpu": "CPU", "cpus": 2, "scale": "quick", **more}

    def row(median, ratio, **case):
        return {"bench": "any", "case": case, "unit": "GB/s", "median": median, "ratio_to_limit": ratio}

    made = figures(
        [
            machine("2026-01-01"), row(9.0, 0.9, figure="7", bytes=1), row(5.0, 0.5, figure="7", bytes=3),
            machine("2026-01-02", command="ropewalk bench any"), row(1.0, 0.1, figure="7", bytes=1),
            machine("2026-01-02", command="ropewalk bench any"), row(3.0, 0.3, figure="7", bytes=1), row(2.0, None, figure="7", bytes=2),
            {"bench": "any", "case": {"figure": "7", "bytes": 4}, "failed": "no disk"},
            row(7.0, 0.7, figure="8"), machine("2026-01-02", scale="full"), row(8.0, 0.8, figure="8"),
        ]
    )  # fmt: skip
    first = ("any", "figure=7", "GB/s", "2026-01-01", "CPU, 2 CPUs", "ropewalk bench any --quick")
    second = ("any", "figure=7", "GB/s", "2026-01-02", "CPU, 2 CPUs", "ropewalk bench any")
    full = ("any", "figure=8", "GB/s", "2026-01-02", "CPU, 2 CPUs", "ropewalk bench any")
    assert made == {first: [(5.0, 0.5)], second: [(2.0, 0.2), (2.0, None)], full: [(8.0, 0.8)]}, made


def main():
    if "--test" in sys.argv[1:]:
        test()
        return
    made = page(records())
    if "--check" in sys.argv[1:]:
        test()
        if PAGE.read_text(encoding="utf-8") != made:
            sys.exit(f"{PAGE.relative_to(ROOT)} differs from the records: run bench/figures.py")
    else:
        PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
