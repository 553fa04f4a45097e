"""The commands and files of a tutorial, taken out of its page, and run.

`python -m e2e.docs.tutorial PAGE [FOLDER]`. Of the fenced blocks of a page those that begin with ```sh are
commands, those with ```output show what the commands before have said (`e2e.docs.shown_output`), and
those with a `title` are files. All others are for reading. Commands run in their order, each block in a shell of its own
that stops at the first error, in a folder that has the files and a link to the checkout's `examples`. What a
block leaves in the background ends with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from e2e.docs.shown_output import missing_lines

CHECKOUT = Path(__file__).parents[2]
FOLDER = CHECKOUT / "docs" / "tutorials"
DEADLINE_SECONDS = 3600.0
"""For one block."""
_FENCE = re.compile(r"^```(?P<info>\S.*)?$")
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    line: int
    """Where it begins, from 1."""
    language: str
    title: str
    """Name of the file that it is; empty for others."""
    text: str

    @property
    def is_commands(self) -> bool:
        """Whether it is commands."""
        return self.language == "sh"

    @property
    def is_output(self) -> bool:
        """Whether it is what the commands before have said."""
        return self.language == "output"


class InvalidPage(ValueError):
    """The page cannot be read as a tutorial; says where and why."""


class OutputMismatch(AssertionError):
    """Commands have not said what the page shows; says where, and what they have said."""


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page in their order. Broken for one that is not closed, or a bad file name."""
    found: list[Block] = []
    opening: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.splitlines(), 1):
        fence = _FENCE.match(line)
        if opening is None:
            if fence:
                opening, lines = (number, fence["info"] or ""), []
        elif fence and not fence["info"]:
            found.append(_block(*opening, lines))
            opening = None
        else:
            lines.append(line)
    if opening is not None:
        raise InvalidPage(f"line {opening[0]}: the block is not closed")
    return found


def _block(number: int, info: str, lines: list[str]) -> Block:
    title = _TITLE.search(info)
    name = title[1] if title else ""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise InvalidPage(f"line {number}: {name!r} is not below the folder of the tutorial")
    return Block(number, info.split(maxsplit=1)[0] if info else "", name, "\n".join(lines) + "\n")


def run_page(page: Path, folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Writes the files, runs the commands and compares what is shown of a page in `folder`, in its order.

    Raises CalledProcessError, with the block's line in its `cmd`, when a block fails; TimeoutExpired when one
    takes too long; Otherwise when it does not say what the page shows.
    """
    link = folder / "examples"
    if not link.exists():
        link.symlink_to(CHECKOUT / "examples")
    output = ""
    for block in blocks(page.read_text()):
        location = f"{page.name}:{block.line}"
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.is_commands:
            print(location, flush=True)
            output = run(location, block.text, folder, environment)
        elif block.is_output and (lines := list(missing_lines(block.text, output))):
            raise OutputMismatch(
                "\n".join(
                    [
                        f"{location}: not printed, or not in this order:",
                        *lines,
                        "the commands printed:",
                        output,
                    ]
                )
            )


def run(location: str, commands: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs commands of a page; what they have said, which is printed when they are through."""
    with tempfile.TemporaryFile() as file:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(DEADLINE_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            file.seek(0)
            output = file.read().decode(errors="replace")
            print(output, end="", flush=True)
    if code:
        raise subprocess.CalledProcessError(code, location, output)
    return output


def main() -> None:
    """Plays one page in a folder, by default a new one. SystemExit when a block fails."""
    page = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run_page(page, Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch))
        except (subprocess.SubprocessError, InvalidPage, OutputMismatch) as error:
            raise SystemExit(f"tutorial: {error}") from error


if __name__ == "__main__":
    main()
