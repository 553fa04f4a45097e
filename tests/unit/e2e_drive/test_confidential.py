"""Tests of the search for confidential values in logs, in every form in which a log may contain them."""

from __future__ import annotations

import base64
import json

import pytest
from e2e.drive.confidential import confidential_values, leaked_values

BODY = "MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY"
KEY = f"-----BEGIN EC PRIVATE KEY-----\n{BODY}\nshort\n-----END EC PRIVATE KEY-----\n"


def secret(**data: str) -> dict[str, object]:
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    return {"metadata": {"name": "s"}, "data": encoded}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"key={BODY}", ["s/key, line 2"]),
        (json.dumps({"said": KEY}), ["a private key", "s/key, line 2"]),
        (base64.b64encode(KEY.encode()).decode(), ["s/key, line 0"]),
        ("Bearer eyJhbGciOiJF.eyJhdWQiOlsi.MEUCIQ", ["a JSON Web Token"]),
        ("password: sixteen-letters!", ["s/password, line 1"]),
        ("s/key was read, 227 bytes; it is short", []),
        ("-----BEGIN CERTIFICATE-----", []),
    ],
)
def test_leaked_values_in_a_text_are_found(text: str, found: list[str]) -> None:
    held = confidential_values(
        [secret(key=KEY, password="sixteen-letters!", pin="1234"), {"metadata": {"name": "empty"}}]
    )
    assert leaked_values(text, held) == found
