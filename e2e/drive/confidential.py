"""Confidential values of Secrets, and a search for them in texts."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

SHORTEST = 16
"""Characters of what is looked for: shorter ones may be in a text by chance."""
_FORMS = {
    "a private key": re.compile("PRIVATE KEY"),
    "a JSON Web Token": re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\."),
}


def confidential_values(secrets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """All values of Secrets by their place: the encoded text, and each line of the decoded one.

    Lines, since a log may have those of a PEM body and their ends in other words.
    """
    found = {}
    for secret in secrets:
        for key, encoded in (secret.get("data") or {}).items():
            lines = base64.b64decode(encoded).decode(errors="replace").splitlines()
            for number, text in enumerate((encoded, *lines)):
                if len(text) >= SHORTEST and not text.startswith("-----"):
                    found[f"{secret['metadata']['name']}/{key}, line {number}"] = text
    return found


def leaked_values(text: str, confidential: Mapping[str, str]) -> list[str]:
    """Names of the confidential values in a text. Names only, so that no test prints a value again."""
    forms = [name for name, form in _FORMS.items() if form.search(text)]
    return forms + [name for name, value in confidential.items() if value in text]
