"""Tests of the generated CustomResourceDefinitions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any

import cel
import pytest
from pydantic import BaseModel, Field

from convoy_crds.applied import without_drift
from convoy_crds.generate import definition, rendered
from convoy_crds.kind import Kind
from convoy_crds.kinds import KINDS
from convoy_crds.structural import structural

RENDERED = rendered()


@cache
def schema_of(kind: Kind[Any]) -> dict[str, Any]:
    """Return the schema in the CustomResourceDefinition of a kind. Do not change it."""
    schema: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


class Inner(BaseModel):
    value: Annotated[int, Field(gt=0)] = 3


class Outer(BaseModel):
    inner: Inner = Field(default_factory=Inner)
    maybe: Inner | None = None
    port: int | str = 80
    labels: Annotated[dict[str, str], Field(max_length=4)] = Field(default_factory=dict)


def test_a_nested_model_is_inlined_and_has_a_default() -> None:
    properties = structural(Outer.model_json_schema())["properties"]
    assert properties["inner"]["default"] == {}
    assert properties["inner"]["properties"]["value"] == {
        "type": "integer",
        "default": 3,
        "minimum": 0,
        "exclusiveMinimum": True,
    }
    assert "default" not in properties["maybe"]
    assert properties["port"] == {"x-kubernetes-int-or-string": True, "default": 80}
    assert properties["labels"]["maxProperties"] == 4


class Tuple(BaseModel):
    pair: tuple[int, str]


class Union(BaseModel):
    either: int | list[int]


@pytest.mark.parametrize("model", [Tuple, Union])
def test_a_model_without_a_structural_schema_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(ValueError, match="structural"):
        structural(model.model_json_schema())


def _walk(node: Any) -> Any:
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _walk(child)
    elif isinstance(node, list):
        for child in node:
            yield from _walk(child)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schemas_have_no_keywords_that_the_api_server_refuses(kind: Any) -> None:
    for node in _walk(schema_of(kind)):
        assert not {"$ref", "$defs", "const", "anyOf", "prefixItems"} & set(node)


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_stored_definitions_match_the_models(path: Path) -> None:
    assert path.read_text() == RENDERED[path], "run python -m convoy_crds.generate"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_defaults_satisfy_the_rules_before_inner_defaults_are_set(kind: Any) -> None:
    for node in _walk(schema_of(kind)):
        for rule in node.get("x-kubernetes-validations", ()) if "default" in node else ():
            assert "oldSelf" in rule["rule"] or cel.evaluate(rule["rule"], {"self": node["default"]})


def _drifts(node: dict[str, Any], path: str, bare: bool) -> Any:
    """Yield the paths of defaults that would make the stored object differ from the applied file."""
    if bare and "default" in node:
        yield path
    for name, child in node.get("properties", {}).items():
        free = "properties" in child and "default" not in child and not child.get("required")
        vanishes = free and name not in node.get("required", ())
        yield from _drifts(child, f"{path}.{name}", bare or vanishes)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _drifts(node[key], f"{path}[]", True)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_server_defaults_cause_no_drift_of_applied_files(kind: Any) -> None:
    assert not list(_drifts(schema_of(kind)["properties"]["spec"], "spec", False))


def test_a_default_not_set_by_the_server_is_in_the_description() -> None:
    class Item(BaseModel):
        count: Annotated[int, Field(description="How many.")] = 3
        note: str = ""

    class Spec(BaseModel):
        items: list[Item] = Field(default_factory=list)
        maybe: Item | None = None
        always: Item = Field(default_factory=Item)

    found = without_drift(structural(Spec.model_json_schema()))["properties"]
    bare = {"count": {"type": "integer", "description": "How many. Default: 3."}, "note": {"type": "string"}}
    assert found["items"]["items"]["properties"] == found["maybe"]["properties"] == bare
    assert found["always"]["default"] == {} and found["always"]["properties"]["count"]["default"] == 3


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_api_server_fills_in_no_field_of_a_status(kind: Any) -> None:
    def check(node: Any, path: str) -> None:
        assert "default" not in node, path
        for name, child in node.get("properties", {}).items():
            check(child, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                check(node[key], f"{path}[]")

    check(schema_of(kind)["properties"]["status"], "status")
