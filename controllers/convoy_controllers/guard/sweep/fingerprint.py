"""A test for silent data corruption: a short training with a fixed seed must give the same bits on every
node of a class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from convoy_controllers.guard.sweep.verdict import Outcome, Reason, Verdict

FEWEST = 3
"""Minimum number of other nodes of the class from which a majority determines the correct hash."""


def agreed(hashes: Mapping[str, str], without: str = "") -> str | None:
    """Return the hash of more than half of the nodes, the node `without` left out. Return None if there are
    too few nodes or there is no majority.
    """
    counts = Counter(one for node, one in hashes.items() if node != without and one)
    if counts.total() < FEWEST:
        return None
    common, count = counts.most_common(1)[0]
    return common if 2 * count > counts.total() else None


def judge(node: str, runs: Sequence[str], others: Mapping[str, str], frozen: str | None = None) -> Verdict:
    """Return the verdict on a node from the hashes of its runs.

    `runs`: the node's hashes, oldest first; `frozen`: the correct hash, if the class's reference contains
    one.

    A node whose own runs differ is faulty, whatever the correct hash is. A failure is sticky: a fault that
    corrupts one run in a thousand would probably pass the next run.
    """
    if not runs:
        words = "the test training returned no hash"
        return Verdict(node, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, again=True)
    right = frozen or agreed(others, without=node)
    evidence = (
        ("runs", float(len(runs))),
        ("distinct hashes", float(len(set(runs)))),
        ("other nodes", float(len(set(others) - {node}))),
    )
    if len(set(runs)) > 1:
        words = f"{len(runs)} identical runs gave different results: {', '.join(sorted(set(runs)))}"
        return Verdict(node, Outcome.FAIL, Reason.CORRUPT, words, evidence, sticky=True)
    if right is None:
        words = "too few nodes of its class agree on one result"
        return Verdict(node, Outcome.INCONCLUSIVE, Reason.TOO_FEW_REFERENCES, words, evidence)
    if runs[-1] != right:
        words = f"result {runs[-1]} differs from the {right} of its class"
        return Verdict(node, Outcome.FAIL, Reason.CORRUPT, words, evidence, sticky=True)
    return Verdict(node, Outcome.PASS, Reason.MEETS_REFERENCE, f"result {right}", evidence)
