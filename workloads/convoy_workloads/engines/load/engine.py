"""A load on a service as a job of one rank. The figures of the load are the job's result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import convoy
from convoy.load.arrivals import ScheduleError
from convoy.load.client import Bodies, Completions, Target
from convoy.load.workers import Plan, Progress, WorkerLost, run
from convoy_workloads.engines.load.figures import figures, summary
from convoy_workloads.engines.load.params import Params
from convoy_workloads.engines.load.schedule import schedule
from convoy_workloads.runtime.errors import Interrupted, ParamsError
from convoy_workloads.runtime.log import log_line


def main() -> None:
    """Run the job's only rank. A load whose requests fail is a result, so the job succeeds all the same."""
    with convoy.join(Params) as job:
        try:
            plan = plan_of(job.params)
        except ScheduleError as error:
            raise ParamsError(str(error)) from error

        def show(state: Progress) -> None:
            job.report(
                max(1, round(state.seconds)),
                metrics={
                    "requests_scheduled": state.scheduled,
                    "requests_ok": state.ok,
                    "requests_in_flight": state.in_flight,
                },
            )

        with _stopping() as stopped:
            try:
                end = run(plan, job.params.workers, show)
            except WorkerLost as error:
                raise RuntimeError(f"{error}; ask for more memory, or for fewer workers") from error
        if stopped:
            raise Interrupted  # The figures of a part of the load would look like those of the whole.
        found = figures(job.params, end.tally, end.seconds)
        log_line(summary(found))
        job.set_result(found)


def plan_of(params: Params) -> Plan:
    """Return the load that the parameters describe. Raises ScheduleError, or ParamsError if the file with
    the token cannot be read.
    """
    requests: Completions | Bodies
    if params.bodies is not None and params.path is not None:
        requests = Bodies(params.path, tuple(json.dumps(body) for body in params.bodies))
    else:
        prompts = tuple(params.prompts or [params.prompt])
        requests = Completions(prompts, params.max_tokens, params.chat, params.stream, params.model)
    target = Target(params.url, requests, _token(params.token_file), params.timeout, params.keep_alive)
    return Plan(target, schedule(params), params.seed, params.max_in_flight)


def _token(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ParamsError(f"token_file: {file}: {getattr(error, 'strerror', None) or error}") from error


@contextlib.contextmanager
def _stopping() -> Iterator[list[int]]:
    """Let SIGTERM end the load early, as Ctrl-C does. The list then has the number of the signal."""
    stopped: list[int] = []

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, previous)


if __name__ == "__main__":
    main()
