"""Tests that every command block of the documentation is run by a test, or is in a list with the reason why
no test runs it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from e2e.docs.commands import NOT_RUN, commands, fill_in, pages, reason_not_run
from e2e.docs.tutorial import CHECKOUT, FOLDER, blocks


def test_each_block_not_run_exists_once_and_has_a_reason() -> None:
    for (name, begins), why in NOT_RUN.items():
        page = CHECKOUT / name
        assert len([one for one in commands(page) if one.text.startswith(begins)]) == 1, (name, begins)
        assert why


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_command_blocks_are_marked_as_commands(page: Path) -> None:
    begins = ("kubectl ", "helm ", "make ", "pip ", "convoy ")
    found = [one for one in blocks(page.read_text()) if one.text.startswith(begins)]
    if page.name != "cli.md":  # cli.md is the generated reference of the command line, so it is left out.
        assert [one.line for one in found if not one.is_commands] == []


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_blocks_not_run_in_tutorials_have_a_reason(page: Path) -> None:
    assert [one.line for one in commands(page) if not one.is_commands and not reason_not_run(page, one)] == []


def test_guard_commands_on_pages_have_a_reason() -> None:
    """No test runs commands inside a sentence, so this test checks them."""
    incomplete = re.compile(r"`convoy guard (?:condemn|release|exempt) NODE(?![^`]*--(?:reason|undo))[^`]*`")
    found = {str(page): incomplete.findall(page.read_text()) for page in pages()}
    assert {page: words for page, words in found.items() if words} == {}


def test_placeholders_are_filled_in() -> None:
    given = {"JOB": "gpt", "NODE": "node-1", "R": "0"}
    assert fill_in("convoy logs JOB --rank R; describe node/NODE READY", given) == (
        "convoy logs gpt --rank 0; describe node/node-1 READY"
    )
