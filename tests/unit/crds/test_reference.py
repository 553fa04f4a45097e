"""Tests that reference pages contain all fields, rules and reasons, and that their text is escaped for
Markdown.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from convoy_crds.enum_docs import enum_docs
from convoy_crds.generate import definition
from convoy_crds.kind import Kind
from convoy_crds.kinds import KINDS
from convoy_crds.reference import LONGEST_RULE, ROOT, default_of, page, type_of, words


def test_the_install_page_deletes_every_definition() -> None:
    lines = re.findall("^kubectl delete crd (.+)$", (ROOT / "docs/install.md").read_text(), re.M)
    assert sorted(" ".join(lines).split()) == sorted(kind.crd for kind in KINDS)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "boolean"}, "boolean"),
        ({"type": "integer", "minimum": 1, "maximum": 64}, "integer, 1 to 64"),
        ({"type": "integer", "minimum": 0}, "integer, at least 0"),
        ({"type": "string", "maxLength": 9}, "string, at most 9 characters"),
        ({"type": "string", "pattern": "^a|b[*]$"}, "string, <code>^a&#124;b&#91;&#42;&#93;$</code>"),
        ({"type": "string", "enum": ["A", "B"]}, "`A` or `B`"),
        ({"type": "string", "format": "date-time"}, "time (RFC 3339)"),
        ({"x-kubernetes-int-or-string": True}, "integer or string"),
        (
            {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 2},
            "list of (string, at most 9 characters), at most 2 items",
        ),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "map to string"),
        (
            {
                "type": "array",
                "items": {"type": "object"},
                "maxItems": 8,
                "x-kubernetes-list-map-keys": ["name"],
            },
            "list of object, at most 8 items; unique by `name`",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "x-kubernetes-list-type": "set"},
            "list of string, at least 1 items; no duplicates",
        ),
    ],
)
def test_types_are_described_with_their_bounds(schema: dict[str, Any], words: str) -> None:
    assert type_of(schema) == words


@pytest.mark.parametrize(
    ("schema", "required", "words"),
    [
        ({}, True, "required"),
        ({}, False, ""),
        ({"default": ""}, False, '`""`'),
        ({"default": False}, False, "`false`"),
        ({"default": {}}, False, "`{}`"),
        ({"default": ["L0"]}, False, '`["L0"]`'),
    ],
)
def test_defaults_are_described(schema: dict[str, Any], required: bool, words: str) -> None:
    assert default_of(schema, required) == words


def test_values_are_described_from_the_model() -> None:
    assert enum_docs(["Observe", "Act"]) == {
        "Observe": (
            "Convoy only updates the state and conditions of NodeHealth. It does not taint, drain or repair "
            "nodes."
        ),
        "Act": "Convoy taints, sweeps, drains and repairs nodes, within the budgets.",
    }
    assert enum_docs(["True", "False"]) == {} == enum_docs(())
    schema = {"description": "Whether.\nOr not.", "enum": ["Process", "Pod", "Job"]}
    assert words(schema) == (
        "Whether. Or not.<br>`Process`: Only the ranks, inside their pods.<br>`Pod`: Only the faulty pod."
        "<br>`Job`: All pods of the job."
    )


def found(schema: Any, key: str) -> list[Any]:
    """Return all values that the key has in the schema, at any depth."""
    if isinstance(schema, list):
        return [one for item in schema for one in found(item, key)]
    if not isinstance(schema, dict):
        return []
    own = [schema[key]] if key in schema else []
    return own + [one for value in schema.values() for one in found(value, key)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_page_has_every_field_and_rule_of_the_schema(kind: Kind[Any]) -> None:
    schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    text = page(kind)
    rules = [rule for several in found(schema, "x-kubernetes-validations") for rule in several]
    shown = [rule for rule in rules if len(rule["rule"]) <= LONGEST_RULE]
    for rule in shown:
        assert f"    {rule['rule']}\n" in text
    assert text.count("    ```\n") == 2 * len(shown)
    assert len(rules) - len(shown) <= 1, "the page shows the rules"
    parts = json.loads(json.dumps({part: schema["properties"][part] for part in ("spec", "status")}))
    names = [name for several in found(parts, "properties") for name in several]
    rows = re.findall(r"^\| `((?:spec|status)\.\S+)` \|", text, re.M)
    assert len(rows) == len(set(rows))
    assert sorted(path.rsplit(".", 1)[-1].removesuffix("[]") for path in rows) == sorted(names)
