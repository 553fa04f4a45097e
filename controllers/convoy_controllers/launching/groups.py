"""Explains why a job's command will not form one process group over the job's pods.

Convoy starts a command once per rank. It sets the variables that torchrun and accelerate read: RANK,
WORLD_SIZE, MASTER_ADDR and torchrun's defaults PET_*. Only failures that are certain are reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from convoy_commands.launch import (
    CONVOY_VARIABLES,
    Launch,
    nodes,
    process_count_conflict,
    read_launch,
    unknown_option_problem,
)
from convoy_commands.launchers import DEEPSPEED, TORCHRUN, launcher_of
from convoy_commands.options import HelpRequestedError, RefusedError
from convoy_commands.references import expand
from convoy_controllers.launching.calls import ACCELERATE, MPIRUN, Call, calls
from convoy_controllers.launching.shell import UNKNOWN

_OWN_HOST = re.compile(r"localhost|127(\.\d+){3}|0\.0\.0\.0|\[?::1?\]?", re.IGNORECASE)
_PORT = re.compile(r":\d*$")


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods that run one command."""

    alike: int
    """Number of pods of the job that run this command."""
    total: int
    """Number of pods of the job."""
    processes: int = 1
    """Number of ranks per pod."""
    gpus: int = 0
    """GPUs in the limits of each pod's container; 0 without a limit."""

    def fits(self, low: int, high: int) -> bool:
        """Return True if `low` to `high` nodes includes the number of pods with this command, or the number
        of all pods of the job.
        """
        return any(low <= number <= high for number in (self.alike, self.total))


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why a command must not be run."""

    why: str
    refused: bool = False
    """True if the launcher itself would reject its arguments."""


def known_only_at_run_time(text: str) -> bool:
    """Return True if the value is known only when the command runs."""
    return UNKNOWN in text or "$(" in text


def problem(command: Sequence[str], environment: Mapping[str, str], pods: Pods) -> Problem | None:
    """Return the problem of the command of these pods; None if no problem is certain.

    `environment` contains those variables of the container whose value is a literal.
    """
    return _cached_problem(tuple(command), tuple(sorted(environment.items())), pods)


@lru_cache(maxsize=1024)
def _cached_problem(
    command: tuple[str, ...], variables: tuple[tuple[str, str], ...], pods: Pods
) -> Problem | None:
    """Return what `problem` returns, from a cache, because every reconcile of a job checks its command."""
    environment = dict(variables)
    words = expand(command, environment)
    if launcher_of(words):
        return _replaced(words, environment, pods)
    found = tuple(calls(words))
    if found and pods.processes > 1:
        return Problem(
            f"{found[0].launcher} starts all processes of its pod, but each of the "
            f"{pods.processes} ranks of the pod would start it: set processesPerReplica to 1"
        )
    if not found or pods.alike == 1:
        return None
    splits = [_split(call, environment, pods) for call in found]
    # If one call may form a group over all pods, that call may be the training. The command is then accepted.
    return Problem(splits[-1]) if all(splits) else None


def _replaced(words: Sequence[str], environment: Mapping[str, str], pods: Pods) -> Problem | None:
    """Return the problem of a launcher that Convoy replaces; None if there is none. Only its process and
    node counts can be wrong.
    """
    try:
        launch = read_launch(words, environment, known_only_at_run_time)
    except RefusedError as error:
        return Problem(str(error), refused=True)
    except HelpRequestedError:
        return None
    if launch is None:
        return None
    if launch.unlisted:
        return _unchanged(launch, Call(launch.launcher, tuple(words)), environment, pods)
    if why := process_count_conflict(launch, pods.processes, pods.gpus):
        return Problem(why)
    option, bounds = _nodes(launch)
    if bounds and bounds[1] > 1 and not pods.fits(*bounds):
        return Problem(
            f"{launch.launcher} {option}, but the job has {pods.total} pods: "
            "remove the option, or change replicas"
        )
    return None


def _unchanged(launch: Launch, call: Call, environment: Mapping[str, str], pods: Pods) -> Problem | None:
    """Return the problem of a launcher that Convoy runs unchanged, once per pod; None if there is none.
    Convoy runs a launcher unchanged if it has options unknown to Convoy.
    """
    why = unknown_option_problem(launch, pods.processes)
    if not why and launch.launcher == DEEPSPEED and pods.alike > 1:
        why = _alone(" ".join(("deepspeed", *launch.unlisted)), pods, "remove the option")
    if not why and pods.alike > 1:
        why = _split(call, environment, pods)
    return Problem(why) if why else None


def _nodes(launch: Launch) -> tuple[str, tuple[int, int] | None]:
    """Return the option for the number of nodes as the user wrote it, and its bounds; None instead of
    unknown bounds.
    """
    if launch.launcher == DEEPSPEED:
        number = launch.values["num_nodes"]
        return f"--num_nodes={number}", (number, number) if number and number > 0 else None
    given = launch.values["nnodes"]
    return f"--nnodes={given}", nodes(given)


def _split(call: Call, environment: Mapping[str, str], pods: Pods) -> str:
    """Return why the call forms no group, or a separate group in each pod; empty if it may form one group
    over all pods.
    """
    return _SPLITS[call.launcher](call, environment, pods)


def _torchrun(call: Call, environment: Mapping[str, str], pods: Pods) -> str:
    own = {name: value for name, value in environment.items() if name not in CONVOY_VARIABLES}
    try:
        launch = read_launch(call.words, {**own, **call.variables}, known_only_at_run_time)
    except (RefusedError, HelpRequestedError):
        # Return no problem here: the launcher itself reports the wrong options as soon as it starts.
        return ""
    if launch is None:
        return ""
    values = launch.values
    if values["standalone"]:
        return _alone("torchrun --standalone", pods, "remove --standalone")
    option, bounds = _nodes(launch)
    if bounds and bounds[1] == 1:
        return _alone(f"torchrun {option}", pods, "remove it, since Convoy sets PET_NNODES")
    if bounds and not pods.fits(*bounds):
        return f"torchrun {option}, but the job has {pods.total} pods: remove it, or change replicas"
    return _same_everywhere(
        "torchrun",
        pods,
        rank=("--node-rank", values["node_rank"]),
        address=("--master-addr", None if launch.has_option("rdzv_endpoint") else values["master_addr"]),
        endpoint=("--rdzv-endpoint", values["rdzv_endpoint"]),
    ) or _without_endpoint(launch)


def _without_endpoint(launch: Launch) -> str:
    backend = launch.values["rdzv_backend"]
    if backend in (None, "static") or launch.has_option("rdzv_endpoint") or launch.unlisted:
        return ""
    return (
        f"torchrun --rdzv-backend={backend} needs --rdzv-endpoint to meet in one pod: remove it, or add "
        "--rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"
    )


def _accelerate(call: Call, _: Mapping[str, str], pods: Pods) -> str:
    given = _values(call.words, ("num_machines", "machine_rank", "main_process_ip"))
    machines = given.get("num_machines", "")
    if not machines.isdecimal() or int(machines) <= 1:
        # Without --num_machines, or with 1, accelerate reads the variables of torchrun, which Convoy sets.
        return ""
    if not pods.fits(int(machines), int(machines)):
        option = f"accelerate launch --num_machines={machines}"
        return f"{option}, but the job has {pods.total} pods: remove it, or change replicas"
    rank, address = given.get("machine_rank"), given.get("main_process_ip")
    return _same_everywhere(
        "accelerate launch",
        pods,
        rank=("--machine_rank", rank if rank and not known_only_at_run_time(rank) else None),
        address=("--main_process_ip", address),
        endpoint=("", None),
    )


def _deepspeed(call: Call, _: Mapping[str, str], pods: Pods) -> str:
    try:
        launch = read_launch(call.words, {}, known_only_at_run_time)
    except (RefusedError, HelpRequestedError):
        return ""
    if launch is None or any(launch.has_option(name) for name in ("hostfile", "no_ssh", "launcher")):
        return ""
    return _alone("deepspeed", pods, "make it the container's command, without a shell around it")


def _mpirun(call: Call, _: Mapping[str, str], pods: Pods) -> str:
    given = _values(
        call.words, ("n", "np", "c", "hostfile", "machinefile", "host", "H", "f", "hosts", "configfile")
    )
    number = next((given[name] for name in ("n", "np", "c") if name in given), "")
    if number == "1" or any(name not in ("n", "np", "c") for name in given) or known_only_at_run_time(number):
        return ""
    name = call.words[0].rpartition("/")[2]
    return _alone(name, pods, "start the program itself: Convoy starts processesPerReplica ranks in each pod")


_SPLITS: Mapping[str, Callable[[Call, Mapping[str, str], Pods], str]] = {
    TORCHRUN: _torchrun,
    DEEPSPEED: _deepspeed,
    ACCELERATE: _accelerate,
    MPIRUN: _mpirun,
}


def _values(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the values of the options `names` that stand in front of the program. All other options are
    skipped.
    """
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if word.endswith(".py"):
            break
        name, equals, value = word.partition("=")
        name = name.lstrip("-").replace("-", "_") if word.startswith("-") else ""
        if name in names:
            found[name] = value if equals else "".join(words[index + 1 : index + 2])
    return found


def _alone(what: str, pods: Pods, way_out: str) -> str:
    return f"{what} trains alone in each of the {pods.alike} pods: {way_out}"


def _same_everywhere(
    what: str,
    pods: Pods,
    rank: tuple[str, object],
    address: tuple[str, str | None],
    endpoint: tuple[str, str | None],
) -> str:
    """Return why the pods form separate groups: an option has the same text in all pods although it must
    differ, or an address names each pod's own host. Return an empty text if no option does this.
    """
    if rank[1] is not None:
        return f"{what} {rank[0]}={rank[1]} is the same in all {pods.alike} pods: remove it, or use $RANK"
    for name, value, right in ((*address, "$MASTER_ADDR"), (*endpoint, "$MASTER_ADDR:$MASTER_PORT")):
        if value and _OWN_HOST.fullmatch(_PORT.sub("", value) or value):
            return f"{what} {name}={value} is a different host in each pod: remove it, or use {right}"
    return ""
