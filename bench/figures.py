"""Writes docs/figures.md: the figures of bench/runs as a table, a line for each bench, figure and run.

    python3 bench/figures.py            writes the page
    python3 bench/figures.py --check    fails if the page differs
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "figures.md"
# What tells the figures of a bench apart; the other keys of a case are its points.
KINDS = ("figure", "nodes", "job", "table", "effect", "limit", "stage", "mechanism", "kernel")
HEAD = """# Figures of the benches

This table is made by `bench/figures.py` from the records in `bench/runs`. [Performance](performance.md) describes the
benches and what the figures mean. A line has the range of the medians over all points of a figure (sizes, tunings), and
the range of their ratios to the limit of the same run. `bench/runs/README.md` has the conditions of each record.

"""


def span(values):
    low, high = (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def figures():
    """(record, bench, figure, unit): medians and ratios."""
    found = {}
    for file in sorted((ROOT / "bench" / "runs").glob("*/*.jsonl")):
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            if "median" not in line:
                continue
            case = line.get("case", {})
            kind = next((f"{key}={case[key]}" for key in KINDS if key in case), "all")
            key = (f"{file.parent.name}/{file.stem}", line["bench"], kind, line.get("unit", ""))
            medians, ratios = found.setdefault(key, ([], []))
            medians.append(line["median"])
            ratios += [line["ratio_to_limit"]] if line.get("ratio_to_limit") else []
    return found


def page():
    rows = ["| Record | Bench | Figure | Points | Median | Unit | Ratio to the limit |", "|---|---|---|---:|---|---|---|"]
    for (record, bench, kind, unit), (medians, ratios) in sorted(figures().items()):
        ratio = span(ratios) if ratios else "-"
        rows.append(f"| `{record}` | `{bench}` | `{kind}` | {len(medians)} | {span(medians)} | {unit} | {ratio} |")
    return HEAD + "\n".join(rows) + "\n"


def main():
    made = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != made:
            sys.exit(f"{PAGE.relative_to(ROOT)} differs from the records: run bench/figures.py")
    else:
        PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
