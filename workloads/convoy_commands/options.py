"""A launcher's command line, read by argparse from a table of the launcher's options.

argparse is what torchrun and deepspeed use themselves: abbreviations, combined short options, `--` and the
wording of errors are theirs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn


class RefusedError(ValueError):
    """The launcher would refuse its arguments; the message is the launcher's own."""


class HelpRequestedError(Exception):
    """The arguments ask for the launcher's help, so nothing is to be started."""


@dataclass(frozen=True)
class Option:
    """One option of a launcher, by the names it has there."""

    names: tuple[str, ...]
    type: Callable[[str], Any] = str
    flag: bool = False
    """Takes no value."""
    choices: tuple[str, ...] | None = None
    variable: bool = False
    """A variable PET_<NAME> is the default, as for most options of torchrun."""


def spelled(name: str) -> tuple[str, ...]:
    """Return both spellings of a long option, dashes first."""
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
    """Return the values by destination, `script` and `arguments` among them; None for what is not given.

    `unknown`: whether a value cannot be read before the command runs. Such values are None too, and their
    destinations are under `unknown`. Options that are not in the table are under `unlisted`, as written: what
    stands behind them may be their values, so only what stands before them is certain.
    `positionals`: the launcher's names for the script and its arguments, as in its errors.
    RefusedError with the launcher's words for what the launcher refuses; HelpRequestedError for `--help`.
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
        if isinstance(value, list) and name != "arguments":  # some versions read `--x=--` so
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

    read.__name__ = option.type.__name__  # argparse names the type in its errors
    parser.add_argument(*option.names, default=default, type=read, choices=option.choices)


def _flag(destination: str, default: str | None) -> bool:
    try:
        return bool(int(default or 0))
    except ValueError:
        raise RefusedError(f"PET_{destination.upper()}={default}: not a number") from None


class _Parser(argparse.ArgumentParser):
    def _get_option_tuples(self, option_string: str) -> list[Any]:
        # Before Python 3.12 an abbreviation of two spellings of one option is ambiguous. The image's Python
        # may be another than this one.
        found: list[Any] = super()._get_option_tuples(option_string)
        return found[:1] if len({id(entry[0]) for entry in found}) == 1 else found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if value is not None:  # else it is unknown yet
            super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        raise RefusedError(message)


class _Help(argparse.Action):
    def __call__(self, *_: Any) -> NoReturn:
        raise HelpRequestedError
