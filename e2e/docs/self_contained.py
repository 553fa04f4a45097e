"""Checks that a built site loads nothing from other hosts: `python -m e2e.docs.self_contained FOLDER`.

Links may lead to other hosts. The check concerns only resources that a browser loads without a click. The
module uses only the standard library.
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
"""Element and attribute pairs with which a page may load a resource."""
_NOT_LOADED = frozenset({"canonical", "next", "prev", "edit"})
"""Values of a link's `rel` with which a browser loads nothing."""
_EXTERNAL = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.I)
_CSS = re.compile(r"""(?:@import\s+|url\(\s*)["']?((?:[a-z][a-z0-9+.-]*:)?//[^"')\s;]+)""", re.I)


class Page(HTMLParser):
    """A parser that collects the external resources of a page in `found`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the resources of one element."""
        values = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        self.found += _CSS.findall(values.get("style", ""))
        if "mermaid" in values.get("class", "").split():
            self.found.append("a Mermaid diagram, for which the theme loads an external script")
        if tag == "link" and set(values.get("rel", "").split()) & _NOT_LOADED:
            return
        self.found += [
            f"{tag} {value}"
            for name, value in values.items()
            if (tag, name) in _LOADED and _EXTERNAL.match(value)
        ]

    def handle_data(self, data: str) -> None:
        """Collect the resources of an inline style sheet."""
        if self._style:
            self.found += _CSS.findall(data)


def external_resources(folder: Path) -> Iterator[str]:
    """Yield a line for each external resource of the pages and style sheets below `folder`."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix == ".html":
            page = Page()
            page.feed(path.read_text())
            yield from (f"{name}: {one}" for one in page.found)
        elif path.suffix == ".css":
            yield from (f"{name}: {one}" for one in _CSS.findall(path.read_text()))


def main() -> None:
    """Raise SystemExit with the list of external resources, if there are any."""
    folder = Path(sys.argv[1])
    if not (folder / "index.html").exists():
        raise SystemExit(f"{folder} has no index.html; build the site first")
    if found := list(external_resources(folder)):
        raise SystemExit("the site loads resources from other hosts:\n" + "\n".join(found))
    print(f"{folder}: the site loads nothing from other hosts")


if __name__ == "__main__":
    main()
