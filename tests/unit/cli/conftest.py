"""Settings of the tests of the command line."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import typer.main


@pytest.fixture(scope="session", autouse=True)
def tree_of_commands() -> Iterator[None]:
    """Build the tree of all commands once. Typer builds it for each call, which takes longer than most
    commands.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.main.get_command))
        yield
