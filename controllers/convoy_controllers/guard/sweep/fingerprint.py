"""Silent corruption: a short training with a fixed seed must give the same bits on every node of a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from convoy_controllers.guard.sweep.verdict import Outcome, Reason, Verdict

FEWEST = 3
"""Other nodes of the class, to know the right hash by their majority."""


def agreed(hashes: Mapping[str, str], without: str = "") -> str | None:
    """The hash of more than half of the nodes but `without`; None where they are too few or disagree."""
    counts = Counter(one for node, one in hashes.items() if node != without and one)
    if counts.total() < FEWEST:
        return None
    common, count = counts.most_common(1)[0]
    return common if 2 * count > counts.total() else None


def judge(node: str, runs: Sequence[str], others: Mapping[str, str], frozen: str | None = None) -> Verdict:
    """`runs`: the node's hashes, oldest first; `frozen`: the right one where the class's reference names it.

    A node that disagrees with itself computes wrongly, whatever is right. A failure is sticky: a fault that
    corrupts once in a thousand runs passes the next.
    """
    if not runs:
        words = "the training gave no hash"
        return Verdict(node, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, again=True)
    right = frozen or agreed(others, without=node)
    evidence = (
        ("runs", float(len(runs))),
        ("distinct hashes", float(len(set(runs)))),
        ("other nodes", float(len(set(others) - {node}))),
    )
    if len(set(runs)) > 1:
        words = f"{len(set(runs))} results of {len(runs)} equal runs: {', '.join(sorted(set(runs)))}"
        return Verdict(node, Outcome.FAIL, Reason.CORRUPT, words, evidence, sticky=True)
    if right is None:
        words = "too few nodes of its class agree on the right result"
        return Verdict(node, Outcome.INCONCLUSIVE, Reason.TOO_FEW_REFERENCES, words, evidence)
    if runs[-1] != right:
        words = f"result {runs[-1]}, where its class has {right}"
        return Verdict(node, Outcome.FAIL, Reason.CORRUPT, words, evidence, sticky=True)
    return Verdict(node, Outcome.PASS, Reason.MEETS_REFERENCE, f"result {right}", evidence)
