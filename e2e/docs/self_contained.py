"""Whether a built site loads anything from elsewhere: `python -m e2e.docs.self_contained FOLDER`.

Runs on the bare system Python. Links that a reader follows may lead anywhere; what a browser loads by itself
may not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

_LOADED = {
    ("script", "src"), ("link", "href"), ("img", "src"), ("img", "srcset"), ("source", "src"),
    ("source", "srcset"), ("iframe", "src"), ("video", "src"), ("audio", "src"), ("embed", "src"),
    ("object", "data"), ("track", "src"), ("input", "src"), ("use", "href"), ("image", "href"),
}  # fmt: skip
"""Attributes by which a page loads something, or says where it may."""
_NOT_LOADED = frozenset({"canonical", "next", "prev", "edit"})
"""Kinds of `link` that only say something."""
_EXTERNAL = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.I)
_CSS = re.compile(r"""(?:@import\s+|url\(\s*)["']?((?:[a-z][a-z0-9+.-]*:)?//[^"')\s;]+)""", re.I)


class Page(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One element."""
        values = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        self.found += _CSS.findall(values.get("style", ""))
        if "mermaid" in values.get("class", "").split():
            self.found.append("a diagram for which the theme would fetch a script")
        if tag == "link" and set(values.get("rel", "").split()) & _NOT_LOADED:
            return
        self.found += [
            f"{tag} {value}"
            for name, value in values.items()
            if (tag, name) in _LOADED and _EXTERNAL.match(value)
        ]

    def handle_data(self, data: str) -> None:
        """The text of an element."""
        if self._style:
            self.found += _CSS.findall(data)


def external_resources(folder: Path) -> Iterator[str]:
    """A line for each thing that a page or a style sheet below `folder` loads from another host."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix == ".html":
            page = Page()
            page.feed(path.read_text())
            yield from (f"{name}: {one}" for one in page.found)
        elif path.suffix == ".css":
            yield from (f"{name}: {one}" for one in _CSS.findall(path.read_text()))


def main() -> None:
    """SystemExit that names what is loaded from elsewhere."""
    folder = Path(sys.argv[1])
    if not (folder / "index.html").exists():
        raise SystemExit(f"{folder} holds no site")
    if found := list(external_resources(folder)):
        raise SystemExit("loaded from elsewhere:\n" + "\n".join(found))
    print(f"{folder}: nothing is loaded from elsewhere")


if __name__ == "__main__":
    main()
