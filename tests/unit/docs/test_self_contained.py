"""Tests that the check of pages finds exactly the external resources that a page loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.docs.self_contained import external_resources


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example.com/a.js"></script>',
        '<script src="//cdn.example.com/a.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example.com/css">',
        '<link rel="preconnect" href="https://fonts.example.com">',
        '<img src="http://example.com/a.png">',
        '<style>@import url("https://example.com/a.css");</style>',
        "<style>@font-face { src: url(//example.com/a.woff2) }</style>",
        '<p style="background: url(https://example.com/a.png)">',
        '<pre class="mermaid">graph</pre>',
    ],
)
def test_external_resources_are_found(tmp_path: Path, html: str) -> None:
    (tmp_path / "page.html").write_text(f"<html><body>{html}</body></html>")
    assert len(list(external_resources(tmp_path))) == 1


def test_style_sheets_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "a{background:url(../b.png)} @font-face{src:url('https://example.com/f.woff')}"
    )
    assert list(external_resources(tmp_path)) == ["a.css: https://example.com/f.woff"]


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://example.com">a link to follow</a>',
        '<link rel="canonical" href="https://example.com/page">',
        '<link rel="stylesheet" href="assets/a.css"><script src="../a.js"></script>',
        '<img src="data:image/svg+xml;base64,AA==">',
        "<code>https://example.com/a.js</code>",
        "<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    ],
)
def test_links_and_local_resources_are_ignored(tmp_path: Path, html: str) -> None:
    (tmp_path / "page.html").write_text(f"<html><body>{html}</body></html>")
    assert list(external_resources(tmp_path)) == []
