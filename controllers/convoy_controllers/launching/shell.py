"""Finds the simple commands that a shell script runs with certainty.

A script with control flow or a here-document yields no commands. Text that the shell inserts at run time
(variables, substitutions) is replaced by UNKNOWN in the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

UNKNOWN = "\0"
"""Character that stands in a word for text that is known only when the shell runs."""
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select"}
    | {"function", "[[", "((", "eval"}
)
_ENDS = frozenset({"exit", "return", "exec"})
"""Words after which a shell runs nothing more."""


class UnreadableError(Exception):
    """Raised if the script cannot be parsed with certainty."""


@dataclass(slots=True)
class _Lexer:
    """Splits a script into the words of its commands."""

    text: str
    at: int = 0
    commands: list[list[str]] = field(default_factory=lambda: [[]])
    word: str | None = None

    def run(self) -> list[list[str]]:
        """Return the words of each command. Raises UnreadableError if a quote or a bracket is not closed."""
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_command()
        return [words for words in self.commands if words]

    def _step(self, char: str) -> None:
        if char in " \t\r":
            self._end_word()
        elif char == "#" and self.word is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            return
        elif char in "\n;&|()":
            self._operator(char)
        elif char in "<>":
            self._redirect()
            return
        elif char == "\\":
            self.at += 1
            if self.text[self.at : self.at + 1] != "\n":
                self._add(self.text[self.at : self.at + 1])
        elif char == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise UnreadableError
            self._add(self.text[self.at + 1 : end])
            self.at = end
        elif char == '"':
            self._double_quoted()
        elif char in "$`":
            self._add(self._expansion())
            return
        else:
            self._add(char)
        self.at += 1

    def _add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def _end_word(self) -> None:
        if self.word is not None:
            self.commands[-1].append(self.word)
        self.word = None

    def _end_command(self) -> None:
        self._end_word()
        self.commands.append([])

    def _operator(self, char: str) -> None:
        if self.text.startswith("||", self.at):
            self._end_command()
            self.commands[-1].append("||")
            self.at += 1
            return
        if char == "(" and (self.word is not None or self.commands[-1]):
            raise UnreadableError  # The bracket belongs to a function or an array.
        self._end_command()

    def _redirect(self) -> None:
        """Skip a redirection such as `2>&1`, `> file` or `<file`. Raises UnreadableError for a
        here-document.
        """
        if self.text.startswith("<<", self.at) and not self.text.startswith("<<<", self.at):
            raise UnreadableError
        if self.word is not None and self.word.isdecimal():
            self.word = None
        self._end_word()
        while self.at < len(self.text) and self.text[self.at] in "<>&|":
            self.at += 1
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        kept = len(self.commands[-1])
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|()<>":
            self._step(self.text[self.at])
        self._end_word()
        del self.commands[-1][kept:]

    def _double_quoted(self) -> None:
        self.at += 1
        self._add("")
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                self.at += 1
                self._add("" if self.text[self.at] == "\n" else self.text[self.at])
                self.at += 1
            elif char in "$`":
                self._add(self._expansion())
            else:
                self._add(char)
                self.at += 1
        if self.at >= len(self.text):
            raise UnreadableError

    def _expansion(self) -> str:
        """Skip an expansion that starts with `$` or a backquote, and return UNKNOWN. Return `$` if the
        dollar sign expands nothing.
        """
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            if end < 0:
                raise UnreadableError
            self.at = end + 1
            return UNKNOWN
        following = self.text[self.at + 1 : self.at + 2]
        if following in ("(", "{"):
            self._skip_brackets(following, ")" if following == "(" else "}")
            return UNKNOWN
        self.at += 1
        if following and following in "@*#?-$!0123456789":
            self.at += 1
            return UNKNOWN
        start = self.at
        while self.at < len(self.text) and (self.text[self.at].isalnum() or self.text[self.at] == "_"):
            self.at += 1
        return UNKNOWN if self.at > start else "$"

    def _skip_brackets(self, opening: str, closing: str) -> None:
        depth = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            depth += (char == opening) - (char == closing)
            self.at += 1
            if char == closing and depth == 0:
                return
        raise UnreadableError


def commands(script: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each simple command that runs for certain if all commands before it succeed."""
    try:
        found = _Lexer(script).run()
    except UnreadableError:
        return ()
    sure: list[tuple[str, ...]] = []
    for words in found:
        while words and words[0] in ("{", "}", "!", "time"):
            words = words[1:]  # noqa: PLW2901
        if words and words[0] in _KEYWORDS:
            return ()
        if not words or words[0] == "||":
            continue
        sure.append(tuple(words))
        if words[0] in _ENDS:
            break
    return tuple(sure)


_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_WITH_VALUE = frozenset({"--rcfile", "--init-file"})


def script_of(words: Sequence[str]) -> str | None:
    """Return the script of a command such as `bash -c SCRIPT`; None for any other command."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    given, index = False, 1
    while index < len(words) and words[index][:1] in ("-", "+") and len(words[index]) > 1:
        word = words[index]
        index += 1
        if word == "--":
            break
        if word.startswith("--"):
            index += word in _WITH_VALUE
            continue
        given = given or (word[0] == "-" and "c" in word)
        index += word[-1] == "o"  # Skip the option's name, as in `-euo pipefail`.
    return words[index] if given and index < len(words) else None
