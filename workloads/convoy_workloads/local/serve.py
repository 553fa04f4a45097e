"""Serves a ServingJob on this machine. Every replica has its own port of the loopback interface."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from convoy_crds.engine import Engine
from convoy_crds.params import params_error
from convoy_crds.servingjob import ServingJob, ServingRole
from convoy_crds.servingjob_rollout import AuthType
from convoy_workloads.local.errors import LocalError
from convoy_workloads.local.ports import HOST, free_port, port_error
from convoy_workloads.local.replica import Machine, Replica, ReplicaPlan
from convoy_workloads.local.screen import Screen
from convoy_workloads.local.serving_environment import LocalFiles
from convoy_workloads.runtime.errors import worst
from convoy_workloads.runtime.folder.storage import locked

TEARDOWN_SECONDS = 15.0
"""Seconds, in addition to the drain, until launchers that have not ended are killed."""


def serve_local(
    job: ServingJob,
    engines: Mapping[str, Engine],
    files: LocalFiles,
    out: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> int:
    """Serve `job` until Ctrl-C or SIGTERM, then drain. Return the exit code.

    - `engines`: the Engines that the roles name, by name.
    - `files`: the local model and token, in place of the cluster's.
    - `out`, `environment`, `folder`: as for `run_local`.

    Call this function in the main thread, because it handles the two signals. Raises LocalError if the
    manifest cannot be served on this machine.
    """
    _check(job, engines, files)
    machine = Machine(dict(environment or os.environ), folder or Path.cwd(), files)
    plans = _plans(job, engines, machine)
    with tempfile.TemporaryDirectory(prefix="convoy-") as scratch, locked(Path(scratch)) as lock:
        return asyncio.run(_Serving(plans, Path(scratch), lock, out or sys.stdout).run())


def _check(job: ServingJob, engines: Mapping[str, Engine], files: LocalFiles) -> None:
    """Raise LocalError if the job cannot be served on this machine."""
    for role in job.spec.roles:
        if role.engine is None:
            continue
        engine = engines.get(role.engine.name)
        if engine is None:
            raise LocalError(f"spec.roles[{role.name}].engine.name: there is no Engine {role.engine.name!r}")
        if engine.spec.role_kind != "Serving":
            raise LocalError(
                f"spec.roles[{role.name}].engine.name: Engine {role.engine.name} has roleKind "
                f"{engine.spec.role_kind}, and a ServingJob needs one with roleKind Serving"
            )
        if wrong := params_error(engine.spec.params_schema, role.engine.params):
            raise LocalError(f"spec.roles[{role.name}].engine.params: {wrong[1]}")
    if job.spec.model is not None and files.model is None:
        raise LocalError("spec.model is in the cluster: give a local copy of the model with --model FOLDER")
    if files.model is not None and not files.model.exists():
        raise LocalError(f"--model {files.model} does not exist")
    if job.spec.service.auth.type is AuthType.TOKEN and files.token is None:
        raise LocalError("spec.service.auth is Token: give a file with the token with --token-file FILE")


def _plans(job: ServingJob, engines: Mapping[str, Engine], machine: Machine) -> list[ReplicaPlan]:
    """Return the plan of each replica. Raises LocalError if a port is in use."""
    plans = []
    for role in job.spec.roles:
        for number in range(job.desired(role.name)):
            serves = role.name == job.spec.serving_role
            port = job.spec.service.port + number if serves else free_port()
            if why := port_error(port):
                raise LocalError(f"spec.service.port: {why}")
            plans.append(ReplicaPlan(job, role, number, _command(role, engines), port, serves, machine))
    if not plans:
        raise LocalError("spec.replicas is 0: there is nothing to serve")
    return [replace(one, peers=_peers(one, plans, engines)) for one in plans]


def _peers(
    plan: ReplicaPlan, plans: Sequence[ReplicaPlan], engines: Mapping[str, Engine]
) -> tuple[str, ...] | None:
    """Return the addresses of a replica's peers; None if its Engine's replicas do not talk to each other."""
    engine = engines.get(plan.role.engine.name) if plan.role.engine else None
    if engine is None or not engine.spec.replica_peers or not plan.serves:
        return None
    return tuple(f"{HOST}:{one.port}" for one in plans if one.role == plan.role and one is not plan)


def _command(role: ServingRole, engines: Mapping[str, Engine]) -> tuple[str, ...]:
    template = role.template
    if template and template.spec.containers and template.spec.containers[0].command:
        container = template.spec.containers[0]
        return (*(container.command or ()), *(container.args or ()))
    if role.engine is None:
        raise LocalError(f"spec.roles[{role.name}]: neither engine nor template has a command")
    return tuple(engines[role.engine.name].spec.command)


class _Serving:
    """The replicas of one local run."""

    def __init__(self, plans: list[ReplicaPlan], scratch: Path, lock: int, out: TextIO) -> None:
        self._screen = Screen(out, self._interrupt)
        self._replicas = [
            Replica(plan, scratch / str(number), lock, self._screen) for number, plan in enumerate(plans)
        ]
        self._interrupted = asyncio.Event()
        job = plans[0].job
        self._end_seconds = job.spec.rollout.drain_seconds + TEARDOWN_SECONDS
        self._starting = f"starting {len(plans)} {'replica' if len(plans) == 1 else 'replicas'}"
        if any(role.scaling for role in job.spec.roles):
            self._starting += "; scaling needs a cluster, so their number stays"

    async def run(self) -> int:
        """Serve until a signal arrives or a replica has no restart left. Return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        self._screen.write_line(self._starting)
        try:
            for replica in self._replicas:
                await replica.start()
            serving = [asyncio.ensure_future(replica.serve()) for replica in self._replicas]
            interrupted = asyncio.ensure_future(self._interrupted.wait())
            done, _ = await asyncio.wait({interrupted, *serving}, return_when=asyncio.FIRST_COMPLETED)
            for one in (*serving, interrupted):
                one.cancel()
            codes = [one.result() for one in serving if one in done]
            if not codes:
                self._screen.write_line("interrupted: the replicas finish the requests in flight")
            ends = await asyncio.gather(*(replica.end(self._end_seconds) for replica in self._replicas))
            return worst(codes or ends)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            await asyncio.gather(*(replica.close() for replica in self._replicas))

    def _interrupt(self) -> None:
        self._interrupted.set()
