"""The command predict, which computes step times with other links and other buckets of gradients."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convoy.cli.cluster import Failure
from convoy.cli.output import Output
from convoy.cli.table import new_table, print_table
from convoy.cli.trace.files import IgnoreDangling, Paths, load_checked, trace_files
from convoy.cli.trace.replay import format_us
from convoy_workloads.traces.predict.sharing import Sharing

if TYPE_CHECKING:
    from convoy_workloads.traces.predict.calibration import Calibration
    from convoy_workloads.traces.predict.fit_warnings import FitWarning
    from convoy_workloads.traces.predict.job import Job

MAX_PREDICTIONS = 100


def predict(
    paths: Paths,
    speed: Annotated[
        list[float] | None,
        typer.Option(help="Bandwidth of the links, as a factor of the recorded one. Repeatable."),
    ] = None,
    bucket: Annotated[
        list[float] | None,
        typer.Option(metavar="MIB", help="Size of DDP's buckets of gradients. Repeatable."),
    ] = None,
    sharing: Annotated[
        Sharing,
        typer.Option(help="Communications at the same time: with equal parts of a link, in turn, or alone."),
    ] = Sharing.FAIR,
    calibrate: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Traces of another job on the same links, to calibrate them."),
    ] = None,
    link_rate: Annotated[
        float | None,
        typer.Option(metavar="GBPS", help="Known rate of the recorded links in gigabytes (10^9) a second."),
    ] = None,
    ignore_dangling: IgnoreDangling = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TEXT,
) -> None:
    """Predict the time of a step with other links or buckets, from the traces of all ranks.

    The recorded communications show latency and bandwidth of the links under load. Then all ranks are
    replayed together: a communication begins when its slowest rank has arrived, and shares the links with
    others. With --link-rate, what a byte takes longer than at this rate is taken for work of the hosts, which
    stays the same on other links. STEP is the median of the recorded steps. At speed 1 with the recorded
    buckets, it is the recorded time.

    Warnings on stderr say why not to trust a prediction: the fit's error is large, or there are too few
    communications, or all have one size.
    """
    from convoy_workloads.traces.findings import InvalidTrace  # noqa: PLC0415
    from convoy_workloads.traces.predict.fit_warnings import fit_warnings  # noqa: PLC0415
    from convoy_workloads.traces.predict.predict import (  # noqa: PLC0415
        predicted_change_us,
        predicted_step_us,
        recorded_step_us,
    )

    speeds = speed or [1.0]
    buckets: list[float | None] = [*bucket] if bucket else [None]
    if wrong := [one for one in speeds if not 1e-6 <= one <= 1e6]:
        raise Failure(f"--speed must be from 0.000001 to 1000000, not {wrong[0]}")
    if wrong := [one for one in buckets if one is not None and not 1e-6 <= one <= 1e6]:
        raise Failure(f"--bucket must be from 0.000001 to 1000000 MiB, not {wrong[0]}")
    if link_rate is not None and not 1e-6 <= link_rate <= 1e6:
        raise Failure(f"--link-rate must be from 0.000001 to 1000000, not {link_rate}")
    # A gigabyte a second is a thousand bytes a microsecond.
    rate = None if link_rate is None else link_rate * 1000
    if len(speeds) * len(buckets) > MAX_PREDICTIONS:
        raise Failure(f"{len(speeds) * len(buckets)} predictions; at most {MAX_PREDICTIONS} are allowed")
    try:
        job = _job(paths, ignore_dangling)
        source = job if calibrate is None else _job([calibrate], ignore_dangling)
        calibration = _calibration(source, sharing)
        recorded = recorded_step_us(job)
        warnings = list(fit_warnings(calibration, recorded, predicted_step_us(job, calibration.links)))
        rows = [
            (factor, size, predicted_change_us(job, calibration.links, factor, rate, _bytes(size)))
            for size in buckets
            for factor in speeds
        ]
    except InvalidTrace as error:
        raise Failure(str(error)) from error
    for one in warnings:
        typer.echo(f"warning: {one.code}: {one.message}", err=True)
    if output is Output.JSON:
        typer.echo(json.dumps(_as_json(calibration, warnings, recorded, rows), indent=2))
        return
    links = calibration.links
    typer.echo(
        f"links: {links.bytes_per_us:.4g} MB/s, {links.latency_us:.4g} us a message; "
        f"{calibration.transfers} communications, error {calibration.error:.1%}"
    )
    shown = new_table()
    for head in ("SPEED", "BUCKET", "STEP", "RATIO"):
        shown.add_column(head, justify="right")
    shown.add_row("recorded", "", format_us(recorded), "1.000")
    for factor, size, micros in rows:
        words = "" if size is None else f"{size:g} MiB"
        shown.add_row(f"{factor:g}", words, format_us(micros), f"{micros / (recorded or 1):.3f}")
    print_table(shown)


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None else max(round(mebibytes * 2**20), 1)


def _job(paths: Iterable[Path], ignore_dangling: bool) -> Job:
    """Return the job of the traces in `paths`. Raises Failure if a file cannot be read, or InvalidTrace if a
    trace cannot be used.
    """
    from convoy_workloads.traces.predict.job import job_of  # noqa: PLC0415

    return job_of([load_checked(path, ignore_dangling) for path in trace_files(paths)])


def _calibration(job: Job, sharing: Sharing) -> Calibration:
    """Return the links of a job. Raises Failure if no communication shows them."""
    from convoy_workloads.traces.predict.calibration import calibrate  # noqa: PLC0415

    found = calibrate(job, sharing)
    if found is None:
        raise Failure(
            "no communication of several ranks with bytes and times: the links cannot be calibrated"
        )
    return found


def _as_json(
    calibration: Calibration,
    warnings: Iterable[FitWarning],
    recorded: float,
    rows: Iterable[tuple[float, float | None, float]],
) -> dict[str, Any]:
    links = calibration.links
    return {
        "links": {
            "bytesPerUs": links.bytes_per_us, "latencyUs": links.latency_us, "sharing": links.sharing,
            "communications": calibration.transfers, "sizes": calibration.sizes, "error": calibration.error,
        },
        "warnings": [{"code": one.code, "message": one.message} for one in warnings],
        "recordedStepUs": recorded,
        "predictions": [
            {"speed": factor, "bucketMiB": size, "stepUs": micros} for factor, size, micros in rows
        ],
    }  # fmt: skip
