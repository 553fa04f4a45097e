"""Parses a launcher's command line by a table of the launcher's options.

The parser uses argparse, as torchrun and deepspeed do. So it accepts the same abbreviations, combined short
options and `--`, and reports the same error texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn


class RefusedError(ValueError):
    """Raised if the launcher would refuse its arguments. The message is the launcher's own message."""


class HelpRequestedError(Exception):
    """Raised if the arguments request the launcher's help, so that no rank must be started."""


@dataclass(frozen=True)
class Option:
    """One option of a launcher, with all names that the launcher has for the option."""

    names: tuple[str, ...]
    type: Callable[[str], Any] = str
    flag: bool = False
    """True if the option has no value."""
    choices: tuple[str, ...] | None = None
    variable: bool = False
    """True if the variable PET_<NAME> gives the default value, as for most options of torchrun."""


def spellings(name: str) -> tuple[str, ...]:
    """Return the spellings of a long option: with dashes and, if different, with underscores."""
    dashes, underscores = f"--{name}", f"--{name.replace('-', '_')}"
    return (dashes,) if dashes == underscores else (dashes, underscores)


def parse(
    program: str,
    options: Sequence[Option],
    words: Sequence[str],
    environment: Mapping[str, str],
    unknown: Callable[[str], bool] = lambda text: False,
    positionals: tuple[str, str] = ("training_script", "training_script_args"),
) -> dict[str, Any]:
    """Return the value of every option by destination (argparse's `dest`), and the values `script` and
    `arguments`. The value of an option that is not given is None.

    `unknown` returns True for a text whose value is known only when the command runs. The value of such an
    option is None, and the set `unknown` in the result has its destination.

    The result's `unlisted` has the options that are not in the table, as the user wrote them. The words
    after such an option may be its values, so only the words before it are parsed with certainty.

    `positionals` are the launcher's names for the script and its arguments, for error messages.

    Raises RefusedError with the launcher's own message, and HelpRequestedError for `--help`.
    """
    parser = _Parser(prog=program, add_help=False)
    parser.add_argument("-h", "--help", nargs=0, action=_Help)
    unread: set[str] = set()
    for option in options:
        _add(parser, option, environment, unknown, unread)
    parser.add_argument("script", metavar=positionals[0])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar=positionals[1])
    found, unlisted = parser.parse_known_args(list(words))
    values = vars(found)
    for name, value in values.items():
        # argparse of some Python versions returns a list for `--x=--`.
        if isinstance(value, list) and name != "arguments":
            raise RefusedError(f"argument --{name}: expected one argument")
    return {**values, "unknown": unread, "unlisted": tuple(unlisted)}


def _add(
    parser: argparse.ArgumentParser,
    option: Option,
    environment: Mapping[str, str],
    unknown: Callable[[str], bool],
    unread: set[str],
) -> None:
    destination = next(name for name in option.names if name.startswith("--"))[2:].replace("-", "_")
    default = environment.get(f"PET_{destination.upper()}") if option.variable else None
    if option.flag:
        parser.add_argument(*option.names, action="store_true", default=_flag(destination, default))
        return

    def read(text: str) -> Any:
        if unknown(text):
            unread.add(destination)
            return None
        return option.type(text)

    read.__name__ = option.type.__name__  # argparse shows the type's name in its errors.
    parser.add_argument(*option.names, default=default, type=read, choices=option.choices)


def _flag(destination: str, default: str | None) -> bool:
    try:
        return bool(int(default or 0))
    except ValueError:
        raise RefusedError(f"PET_{destination.upper()}={default}: not a number") from None


class _Parser(argparse.ArgumentParser):
    def _get_option_tuples(self, option_string: str) -> list[Any]:
        # Python before 3.12 refuses an abbreviation that fits both spellings of one option. The Python of the
        # image may be of another version than this Python, so accept such an abbreviation.
        found: list[Any] = super()._get_option_tuples(option_string)
        return found[:1] if len({id(entry[0]) for entry in found}) == 1 else found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # A value of None is known only when the command runs, so it cannot be checked here.
        if value is not None:
            super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        raise RefusedError(message)


class _Help(argparse.Action):
    def __call__(self, *_: Any) -> NoReturn:
        raise HelpRequestedError
