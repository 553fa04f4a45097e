"""How one rank comes up: forked from a zygote where that is possible, else executed."""

from __future__ import annotations

import os
from collections.abc import Mapping

from convoy_workloads.launcher import command, executables
from convoy_workloads.launcher.nursery import NurseryError
from convoy_workloads.launcher.output import say, write
from convoy_workloads.launcher.rank import Rank
from convoy_workloads.launcher.zygotes import Zygotes


async def start_rank(
    rank: Rank, start: command.Start, environment: Mapping[str, str], zygotes: Zygotes
) -> None:
    """Starts the rank with this environment. A command that cannot be run is the rank's failure."""
    if start.refusal:
        role = environment.get("CONVOY_ROLE", "")
        message = f"spec.roles[{role}].template.spec.containers[].command: {start.refusal}"
        say(message)
        rank.fail(2, message, False)  # as argparse ends
        return
    path = environment.get("PATH", os.defpath)
    program = (command.interpreter(start.entry, path) if start.entry else "") or start.argv[0]
    try:
        executable = command.resolve(program, path)
    except command.CommandError as error:
        say(str(error))
        rank.fail(error.exit_code, str(error), True)
        return
    argv = [program, *start.argv[1:]]
    nursery = zygotes.for_interpreter(executable) if start.warm else None
    if nursery is not None:
        request = {
            "kind": start.kind,
            "target": start.target,
            "arguments": list(start.arguments),
            "environment": environment,
            "executable": executable,
            "argv": argv,
        }
        try:
            await rank.start_warm(nursery, request, write)
            return
        except NurseryError as error:
            say(f"rank {rank.rank} starts cold: {error}")
    try:
        rank.start_cold(executable, argv, environment, write)
    except OSError as error:
        message = f"{executable} cannot be executed: {executables.refused(executable, error)}"
        say(message)
        rank.fail(126, message, True)
