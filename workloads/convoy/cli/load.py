"""The command load, which sends requests to a service and measures the responses."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from convoy.cli.cluster import Failure
from convoy.load.arrivals import (
    MAX_RATE,
    MAX_SECONDS,
    Arrivals,
    Bursts,
    ScheduleError,
    Step,
    arrivals,
    parse_steps,
)
from convoy.load.trace import Scale, Unit, read_trace, scaled

if TYPE_CHECKING:
    from convoy.load.client import Bodies, Completions
    from convoy.load.workers import Progress

PROMPT = "def "
SECONDS = 10.0
Schedule = Callable[[], Iterable[float]]


def load(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the service, with or without /v1.")],
    rate: Annotated[float, typer.Option(min=0.001, max=MAX_RATE, help="Mean requests per second.")] = 10.0,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=0.001, max=MAX_SECONDS, help=f"Duration: {SECONDS:g}, or that of the trace."
        ),
    ] = None,
    kind: Annotated[
        Arrivals,
        typer.Option(
            "--arrivals", help="Distribution of the time between requests: constant, poisson, bursts."
        ),
    ] = Arrivals.POISSON,
    burst_factor: Annotated[
        float, typer.Option(min=1, max=10_000, help="Rate in a burst, divided by the rate between bursts.")
    ] = Bursts.factor,
    burst_seconds: Annotated[
        float, typer.Option(min=0.001, max=MAX_SECONDS, help="Mean duration of a burst.")
    ] = Bursts.seconds,
    calm_seconds: Annotated[
        float, typer.Option(min=0.001, max=MAX_SECONDS, help="Mean time between two bursts.")
    ] = Bursts.calm_seconds,
    steps: Annotated[
        str | None,
        typer.Option(metavar="RATE:SECONDS,...", help="Steps of the rate, instead of --rate and --seconds."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV or JSON lines with the arrivals to replay.")
    ] = None,
    trace_unit: Annotated[
        Unit | None, typer.Option(help="Unit of the numbers in the trace: s, ms, us or ns.")
    ] = None,
    speed: Annotated[
        float, typer.Option(min=1e-6, max=1e6, help="Factor by which the trace is replayed faster.")
    ] = 1.0,
    scale: Annotated[
        float, typer.Option(min=1e-6, max=1000, help="Factor of the trace's number of requests.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrivals, prompts and requests.")] = 1,
    prompt: Annotated[str, typer.Option(help="Prompt of all requests.")] = PROMPT,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with one prompt a line. Each request draws one.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate for each request.")] = 16,
    model: Annotated[str | None, typer.Option(help="Model to name in the requests.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Use /v1/chat/completions.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Read the response as a stream of tokens.")
    ] = True,
    path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Route for --bodies, such as /v2/models/iris/infer.")
    ] = None,
    bodies: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with one JSON body a line, instead of prompts."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds from the scheduled time until a request counts as lost.")
    ] = 30.0,
    max_in_flight: Annotated[
        int, typer.Option(min=1, help="Requests in flight. Beyond it, requests count as unsent.")
    ] = 1024,
    keep_alive: Annotated[
        bool,
        typer.Option(
            "--keep-alive/--no-keep-alive",
            help="Use connections again. Without, the Service spreads each request.",
        ),
    ] = True,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that share the requests.")] = 1,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the service's bearer token.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the rates and the latency as curves.")] = False,
    output: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="File for the report as JSON; - for stdout.")
    ] = None,
) -> None:
    """Send requests to a service on a schedule and measure the responses.

    The load is open: a request is sent at its scheduled time even if the service is slow, and its latency
    counts from that time. Every request is either ok, shed (refused with a time to retry), failed (an error),
    lost (no complete response) or unsent. The exit code is 1 if any request failed, was lost or was not sent.
    """
    # Import these here, because only this command needs aiohttp and HDR histograms.
    from convoy.load.client import Target  # noqa: PLC0415
    from convoy.load.report import curves, lines, report  # noqa: PLC0415
    from convoy.load.workers import Plan, WorkerLost, run  # noqa: PLC0415
    from convoy_workloads.plot import curve  # noqa: PLC0415

    if not url.startswith(("http://", "https://")):
        raise Failure(f"URL must begin with http:// or https://, is {url!r}")
    _refuse_contradictions(steps, trace, seconds, path, bodies)
    if bodies is None:
        requests: Completions | Bodies = _completions(prompt, prompts, max_tokens, chat, stream, model)
    else:
        requests = _bodies(bodies, path)
    token = _read(token_file).strip() if token_file else None
    target = Target(url, requests, token, timeout, keep_alive)
    with _schedule_errors():
        if trace is not None:
            schedule = _replay(trace, trace_unit, Scale(speed, scale), seed, seconds)
        else:
            parsed = parse_steps(steps) if steps else (Step(rate, seconds or SECONDS),)
            schedule = partial(
                arrivals, kind, parsed, seed, Bursts(burst_factor, burst_seconds, calm_seconds)
            )
    plan = Plan(target, schedule, seed, max_in_flight)
    try:
        with _progress() as show:
            result = run(plan, workers, show)
    except WorkerLost as error:
        raise Failure(str(error)) from error
    found = report(result.tally, result.seconds)
    options = {
        "url": target.address,
        "rate": None if trace or steps else rate,
        "steps": steps,
        "trace": str(trace) if trace else None,
        "arrivals": None if trace else kind,
        "seed": seed,
        "startedAt": round(result.started, 3),
    }
    text = json.dumps({**{name: one for name, one in options.items() if one is not None}, **found}, indent=2)
    if output == Path("-"):
        typer.echo(text)
    else:
        typer.echo("\n".join(lines(found)))
        if output is not None:
            _write(output, text + "\n")
    if plot:
        drawn = [curve(points, title) for title, points in curves(result.tally)]
        typer.echo("\n\n".join(["", *filter(None, drawn)]), err=output == Path("-"))
    raise typer.Exit(1 if found["failed"] or found["lost"] or found["unsent"] else 0)


def _refuse_contradictions(
    steps: str | None, trace: Path | None, seconds: float | None, path: str | None, bodies: Path | None
) -> None:
    """Raise Failure if options exclude each other."""
    if steps and trace:
        raise Failure("give only one of --steps and --trace")
    if steps and seconds:
        raise Failure("give no --seconds with --steps: the steps have their own")
    if path and bodies is None:
        raise Failure("--path needs --bodies with the bodies of the requests")


def _completions(
    prompt: str, prompts: Path | None, max_tokens: int, chat: bool, stream: bool, model: str | None
) -> Completions:
    from convoy.load.client import Completions  # noqa: PLC0415

    return Completions(_lines(prompts, "prompt") if prompts else (prompt,), max_tokens, chat, stream, model)


def _bodies(file: Path, path: str | None) -> Bodies:
    from convoy.load.client import Bodies  # noqa: PLC0415

    if path is None or not path.startswith("/"):
        raise Failure(f"--bodies needs --path with the route, such as /v2/models/iris/infer, is {path!r}")
    found = _lines(file, "body")
    for number, body in enumerate(found, 1):
        try:
            json.loads(body)
        except ValueError as error:
            raise Failure(f"{file}: body {number} is not valid JSON: {error}") from error
    return Bodies(path, found)


@contextlib.contextmanager
def _schedule_errors() -> Iterator[None]:
    """Raise errors of a schedule as Failure."""
    try:
        yield
    except ScheduleError as error:
        raise Failure(str(error)) from error


def _replay(file: Path, unit: Unit | None, scale: Scale, seed: int, seconds: float | None) -> Schedule:
    try:
        times = read_trace(file, unit, seed)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from error
    return partial(scaled, times, scale, seed, seconds)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """Show the state of a load on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    console = Console(stderr=True)
    with console.status("starting") as status:

        def show(one: Progress) -> None:
            p95 = "" if one.p95_ms is None else f", p95 {one.p95_ms:g} ms"
            status.update(
                f"{one.seconds:.0f} s: {one.scheduled} requests, {one.ok} ok, {one.in_flight} in flight{p95}"
            )

        yield show


def _write(file: Path, text: str) -> None:
    partial_file = file.with_name(f".{file.name}.partial")
    try:
        partial_file.write_text(text)
        partial_file.replace(file)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from error


def _lines(file: Path, what: str) -> tuple[str, ...]:
    found = tuple(line for line in _read(file).splitlines() if line.strip())
    if not found:
        raise Failure(f"{file} has no {what}: write one on each line")
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: {getattr(error, 'strerror', None) or error}") from error
