"""The command load, which sends requests to a service and measures the responses."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.cluster import Failure
from convoy.load.arrivals import Arrivals, arrivals
from convoy.load.report import lines, report

PROMPT = "def "


def load(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the service, with or without /v1.")],
    rate: Annotated[float, typer.Option(min=0.001, max=100_000, help="Requests per second.")] = 10.0,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.001, max=86_400, help="Duration of the load.")
    ] = 10.0,
    kind: Annotated[
        Arrivals, typer.Option("--arrivals", help="Distribution of the time between two requests.")
    ] = Arrivals.POISSON,
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
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the service's bearer token.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="File for the report as JSON; - for stdout.")
    ] = None,
) -> None:
    """Send requests to a service at a fixed rate and measure the responses.

    The load is open: a request is sent at its scheduled time even if the service is slow, and its latency
    counts from that time. Every request is either ok, shed (refused with a time to retry), failed (an error),
    lost (no complete response) or unsent. The exit code is 1 if any request failed, was lost or was not sent.
    """
    # Import this here, because only this command needs aiohttp.
    from convoy.load.client import Load, Target  # noqa: PLC0415

    if not url.startswith(("http://", "https://")):
        raise Failure(f"URL must begin with http:// or https://, is {url!r}")
    target = Target(
        url,
        _prompts(prompt, prompts),
        max_tokens,
        chat,
        stream,
        model,
        _read(token_file).strip() if token_file else None,
        timeout,
        keep_alive,
    )

    async def run() -> tuple[Load, float]:
        made = Load(target, seed, max_in_flight)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, made.stop)
        return made, await made.run(arrivals(kind, rate, seconds, seed))

    made, took = asyncio.run(run())
    found = report(made.outcomes, took)
    options = {"url": target.address, "rate": rate, "arrivals": kind, "seed": seed}
    text = json.dumps({**options, "startedAt": round(made.started, 3), **found}, indent=2)
    if output == Path("-"):
        typer.echo(text)
    else:
        typer.echo("\n".join(lines(found)))
        if output is not None:
            partial = output.with_name(f".{output.name}.partial")
            partial.write_text(text + "\n")
            partial.replace(output)
    raise typer.Exit(1 if found["failed"] or found["lost"] or found["unsent"] else 0)


def _prompts(prompt: str, file: Path | None) -> tuple[str, ...]:
    if file is None:
        return (prompt,)
    found = tuple(line for line in _read(file).splitlines() if line)
    if not found:
        raise Failure(f"{file} has no prompt: write one on each line")
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: {getattr(error, 'strerror', None) or error}") from error
