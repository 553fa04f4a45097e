"""Whether commands have said what a page shows of it.

What differs from one run to the next may differ: times, numbers of more than one digit or with a fraction,
names of nodes, digests, and how many spaces are between words. `...` stands for any text. All else is as it
is said: words, and numbers of one digit, such as an incarnation or `2/2`. Lines come in their order, and
others may be between them.
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
"""What may differ as a page has it -> as it may be."""
_ANY = re.compile("|".join(f"({one})" for one in _VARIES))
_MAY_BE = list(_VARIES.values())


def missing_lines(page: str, output: str) -> Iterator[str]:
    """The lines of a page's block that were not said, or not in this order."""
    remaining = [" ".join(line.split()) for line in output.splitlines()]
    for expected in filter(str.strip, page.splitlines()):
        wanted = pattern(expected)
        position = next((number for number, line in enumerate(remaining, 1) if wanted.fullmatch(line)), None)
        if position is None:
            yield expected
        else:
            remaining = remaining[position:]


def pattern(line: str) -> re.Pattern[str]:
    """What a line that is shown stands for, with one space between words."""
    text, found, end = " ".join(line.split()), [], 0
    for match in _ANY.finditer(text):
        found += [re.escape(text[end : match.start()]), _MAY_BE[(match.lastindex or 1) - 1]]
        end = match.end()
    return re.compile("".join([*found, re.escape(text[end:])]))
