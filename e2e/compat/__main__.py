"""Tests Convoy on a minor version of Kubernetes: `python -m e2e.compat MINOR [--layer NAME]`."""

from __future__ import annotations

import datetime
import os
from typing import Annotated

import typer

from convoy_workloads.bench.figures import this_machine
from e2e.bench.kit.options import require_known
from e2e.cluster import binaries, files, versions
from e2e.cluster.cgroups import Cgroups
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.cluster.run import run as run_program
from e2e.compat import layers, page, results
from e2e.compat.results import Minor

app = typer.Typer(add_completion=False)


@app.command()
def run(
    minor: Annotated[str, typer.Argument(help=f"One of {', '.join(versions.RELEASES)}.")],
    layer: Annotated[
        list[str] | None, typer.Option(help=f"Only this layer: {' or '.join(layers.NAMES)}.")
    ] = None,
) -> None:
    """Run the tests on this minor version, and write the results to docs/bench/compat.json and its page.

    The exit code is 1 if a test fails.
    """
    require_known([minor], versions.RELEASES)
    require_known(layer, layers.NAMES)
    os.environ[versions.CHOICE] = minor
    progress = Progress()
    try:
        programs = binaries.ensure(progress)
        good = True
        for one in layers.LAYERS:
            if not layer or one.name in layer:
                progress.report(f"Kubernetes {versions.release().kubernetes}: {one.description}")
                environment = {"CONVOY_BINARIES": str(programs)}
                result = layers.run(one, environment, commit=_commit(), date=_today())
                _record(minor, one.name, result)
                good &= result.good
    except ClusterError as error:
        raise SystemExit(f"error: {error}") from None
    if not good:
        raise SystemExit(1)


def _record(minor: str, layer: str, result: results.LayerResult) -> None:
    """Write a layer's result to the file and the page. The results of other layers stay if they are of the
    same release.
    """
    release, document = versions.release(), results.read()
    known = document.of(minor)
    kept = dict(known.layers) if known and known.kubernetes == release.kubernetes else {}
    changed = Minor(
        minor=minor,
        kubernetes=release.kubernetes,
        etcd=release.etcd,
        containerd=versions.TOOLS["containerd"].version.removeprefix("v"),
        cgroup=Cgroups.detect().version,
        layers={**kept, layer: result},
        mended=known.mended if known else (),
    )
    document = document.model_copy(update={"machine": this_machine()}).having(changed)
    results.write(document)
    files.write(page.PAGE, page.rendered(document))


def _commit() -> str:
    """Return the short hash of the commit, with `-dirty` if tracked files have uncommitted changes."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty"]
    return run_program(command, cwd=files.CHECKOUT).strip()


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


if __name__ == "__main__":
    app()
