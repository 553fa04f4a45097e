"""Tests of the errors that the client raises for responses of the API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from convoy.client import errors
from convoy.client.errors import FieldError, Invalid, error_of

NOT_INSTALLED = (
    "the API server does not know this kind. Convoy is not installed in this cluster (see: helm list -A), or "
    "the kubeconfig is that of another cluster"
)
REJECTED = "the API server rejected the credentials; check the kubeconfig or the token"


def body(message: str = "", reason: str = "", causes: Any = None) -> str:
    return json.dumps({"message": message, "reason": reason, "details": {"causes": causes}})


@pytest.mark.parametrize(
    ("status", "text", "kind", "words"),
    [
        (401, body("who?"), errors.Forbidden, f"who?: {REJECTED}"),
        (403, body("no"), errors.Forbidden, "no"),
        (404, body("not found"), errors.NotFound, "not found"),
        (409, body("there", "AlreadyExists"), errors.AlreadyExists, "there"),
        (409, body("changed", "Conflict"), errors.Conflict, "changed"),
        (500, body("broken"), errors.ApiError, "broken"),
        (502, "<html>", errors.ApiError, "502 Why"),
        (404, "404 page not found", errors.NotFound, f"404 Why: {NOT_INSTALLED}"),
        (503, None, errors.ApiError, "503 Why"),
        (400, "[1]", errors.ApiError, "400 Why"),
    ],
)
def test_errors_are_distinguished(status: int, text: Any, kind: type[Exception], words: str) -> None:
    found = error_of(status, "Why", text)
    assert (type(found), str(found), found.status) == (kind, words, status)


def test_an_invalid_object_names_its_fields() -> None:
    causes = [
        {"field": "spec.roles[0].replicas", "message": "must be at least 1"},
        {"field": "<nil>", "message": "of all"},
    ]
    found = error_of(422, "", body("bad", "Invalid", causes))
    assert isinstance(found, Invalid)
    assert found.fields == (
        FieldError("spec.roles[0].replicas", "must be at least 1"), FieldError("", "of all")
    )  # fmt: skip
    assert [str(one) for one in found.fields] == ["spec.roles[0].replicas: must be at least 1", "of all"]


def test_unknown_fields_are_named() -> None:
    text = 'strict decoding error: unknown field "spec.rolls", duplicate field "spec.engine"'
    found = error_of(400, "", body(text, "BadRequest"))
    assert isinstance(found, Invalid) and found.status == 400
    assert [str(one) for one in found.fields] == ["spec.rolls: unknown field", "spec.engine: duplicate field"]
