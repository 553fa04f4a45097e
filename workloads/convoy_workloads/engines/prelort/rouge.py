"""ROUGE-L of generated text: the F-measure of the longest common subsequence of words.

Source: C.-Y. Lin, ROUGE: A Package for Automatic Evaluation of Summaries, 2004, section 3.1, with equal
weights of precision and recall. Words are runs of letters and digits in lower case, as in the package
rouge-score 0.1.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"[a-z0-9]+")


def rouge_l(reference: str, candidate: str) -> float:
    """Return the F-measure, from 0 to 1."""
    one, other = _WORD.findall(reference.lower()), _WORD.findall(candidate.lower())
    common = longest_common_subsequence(one, other)
    if not common:
        return 0.0
    recall, precision = common / len(one), common / len(other)
    return 2 * precision * recall / (precision + recall)


def longest_common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for word in one:
        diagonal = 0
        for column, second in enumerate(other, 1):
            above = row[column]
            row[column] = diagonal + 1 if word == second else max(above, row[column - 1])
            diagonal = above
    return row[-1]
