"""Holds one JSON object against a schema and against expectations.

    check_json.py FILE [--schema SCHEMA] [PATH=VALUE | PATH>NUMBER]...

PATH is dotted, a member of a list is named by its place; VALUE is JSON or a bare word.
"""

import json
import sys

import jsonschema


def errors(value, schema):
    """Everything in which `value` differs from `schema`, one text each."""
    validator = jsonschema.Draft202012Validator
    validator.check_schema(schema)
    for error in sorted(validator(schema).iter_errors(value), key=lambda error: list(map(str, error.absolute_path))):
        yield f"{error.json_path}: {error.message[:500]}"


def lookup(value, path):
    for name in path.split("."):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            raise KeyError(path)
    return value


def unmet(value, expectation):
    """Why the expectation does not hold, or nothing."""
    path, sign, wanted = expectation.partition(">") if ">" in expectation else expectation.partition("=")
    try:
        found = lookup(value, path)
    except KeyError:
        return f"{path} is missing"
    try:
        wanted = json.loads(wanted)
    except json.JSONDecodeError:
        pass
    holds = found > wanted if sign == ">" else found == wanted
    return None if holds else f"{path} is {found!r}, expected {sign} {wanted!r}"


def main(file, *rest):
    with open(file, encoding="utf-8") as opened:
        text = opened.read()
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        print(f"no JSON ({error}): {text[:200]!r}")
        return 1
    found = []
    if rest[:1] == ("--schema",):
        with open(rest[1], encoding="utf-8") as opened:
            schema = json.load(opened)
        found += errors(value, schema)
        rest = rest[2:]
    found += filter(None, (unmet(value, expectation) for expectation in rest))
    for line in found:
        print(line)
    if found:
        print(f"in: {text.strip()[:2000]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
