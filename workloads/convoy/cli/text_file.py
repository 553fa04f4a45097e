"""Reads a text file that a user names, up to a limit."""

from __future__ import annotations

import sys
from pathlib import Path

from convoy.cli.cluster import Failure
from convoy.cli.sources import STDIN

MOST_CHARS = 64 << 20


def read_text(file: Path, most: int = MOST_CHARS, expected: str = "") -> str:
    """Return the text of a file, or of stdin for `-`. `expected`: what the file should be, for the message
    about other bytes.

    Raises Failure if the file cannot be read, is no UTF-8, or has more than `most` characters.
    """
    try:
        if file == STDIN:
            text = sys.stdin.read(most + 1)
        else:
            with file.open(encoding="utf-8") as opened:
                text = opened.read(most + 1)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"{file}: is no text: {error}{f'; {expected}' if expected else ''}") from error
    if len(text) > most:
        raise Failure(f"{file}: is larger than {most >> 20} MiB")
    return text
