"""A YAML loader that reads numbers and times as kubectl does. PyYAML reads some numbers and times
differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

_FLOAT = re.compile(
    r"^[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$"
    r"|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"
)
_WHOLE = re.compile(r"^[-+]?(0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_SHORT = re.compile(r"^[yYnN]$")
_TAG = "tag:yaml.org,2002:"
_REPLACED_TAGS = {_TAG + "int", _TAG + "float", _TAG + "timestamp"}
_MAX_WHOLE = 1e21
"""Smallest whole number that Go writes with an exponent (`1e+21`). Such a number and larger ones stay
floats.
"""


class Loader(yaml.SafeLoader):
    """Reads `1e-4` as a number, `1:30` and `2026-01-01` as text, and `1e3` as the whole number 1000."""

    bool_values = yaml.SafeLoader.bool_values | {"y": True, "n": False}

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Return the number as the API server would receive it in JSON: a whole number below `_MAX_WHOLE`
        is an int, even if the YAML has a decimal point or an exponent.
        """
        number: float = super().construct_yaml_float(node)
        return int(number) if number.is_integer() and abs(number) < _MAX_WHOLE else number


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag not in _REPLACED_TAGS]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(_TAG + "int", _WHOLE, list("-+0123456789"))
Loader.add_implicit_resolver(_TAG + "float", _FLOAT, list("-+0123456789."))
Loader.add_implicit_resolver(_TAG + "bool", _SHORT, list("yYnN"))
Loader.add_constructor(_TAG + "float", Loader.construct_yaml_float)


def load_all(text: str) -> Iterator[Any]:
    """Yield the YAML documents in a text. Raises yaml.YAMLError if the text is not YAML."""
    found: Iterator[Any] = yaml.load_all(text, Loader)
    return found
