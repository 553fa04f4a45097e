"""Collects the confidential values of Secrets and searches texts for them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

MIN_LENGTH = 16
"""Minimum length of a value to search for. A shorter value may occur in a text by chance."""
_FORMS = {
    "a private key": re.compile("PRIVATE KEY"),
    "a JSON Web Token": re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\."),
}


def confidential_values(secrets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the values of Secrets, keyed by Secret, data key and line.

    The values are the encoded text and each line of the decoded text. Lines are searched on their own
    because a log may contain the lines of a PEM body without line ends.
    """
    found = {}
    for secret in secrets:
        for key, encoded in (secret.get("data") or {}).items():
            lines = base64.b64decode(encoded).decode(errors="replace").splitlines()
            for number, text in enumerate((encoded, *lines)):
                if len(text) >= MIN_LENGTH and not text.startswith("-----"):
                    found[f"{secret['metadata']['name']}/{key}, line {number}"] = text
    return found


def leaked_values(text: str, confidential: Mapping[str, str]) -> list[str]:
    """Return the names of the confidential values, private keys and JSON Web Tokens that a text contains.

    The values themselves are not returned, because no test may print them.
    """
    forms = [name for name, form in _FORMS.items() if form.search(text)]
    return forms + [name for name, value in confidential.items() if value in text]
