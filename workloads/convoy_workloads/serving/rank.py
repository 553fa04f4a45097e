"""The start of a serving rank: parameters, settings, engine and process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from prometheus_client import disable_created_metrics

from convoy_workloads.runtime import hooks
from convoy_workloads.runtime.errors import BAD_DATA, OTHER, ParamsError
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.params import check_params
from convoy_workloads.runtime.process_exit import exit_process
from convoy_workloads.runtime.rank_context import from_environment
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.protocol import ModelError, ServingEngine
from convoy_workloads.serving.server import Identity, PortInUse, ServingProcess
from convoy_workloads.serving.settings import from_environment as settings_from_environment

P = TypeVar("P")


def run(
    name: str,
    params: type[P],
    make: Callable[[P, Path | None], ServingEngine],
    limits: Callable[[P], Limits],
) -> None:
    """Serve until SIGTERM, then drain. The process ends with its exit code.

    `name`: the engine's name. `params`: class of the engine's parameters, which are also checked by it.
    `make` returns the engine for the parameters and the folder of the model.
    """
    hooks.mute()
    disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        context = from_environment(os.environ)
        settings = settings_from_environment(os.environ)
        checked = check_params(params, context.params)
        engine = make(checked, settings.model_path)
        identity = Identity(name, str(getattr(checked, "name", name)), context.job)
        heartbeat = HeartbeatWriter(context.heartbeat, joined=True)
        arguments: tuple[Any, ...] = (engine, settings, limits(checked), heartbeat, identity)
    except (ParamsError, ModelError) as error:
        exit_process(error)

    async def main() -> int:
        process = ServingProcess(*arguments)
        code = await process.run()
        return BAD_DATA if isinstance(process.compute.error, ModelError) else code

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(main())
    except PortInUse as error:
        print(f"convoy: {error}", file=sys.stderr, flush=True)
        code = OTHER
    except ParamsError as error:
        exit_process(error)
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit at once: destructors of torch and threads of the server could delay the end.
    os._exit(code)
