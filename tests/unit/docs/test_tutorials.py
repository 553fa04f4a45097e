"""Tests of the program that runs the tutorials, and of the names that the tutorials use."""

from __future__ import annotations

import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from e2e.docs.tutorial import CHECKOUT, FOLDER, InvalidPage, OutputMismatch, blocks, run_page

from convoy.cli.__main__ import app
from convoy.cli.manifest import documents, parse, problems

PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
PAGE = """# A page

```sh
echo one > said
```

```yaml title="deep/file.yaml"
a: 1
```

```text
kubectl apply -f nowhere.yaml
```

```sh
cat deep/file.yaml >> said
sleep 1000 &
grep -c . examples/gpt.yaml
```

```output
100
```
"""


def test_blocks_are_extracted_in_order() -> None:
    found = blocks(PAGE)
    assert [(one.line, one.language, one.title, one.is_commands) for one in found] == [
        (3, "sh", "", True),
        (7, "yaml", "deep/file.yaml", False),
        (11, "text", "", False),
        (15, "sh", "", True),
        (21, "output", "", False),
    ]
    assert [one.is_output for one in found] == [False, False, False, False, True]
    assert found[0].text == "echo one > said\n"


def test_a_page_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    folder = tmp_path / "folder"
    folder.mkdir()
    run_page(page, folder)
    assert (folder / "said").read_text() == "one\na: 1\n"


def test_shown_output_must_match_that_of_the_previous_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\necho one\n```\n```sh\necho two >&2\n```\n```output\none\ntwo\n```\n")
    with pytest.raises(
        OutputMismatch,
        match=r"page.md:7: not printed, or not in this order:\none\nthe commands printed:\ntwo\n$",
    ):
        run_page(page, tmp_path)


@pytest.mark.parametrize(
    "command", ["false\ntouch after", "false | true\ntouch after", "echo $nothing\ntouch after"]
)
def test_a_failed_block_ends_the_run_and_is_named(tmp_path: Path, command: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```sh\ntrue\n```\n\n```sh\n{command}\n```\n```sh\ntouch later\n```\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        run_page(page, tmp_path)
    assert raised.value.cmd == "page.md:5"
    assert not (tmp_path / "after").exists() and not (tmp_path / "later").exists()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```sh\ntrue\n", "line 1: the block is not closed"),
        ('```yaml title="../x"\n```\n', "'../x' is not below"),
        ('```yaml title="/etc/x"\n```\n', "'/etc/x' is not below"),
    ],
)
def test_an_invalid_page_is_refused(page: str, words: str) -> None:
    with pytest.raises(InvalidPage, match=re.escape(words)):
        blocks(page)


def commands(page: Path) -> list[list[str]]:
    """Return the words of each command line on a page. If a line has several commands, return only the
    first.
    """
    lines = (line for one in blocks(page.read_text()) if one.is_commands for line in one.text.splitlines())
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_options_and_files_exist(page: Path) -> None:
    root = typer.main.get_command(app)
    files = {one.title for one in blocks(page.read_text())}
    found = commands(page)
    assert len(found) >= 3
    files |= {after for words in found for before, after in pairwise(words) if before == ">"}
    for words in found:
        assert re.fullmatch(r"kubectl|convoy|helm|timeout|cat|wait|\w+=\$!|\w+=\$\(kubectl", words[0]), words
        if words[0] == "convoy":
            command = root.commands[words[1]]  # type: ignore[attr-defined]
            below = getattr(command, "commands", None)
            command = below[words[2]] if below else command
            options = {name for one in command.params for name in one.opts}
            assert {word for word in words if word.startswith("-")} <= options, words
        for word in words:
            name = word.partition("--from-file=")[2] or word
            if name.endswith((".yaml", ".py")):
                assert name in files or (CHECKOUT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_manifests_are_valid_and_equal_to_the_examples(page: Path) -> None:
    written = [one for one in blocks(page.read_text()) if one.language == "yaml"]
    # Check all manifests together, because the Engine that a job names may be in another file.
    together = [parse(body) for one in written for body in documents(one.text)]
    for one in written:
        manifests = [parse(body) for body in documents(one.text)]
        assert manifests and not [wrong for two in manifests for wrong in problems(two, together)]
        if not one.title:
            assert documents((CHECKOUT / "examples" / "gpt.yaml").read_text()) == documents(one.text)


def test_the_small_experiment_is_that_of_the_page_with_fewer_blocks() -> None:
    [plan] = [
        documents(one.text)[0]
        for one in blocks((FOLDER / "experiment.md").read_text())
        if one.title == "intervals.yaml"
    ]
    [small] = documents((CHECKOUT / "examples" / "experiments" / "intervals-small.yaml").read_text())
    changes = {"blocks": 3, "analysis": {"alpha": 0.25}}
    assert small == {**plan, "metadata": {"name": "intervals-small"}, "spec": {**plan["spec"], **changes}}
