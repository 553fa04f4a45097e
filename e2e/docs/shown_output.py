"""Compares the output that a page shows with the real output of commands.

These parts may differ: times, numbers with several digits or a fraction, node names, digests, and the
number of spaces. `...` in the page stands for any text. Everything else must be equal, including numbers of
one digit such as an incarnation or `2/2`. The real output must have the page's lines in the same order, and
may have other lines between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_VARIES = {
    r" ?\.\.\. ?": ".*",
    r"\d{4}-\d\d-\d\dT[\d:.]+Z": r"\d{4}-\d\d-\d\dT[\d:.]+Z",
    r"\bnode-\d+\b": r"node-\d+",
    r"\b[0-9a-f]{12,}\b": "[0-9a-f]+",
    r"\b(?:\d+(?:\.\d+)?(?:ms|[smhd])){1,3}\b": r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+",
    r"\d+\.\d+|\d{2,}": r"\d+(?:\.\d+)?",
}
"""Patterns: the key matches a variable part in a page, the value matches what the real output may have
there.
"""
_ANY = re.compile("|".join(f"({one})" for one in _VARIES))
_MAY_BE = list(_VARIES.values())


def missing_lines(page: str, output: str) -> Iterator[str]:
    """Yield the lines of `page` that `output` lacks or has in another order."""
    remaining = [" ".join(line.split()) for line in output.splitlines()]
    for expected in filter(str.strip, page.splitlines()):
        wanted = pattern(expected)
        position = next((number for number, line in enumerate(remaining, 1) if wanted.fullmatch(line)), None)
        if position is None:
            yield expected
        else:
            remaining = remaining[position:]


def pattern(line: str) -> re.Pattern[str]:
    """Return the pattern that the real line must match. The pattern has single spaces between words, so the
    real line must be reduced to single spaces first.
    """
    text, found, end = " ".join(line.split()), [], 0
    for match in _ANY.finditer(text):
        found += [re.escape(text[end : match.start()]), _MAY_BE[(match.lastindex or 1) - 1]]
        end = match.end()
    return re.compile("".join([*found, re.escape(text[end:])]))
