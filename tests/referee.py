#!/usr/bin/env python3
"""Holds the account of a run against its files, number by number.

    referee.py RUN.JSON DIRECTORY...

RUN.JSON is the account, and each DIRECTORY a run directory of a builder unit. It counts the fragments of each source in the
records, and compares. Prints what it found as JSON; the status is 0 where everything agrees, 1 where something does not, and
77 where it cannot tell, because a package is missing. `--sent` says that the fragments are those of sender.py beside it.
"""

import json
import sys

import run_files
import sender

RECEIVED = ("in_complete_events", "in_incomplete_events", "duplicate", "late", "corrupt", "stale", "after_stop", "in_flight")
FILTER = 0xFFFFFFFE
# What a unit that died knew of its gaps died with it.
READOUT_LOST = 22


def is_whole(events, gone):
    """Whether each event that was kept should be in a file."""
    return events["rejected"] + events["unselected"] + gone == 0


def compare(account, events):
    """What does not agree, in words."""
    wrong = []

    def expect(what, found, told):
        if found != told:
            wrong.append("%s: %d found, %d told" % (what, found, told))

    built, whole = account["events"], [event for event in events.values() if not event.missing]
    gone = account["disk"]["events_gone"] + account["deleted"]["events"]
    if is_whole(built, gone):
        expect("complete events", len(whole), built["built"])
        expect("incomplete events", len(events) - len(whole), built["incomplete_emitted"])
    expect("events in files", len(events), built["written"] - gone)
    total = dict.fromkeys(RECEIVED, 0)
    for source, told in account["by_source"].items():
        accounted = sum(told[name] for name in RECEIVED) + sum(told["dropped"].values())
        expect("source %s: received" % source, told["received"], accounted)
        for name in RECEIVED:
            total[name] += told[name]
        if is_whole(built, gone):
            found = [[fragment.source for fragment in event.fragments].count(int(source)) for event in events.values()]
            complete = sum(count for count, event in zip(found, events.values()) if not event.missing)
            expect("source %s: in complete events" % source, complete, told["in_complete_events"])
            expect("source %s: in incomplete events" % source, sum(found) - complete, told["in_incomplete_events"])
            unrecorded = sum(told["dropped"].get(cause, 0) for cause in ("built_without", "too_large"))
            gaps = account["gaps"].get(source, [])
            if unrecorded and not gaps:
                wrong.append("source %s: %d fragments are in no record, and no gap says where" % (source, unrecorded))
            outside = [
                event.key
                for event in events.values()
                if int(source) in [missing for missing, cause in event.missing if cause != READOUT_LOST]
                and not any(number(gap["first"]) <= event.key <= number(gap["last"]) for gap in gaps)
            ]
            # Late fragments are of events that had left their readout unit.
            if outside and not told["late"]:
                wrong.append("source %s: missing in %d events outside of its gaps, first %d" % (source, len(outside), outside[0]))
    for name in RECEIVED:
        expect("all sources: %s" % name, total[name], account["fragments"][name])
    if not account["ledger"]["balanced"]:
        wrong.append("the account says that it does not balance")
    return wrong


def number(key):
    """`17`, or `2:17` after two resynchronisations."""
    resync, _, event = str(key).rpartition(":")
    return int(resync or 0) << 48 | int(event)


def content(events):
    """What does not hold what was sent."""
    wrong = []
    for event in events.values():
        for fragment in event.fragments:
            if fragment.source != FILTER and fragment.bytes != sender.payload(fragment.source, event.key):
                wrong.append("event %d: not what source %d sent" % (event.key, fragment.source))
    return wrong


def main(arguments):
    is_sent = "--sent" in arguments
    account, *directories = [argument for argument in arguments if argument != "--sent"]
    with open(account, encoding="utf-8") as file:
        account = json.load(file)
    try:
        events, problems = run_files.read(directories)
    except run_files.CannotTell as reason:
        print(reason)
        return 77
    wrong = compare(account, events) + (content(events) if is_sent else [])
    problems = ["%s: at %d: %s" % problem for problem in problems]
    found = {
        "events": len(events),
        "incomplete": sum(bool(event.missing) for event in events.values()),
        "fragments": sum(len(event.fragments) for event in events.values()),
        "wrong": len(wrong),
        "first_wrong": wrong[:10],
        "problems": len(problems),
        "first_problems": problems[:5],
    }
    print(json.dumps(found))
    return int(bool(wrong or problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
