"""The start of a serving rank: parameters, settings, engine and process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from prometheus_client import disable_created_metrics

from convoy_workloads.runtime import hooks
from convoy_workloads.runtime.errors import BAD_DATA, DONE, ParamsError, exit_code_of
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.params import check_params
from convoy_workloads.runtime.process_exit import exit_process, print_error
from convoy_workloads.runtime.rank_context import from_environment
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.listener import run_server
from convoy_workloads.serving.protocol import Engine, ModelError
from convoy_workloads.serving.server import Identity, ServingProcess
from convoy_workloads.serving.settings import from_environment as settings_from_environment
from convoy_workloads.serving.traffic import Reporter

P = TypeVar("P")


class RankEngine(Engine[Any, Any], Protocol):
    """The engine of one rank. Only rank 0 of a replica serves."""

    def follow(self, heartbeat: HeartbeatWriter) -> None:
        """Compute this rank's part of each iteration until rank 0 ends. Other ranks than 0 call this."""
        ...


def run(
    name: str,
    params: type[P],
    make: Callable[[P, Path | None, Group], RankEngine],
    limits: Callable[[P], Limits],
    max_group: int = 1,
) -> None:
    """Serve until SIGTERM, then drain. The process ends with its exit code. Only rank 0 of a replica serves;
    the other ranks follow it.

    `name`: the engine's name. `params`: class of the engine's parameters, which are also checked by it.
    `make` returns the engine for the parameters, the folder of the model and the rank. `max_group`: maximum
    number of ranks of a replica.
    """
    hooks.mute()
    disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        context = from_environment(os.environ)
        settings = settings_from_environment(os.environ)
        checked = check_params(params, context.params)
        if context.world > max_group:
            raise ParamsError(
                f"engine {name} has at most {max_group} pods in a replica, and groupSize is {context.world}: "
                f"set spec.roles[].groupSize to {max_group} or less"
            )
        engine = make(checked, settings.model_path, Group(context.rank, context.world))
        identity = Identity(name, str(getattr(checked, "name", name)), context.job)
        heartbeat = HeartbeatWriter(context.heartbeat, joined=True)
        if context.rank:
            Reporter(context, heartbeat)
        arguments: tuple[Any, ...] = (engine, settings, limits(checked), heartbeat, identity)
    except (ParamsError, ModelError) as error:
        exit_process(error)
    if context.rank:
        _follow(engine, heartbeat)

    async def main() -> int:
        process = ServingProcess(*arguments)
        reporter = Reporter(context, heartbeat, process.receive)
        reporter.traffic = process.traffic
        code = await process.run()
        error = process.compute.error
        return code if error is None else exit_code(error)

    code = run_server(main())
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit at once: destructors of torch and threads of the server could delay the end.
    os._exit(code)


def _follow(engine: RankEngine, heartbeat: HeartbeatWriter) -> NoReturn:
    """Follow rank 0 until it ends. SIGTERM does not end this rank, because rank 0 needs it for its drain."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = DONE
    try:
        engine.follow(heartbeat)
    except Exception as error:  # The process ends with the code of the error.
        print_error(error)
        code = exit_code(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def exit_code(error: BaseException) -> int:
    """Return the exit code that reports an error of an engine to the operator."""
    return BAD_DATA if isinstance(error, ModelError) else exit_code_of(error)
