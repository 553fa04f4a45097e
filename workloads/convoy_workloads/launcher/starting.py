"""Starts one rank: as a fork of the zygote if possible, else as a new process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from convoy_workloads.launcher import command, executables
from convoy_workloads.launcher.output import log, write
from convoy_workloads.launcher.rank import Rank
from convoy_workloads.launcher.zygote_client import ZygoteError
from convoy_workloads.launcher.zygote_manager import ZygoteManager


async def start_rank(
    rank: Rank, start: command.Start, environment: Mapping[str, str], zygotes: ZygoteManager
) -> None:
    """Start the rank with this environment. If the command cannot be run, record the rank as failed."""
    if start.refusal:
        role = environment.get("CONVOY_ROLE", "")
        message = f"spec.roles[{role}].template.spec.containers[].command: {start.refusal}"
        log(message)
        rank.fail(2, message, False)  # argparse uses the same exit code for invalid arguments.
        return
    path = environment.get("PATH", os.defpath)
    program = (command.interpreter(start.entry, path) if start.entry else "") or start.argv[0]
    try:
        executable = command.resolve(program, path)
    except command.CommandError as error:
        log(str(error))
        rank.fail(error.exit_code, str(error), True)
        return
    argv = [program, *start.argv[1:]]
    zygote = zygotes.for_interpreter(executable) if start.warm else None
    if zygote is not None:
        request = {
            "kind": start.kind,
            "target": start.target,
            "arguments": list(start.arguments),
            "environment": environment,
            "executable": executable,
            "argv": argv,
        }
        try:
            await rank.start_warm(zygote, request, write)
            return
        except ZygoteError as error:
            log(f"rank {rank.rank} starts cold: {error}")
    try:
        rank.start_cold(executable, argv, environment, write)
    except OSError as error:
        message = f"{executable} cannot be executed: {executables.exec_error(executable, error)}"
        log(message)
        rank.fail(126, message, True)
