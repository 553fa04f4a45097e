"""The messages in the output of `convoy why`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from convoy_crds.advice import AdviceFinding


class ShownMessages:
    """The messages that the command has shown, so that it shows none of them twice."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> str:
        """Return `text` and record it as shown. Return an empty text if `text` was already shown.

        A shown text that starts with `text` also counts, because the messages of Events are shortened.
        """
        if any(one.startswith(text) for one in self._texts):
            return ""
        self._texts.append(text)
        return text


def indented(text: str, blanks: int) -> list[str]:
    """Return the lines of a text, with blanks in front of each."""
    return [" " * blanks + line for line in text.rstrip().splitlines()]


def advice_lines(findings: Iterable[AdviceFinding]) -> Iterator[str]:
    """Yield the lines about the rules of advice that a job violates."""
    for one in findings:
        yield f"Advice {one.rule} ({one.severity}): {one.path}: {one.message}"
        yield f"  Remedy: {one.remedy}"
