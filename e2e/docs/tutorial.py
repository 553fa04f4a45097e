"""Runs the commands of a tutorial's page: `python -m e2e.docs.tutorial PAGE [FOLDER]`.

Three kinds of fenced blocks are used:

- A block that begins with ```sh has commands.
- A block that begins with ```output has the output of the commands before it (`e2e.docs.shown_output`).
- A block with a `title` is a file.

The commands run in order, in a folder with the files and links to the checkout's `examples` and `charts`.
Each block runs in its own shell, which stops at the first error. When a block ends, its background processes
are killed.
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
"""Maximum seconds for one block of commands."""
_FENCE = re.compile(r"^```(?P<info>\S.*)?$")
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, without its fences."""

    line: int
    """Line number of the opening fence, from 1."""
    language: str
    title: str
    """File name, if the block is a file; otherwise empty."""
    text: str

    @property
    def is_commands(self) -> bool:
        """True if the block contains commands to run."""
        return self.language == "sh"

    @property
    def is_output(self) -> bool:
        """True if the block shows the output of the commands before it."""
        return self.language == "output"


class InvalidPage(ValueError):
    """Raised for a page that is not a valid tutorial. The message says where and why."""


class OutputMismatch(AssertionError):
    """Raised if the real output differs from the page. The message says where, and contains the output."""


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page in order.

    Raises InvalidPage for a block that is not closed, or for a file name outside the tutorial's folder.
    """
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
    """Write the files of a page, run its commands and compare their output, in the order of the page.

    Raises CalledProcessError if a block fails (`cmd` is the block's location), TimeoutExpired if a block
    takes too long, and OutputMismatch if its output differs from the page.
    """
    for name in ("examples", "charts"):
        if not (link := folder / name).exists():
            link.symlink_to(CHECKOUT / name)
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
    """Run the commands of a block. Print and return their output."""
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
    """Run a page in the given folder, or else in a new one. Raise SystemExit if a block fails."""
    page = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run_page(page, Path(sys.argv[2]) if len(sys.argv) > 2 else Path(scratch))
        except (subprocess.SubprocessError, InvalidPage, OutputMismatch) as error:
            raise SystemExit(f"tutorial: {error}") from error


if __name__ == "__main__":
    main()
