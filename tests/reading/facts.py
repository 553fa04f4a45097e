"""Draws facts from the pages of an earlier commit and looks them up in today's pages.

`python -m tests.reading.facts --since REVISION --seed 29 --count 50` draws fields, commands and figures with
units, each from a sentence of README, CONTRIBUTING or a hand-written page. It prints those that no page of
today has, with the sentence that had them, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NO_FACT = re.compile(r"`(\W* |.*\btest_)")
"""Pattern of the text between two code spans, and of names of tests, which other tests look up."""
GENERATED = re.compile(r"docs/(reference/|metrics\.md|performance\.md|engines/)")
FACTS = re.compile(
    r"`[^`\n]{3,60}`"  # a field, a command, a name
    r"|\b\d[\d.,]*\s?(?:%|(?:seconds?|minutes?|hours?|days?|ms|MiB|GiB|MB|GB|KiB|s|m|h|bytes|steps?|times|nodes?"
    r"|pods?|ranks?|windows?|percent|characters?|levels?|names?)\b)"
)


def tree(revision: str, *arguments: str) -> str:
    """Return what a command of git prints for a revision of this checkout."""
    return subprocess.run(
        ["git", *arguments[:1], *(one.replace("REV", revision) for one in arguments[1:])],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def pages(revision: str) -> dict[str, str]:
    """Return the hand-written pages of a revision by their paths."""
    names = tree(revision, "ls-tree", "-r", "--name-only", "REV").splitlines()
    written = [
        name
        for name in names
        if name in ("README.md", "CONTRIBUTING.md")
        or (name.startswith("docs/") and name.endswith(".md") and not GENERATED.match(name))
    ]
    return {name: tree(revision, "show", f"REV:{name}") for name in written}


def facts(text: str) -> Iterator[tuple[str, str]]:
    """Yield each fact of a page with its paragraph or row."""
    for part in re.split(r"\n\s*\n|\n(?=[|-])", text):
        for found in FACTS.findall(part):
            if not NO_FACT.match(found):
                yield found, " ".join(part.split())


def plain(text: str) -> str:
    """Return a text on one line, with single spaces, for comparisons."""
    return " ".join(text.split())


def main() -> None:
    """Print the facts that no page of today has."""
    parser = argparse.ArgumentParser(description="Look facts of earlier pages up in today's.")
    parser.add_argument("--since", required=True, help="a revision of git")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--all", action="store_true", help="also print the facts that were found")
    options = parser.parse_args()
    before = [(name, *one) for name, text in sorted(pages(options.since).items()) for one in facts(text)]
    today = plain(
        "\n".join(
            path.read_text()
            for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
        )
    )
    drawn = random.Random(options.seed).sample(before, options.count)
    missing = [one for one in drawn if plain(one[1]).strip("`") not in today]
    for name, fact, around in drawn if options.all else missing:
        print(
            f"{'MISSING ' if (name, fact, around) in missing else ''}{fact}  ({name})\n    {around[:600]}\n"
        )
    print(f"{options.count - len(missing)} of {options.count} found, of {len(before)} facts")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
