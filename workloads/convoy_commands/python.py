"""Parser for Python's own command line: `python [options] FILE | -m MODULE | -c CODE | -`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

FILE = "file"
MODULE = "module"

_NAME = re.compile(r"python(3(\.\d+)?)?")
_WITH_VALUE = "XW"
"""Letters of short options that have a value. The value is the rest of the word or, if there is none, the
next word.
"""
_LONG_WITH_VALUE = ("--check-hash-based-pycs",)


@dataclass(frozen=True)
class PythonCall:
    """A command line that calls the Python interpreter, and the program that the interpreter runs."""

    interpreter: str
    options: tuple[str, ...]
    """The interpreter's own options: the letter of each short option, such as `u`, and each long option as
    the user wrote it.
    """
    kind: str
    """`FILE` or `MODULE`; empty if the interpreter runs neither, such as for `-c`, standard input or
    `--version`.
    """
    target: str = ""
    arguments: tuple[str, ...] = ()


def read_python(words: Sequence[str]) -> PythonCall | None:
    """Return the call of Python 3 in `words`; None for any other command."""
    # Use os.path, because the name is only split as text. This code never accesses the file.
    if not words or not _NAME.fullmatch(os.path.basename(words[0])):  # noqa: PTH119
        return None
    options: list[str] = []
    index = 1
    while index < len(words):
        word = words[index]
        if word == "--":
            index += 1
            break
        if word.startswith("--"):
            options.append(word)
            index += 2 if word in _LONG_WITH_VALUE else 1
            continue
        if word == "-" or not word.startswith("-"):
            break
        letters, ending, rest = _cluster(word[1:])
        options += letters
        index += 1
        if ending == "m":
            target = rest or "".join(words[index : index + 1])
            arguments = tuple(words[index if rest else index + 1 :])
            return PythonCall(words[0], tuple(options), MODULE if target else "", target, arguments)
        if ending == "c":
            return PythonCall(words[0], tuple(options), "")
        if ending and not rest:
            index += 1
    if index >= len(words) or words[index] == "-":
        return PythonCall(words[0], tuple(options), "")
    return PythonCall(words[0], tuple(options), FILE, words[index], tuple(words[index + 1 :]))


def _cluster(letters: str) -> tuple[list[str], str, str]:
    """Split one word of combined short options into the flags, the last option if that has a value, and the
    value's part in this word.
    """
    flags: list[str] = []
    for index, letter in enumerate(letters):
        if letter in "mc":
            return flags, letter, letters[index + 1 :]
        flags.append(letter)
        if letter in _WITH_VALUE:
            return flags, letter, letters[index + 1 :]
    return flags, "", ""
