"""Holds one JSON object against a schema and against expectations.

    check_json.py FILE [--schema SCHEMA] [PATH=VALUE | PATH>NUMBER]...

PATH is dotted, a member of a list is named by its place; VALUE is JSON or a bare word. Of JSON Schema it knows what docs/schema uses, and refuses the rest.
"""

import json
import re
import sys

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
ANNOTATIONS = {"$schema", "$id", "title", "description", "examples", "$defs"}
RULES_OF_VALUES = {"$ref", "type", "const", "enum", "minimum", "pattern"}
RULES_OF_MEMBERS = {"required", "properties", "additionalProperties", "items"}


def has_type(value, name):
    is_number = name in ("integer", "number")
    return isinstance(value, TYPES[name]) and not (is_number and isinstance(value, bool))


def types_of(schema):
    names = schema["type"]
    return names if isinstance(names, list) else [names]


def errors(value, schema, root, path="$"):
    """Everything in which `value` differs from `schema`, one text each."""
    unknown = set(schema) - ANNOTATIONS - RULES_OF_VALUES - RULES_OF_MEMBERS
    if unknown:
        yield f"{path}: the schema uses {sorted(unknown)}, which this checker does not know"
    if "$ref" in schema:
        yield from errors(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    if "type" in schema and not any(has_type(value, name) for name in types_of(schema)):
        yield f"{path}: {value!r} is not of type {schema['type']}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and has_type(value, "number") and value < schema["minimum"]:
        yield f"{path}: {value} is less than {schema['minimum']}"
    if "pattern" in schema and isinstance(value, str):
        if not re.search(schema["pattern"], value):
            yield f"{path}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, dict):
        yield from errors_of_members(value, schema, root, path)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from errors(item, schema["items"], root, f"{path}[{index}]")


def errors_of_members(value, schema, root, path):
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}.{name}: is missing"
    for name, member in value.items():
        rest = schema.get("additionalProperties", True)
        if name in properties:
            yield from errors(member, properties[name], root, f"{path}.{name}")
        elif rest is False:
            yield f"{path}.{name}: is not in the schema"
        elif isinstance(rest, dict):
            yield from errors(member, rest, root, f"{path}.{name}")


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
        found += errors(value, schema, schema)
        rest = rest[2:]
    found += filter(None, (unmet(value, expectation) for expectation in rest))
    for line in found:
        print(line)
    if found:
        print(f"in: {text.strip()[:2000]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
