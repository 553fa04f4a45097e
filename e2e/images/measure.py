"""Measures image sizes and the processor time of imports in the images, and writes docs/bench/setup.json.

Run `python -m e2e.images.measure` as root after `make images`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

from convoy_workloads.bench.figures import FOLDER, Figures, Metric, line
from convoy_workloads.engines.families import FAMILIES
from e2e.cluster import files
from e2e.cluster.oci import Store
from e2e.cluster.run import run
from e2e.images import buildah
from e2e.images.build import MAX_MB

REPEATS = 5
PREFIX = "image "
IMPORT = "import time, torch, convoy; print(time.process_time())"
"""Program that prints the processor time of its imports. Processor time hardly depends on the machine's
load.
"""


def measure(store: Store, names: Iterable[str], tag: str = "dev") -> Figures:
    """Return the figures of these images. Raises ClusterError if this checkout has not built one of them."""
    figures = Figures()
    for name in names:
        reference = f"convoy/{name}:{tag}"
        size = Metric(f"{PREFIX}{reference}: size of its layers", "MB", target=MAX_MB, spread="one build")
        figures.add(size, round(store.bytes_of(store.get(reference)) / 1e6))
        importing = Metric(f"{PREFIX}{reference}: processor time of importing torch and convoy", "seconds")
        for _ in range(REPEATS):
            output = buildah.run_in(f"localhost/{store.scope}/{name}:{tag}", ["python", "-c", IMPORT])
            figures.add(importing, float(output))
    return figures


def merged(document: dict[str, Any], rows: list[dict[str, Any]], note: str) -> dict[str, Any]:
    """Return the contents of setup.json with `rows` in place of the previous rows about images. `note` says
    when `rows` were measured.
    """
    kept = [row for row in document["rows"] if not row["metric"].startswith(PREFIX)]
    return {**document, "rows": kept + [{**row, "spread": f"{note}: {row['spread']}"} for row in rows]}


def main() -> None:
    """Measure the image of every family and write setup.json."""
    figures = measure(Store(), [family.name for family in FAMILIES])
    for row in figures.rows():
        print(line(row))
    commit = run(["git", "-C", str(files.CHECKOUT), "rev-parse", "--short", "HEAD"]).strip()
    note = f"{datetime.datetime.now(datetime.UTC).date().isoformat()}, {commit}"
    path = FOLDER / "setup.json"
    document = merged(json.loads(path.read_text()), figures.rows(), note)
    files.write(path, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
