"""Tests of the rows about images in setup.json."""

from __future__ import annotations

from typing import Any

from e2e.images.measure import PREFIX, merged


def test_rows_of_images_replace_only_earlier_rows_of_images() -> None:
    def row(metric: str, spread: str) -> dict[str, Any]:
        return {"metric": metric, "spread": spread}

    document = {"name": "setup", "rows": [row("make test", "a"), row(f"{PREFIX}x: size", "old")]}
    found = merged(document, [row(f"{PREFIX}y: size", "n=5")], "today, abc")
    assert found == {
        "name": "setup",
        "rows": [row("make test", "a"), row(f"{PREFIX}y: size", "today, abc: n=5")],
    }
