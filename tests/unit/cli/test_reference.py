"""Tests that the reference page contains every command with all its arguments and options."""

from __future__ import annotations

import typer

from convoy.cli.__main__ import app
from convoy.cli.reference import commands, page, section


def test_the_reference_has_every_command() -> None:
    text, every = page(), list(commands(typer.main.get_command(app), ("convoy",)))
    assert len(every) > 15
    for path, command in every:
        part = section(path, command)
        assert part in text
        for one in command.params:
            for name in one.opts if one.param_type_name == "option" else [one.metavar or one.name.upper()]:
                assert name in part, (path, name)


def test_required_arguments_and_defaults_are_shown() -> None:
    every = dict(commands(typer.main.get_command(app), ("convoy",)))
    part = section(("convoy", "guard", "exempt"), every["convoy", "guard", "exempt"])
    assert "convoy guard exempt NODE [OPTIONS]" in part
    assert "| `NODE` | required |" in part and "| `--hours HOURS` | `24` |" in part
    release = section(("convoy", "guard", "release"), every["convoy", "guard", "release"])
    assert "| `--reason REASON` | required |" in release
    assert "convoy get [NAME] [OPTIONS]" in section(("convoy", "get"), every["convoy", "get"])
