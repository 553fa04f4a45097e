"""Launchers that start a program once per rank, as Convoy does itself: torchrun and deepspeed.

Convoy takes such a launcher's place. Its options are read for what each rank sees of them; where and how
many ranks there are is the job's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_commands.launchers import DEEPSPEED, TORCHRUN, launcher_of
from convoy_commands.options import Option, RefusedError, parse, spelled


def _value(name: str, type: Callable[[str], Any] = str, short: str = "") -> Option:
    names = (f"-{short}", *spelled(name)) if short else spelled(name)
    return Option(names, type, variable=True)


def _flag(name: str, short: str = "") -> Option:
    names = (f"-{short}", *spelled(name)) if short else spelled(name)
    return Option(names, flag=True, variable=True)


TORCHRUN_OPTIONS = (
    _value("nnodes"),
    _value("nproc-per-node"),
    _value("rdzv-backend"),
    _value("rdzv-endpoint"),
    _value("rdzv-id"),
    _value("rdzv-conf"),
    _flag("standalone"),
    _value("max-restarts", int),
    _value("monitor-interval", float),
    Option(spelled("start-method"), choices=("spawn", "fork", "forkserver"), variable=True),
    _value("event-log-handler"),
    _value("role"),
    _flag("module", "m"),
    _flag("no-python"),
    _flag("run-path"),
    _value("log-dir"),
    _value("redirects", short="r"),
    _value("tee", short="t"),
    _value("local-ranks-filter"),
    _value("duplicate-stdout-filters"),
    _value("duplicate-stderr-filters"),
    _value("node-rank", int),
    _value("master-addr"),
    _value("master-port", int),
    _value("local-addr"),
    _value("logs-specs"),
    Option(spelled("numa-binding"), choices=("node", "socket", "exclusive", "core-complex")),
    _value("signals-to-handle"),
    _value("shutdown-timeout", int),
    _flag("virtual-local-rank"),
)
"""Options of `torch.distributed.run` (PyTorch 2.13)."""
CONVOYS_VARIABLES = frozenset(
    {"PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_ID"}
)
"""Variables that Convoy sets for each rank in place of the container's."""
USE_ENV = Option(spelled("use-env"), flag=True)
"""A further option of `torch.distributed.launch`."""

DEEPSPEED_OPTIONS = (
    Option(("-H", "--hostfile")),
    Option(("-i", "--include")),
    Option(("-e", "--exclude")),
    Option(("--num_nodes",), int),
    Option(("--min_elastic_nodes",), int),
    Option(("--max_elastic_nodes",), int),
    Option(("--num_gpus", "--num_accelerators"), int),
    Option(("--master_port",), int),
    Option(("--master_addr",)),
    Option(("--node_rank",), int),
    Option(("--launcher",)),
    Option(("--launcher_args",)),
    Option(("--module",), flag=True),
    Option(("--no_python",), flag=True),
    Option(("--no_local_rank",), flag=True),
    Option(("--no_ssh",), flag=True),
    Option(("--no_ssh_check",), flag=True),
    Option(("--force_multi",), flag=True),
    Option(("--save_pid",), flag=True),
    Option(("--enable_each_rank_log",)),
    Option(("--autotuning",), choices=("tune", "run")),
    Option(("--elastic_training",), flag=True),
    Option(("--bind_cores_to_rank",), flag=True),
    Option(("--bind_core_list",)),
    Option(("--ssh_port",), int),
    Option(("--venv_script",)),
    Option(("--log_level",), choices=("debug", "info", "warning", "error", "critical")),
    Option(("-q", "--quiet"), flag=True),
)
"""Options of `deepspeed` (DeepSpeed 0.18)."""


@dataclass(frozen=True)
class Launch:
    """A launcher's command line: the program that it starts, and what each rank sees of its options."""

    launcher: str
    """`TORCHRUN` or `DEEPSPEED`."""
    word: str
    """The command's first word: the launcher, or the Python that runs the launcher's module."""
    script: str
    arguments: tuple[str, ...]
    module: bool = False
    """`script` is the name of a module."""
    bare: bool = False
    """`script` is an executable, not for Python."""
    local_rank: str = ""
    """Argument that each rank gets before its own, up to the number: `--local-rank=`; empty for none."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """All options by destination. None for what is not given, or cannot be known before the command runs."""

    @property
    def per_node(self) -> str:
        """Processes that the launcher was to start per pod: a number, `gpu`, ...; empty if not given."""
        number = self.values[self.option[2:].replace("-", "_")]
        return "" if number is None else str(number)

    @property
    def option(self) -> str:
        """The option for the number of processes."""
        return "--num_gpus" if self.launcher == DEEPSPEED else "--nproc-per-node"

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Options that Convoy does not know, as written: those of a later release, or misspelt ones."""
        options: tuple[str, ...] = self.values["unlisted"]
        return options

    def gives(self, destination: str) -> bool:
        """Return true if the option has a value, known or not."""
        return bool(self.values[destination]) or destination in self.values["unknown"]

    @property
    def substitutes(self) -> bool:
        """True if `$local_rank` in the script's arguments stands for the rank's number in its pod."""
        return self.launcher == TORCHRUN


def read_launch(
    words: Sequence[str],
    environment: Mapping[str, str],
    unknown: Callable[[str], bool] = lambda text: False,
) -> Launch | None:
    """Return the launch that `words` are, or None for a command that calls no launcher.

    `environment`: the container's variables, some of which are defaults of torchrun's options.
    RefusedError and HelpRequestedError as `options.parse`.
    """
    found = launcher_of(words)
    if found is None:
        return None
    launcher, length = found
    try:
        if launcher == DEEPSPEED:
            return _deepspeed(words[0], words[length:], unknown)
        passes_rank = words[length - 1].endswith("torch.distributed.launch")
        return _torchrun(words[0], words[length:], environment, unknown, passes_rank)
    except RefusedError as error:
        raise RefusedError(f"{launcher}: error: {error}") from None


def _torchrun(
    word: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    unknown: Callable[[str], bool],
    passes_rank: bool,
) -> Launch:
    options = (*TORCHRUN_OPTIONS, USE_ENV) if passes_rank else TORCHRUN_OPTIONS
    values = parse(TORCHRUN, options, words, environment, unknown)
    passes_rank = passes_rank and not values["use_env"]
    if values["no_python"] and passes_rank:
        raise RefusedError("When using the '--no-python' flag, you must also set the '--use-env' flag.")
    if values["no_python"] and values["module"] and not values["run_path"]:
        raise RefusedError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
    nodes(values["nnodes"])
    run_path = values["run_path"]
    return Launch(
        TORCHRUN,
        word,
        values["script"],
        tuple(values["arguments"]),
        module=values["module"] and not run_path,
        bare=values["no_python"] and not run_path,
        local_rank="--local-rank=" if passes_rank else "",
        values=values,
    )


def contradiction(launch: Launch, processes: int, gpus: int = 0) -> str:
    """Return why the launcher's number of processes is not that of a pod with so many ranks; empty if it is.

    `gpus`: those of the pod's container, as far as known; they are what `gpu` and `auto` stand for, and what
    deepspeed uses where nothing is given.
    """
    given = launch.per_node or ("gpu" if launch.launcher == DEEPSPEED else "")
    number = str(gpus) if gpus and given in ("gpu", "auto") else given
    try:
        count = int(number)
    except ValueError:
        return ""
    if count == processes:
        return ""
    option = f"{launch.launcher} {launch.option}={given}"
    if not launch.per_node:
        option = f"{launch.launcher} starts {number} processes, one for each GPU of the pod"
    elif number != given:
        option += f" means {number} here"
    if count < 1:
        return f"{option}: at least 1 process is needed"
    return f"{option}, but processesPerReplica is {processes}: set it to {number}"


def irreplaceable(launch: Launch, processes: int) -> str:
    """Return why Convoy cannot start so many ranks of a pod in the launcher's place; empty if it can.

    With one rank the launcher itself can be started: it knows its own options.
    """
    if not launch.unlisted or processes == 1:
        return ""
    options = " ".join(launch.unlisted)
    return (
        f"Convoy does not know the {launch.launcher} option {options}, so it cannot start the {processes} "
        f"ranks of the pod in the place of {launch.launcher}: leave the option out, or set "
        f"processesPerReplica to 1 and {launch.option} to {processes}: then {launch.launcher} starts them"
    )


def nodes(text: str | None) -> tuple[int, int] | None:
    """Return the smallest and largest number of nodes in torchrun's `--nnodes`; None when unknown.

    RefusedError for what torchrun refuses.
    """
    if text is None:
        return None
    try:
        numbers = [int(number) for number in text.split(":")]
    except ValueError as error:
        raise RefusedError(f"argument --nnodes: {error}") from None
    if len(numbers) > 2:
        raise RefusedError(f'nnodes={text} is not in "MIN:MAX" format')
    fewest, most = numbers[0], numbers[-1]
    if not 0 < fewest <= most:
        raise RefusedError(
            f"min_nodes must be > 0 and <= max_nodes, got min_nodes={fewest}, max_nodes={most}"
        )
    return fewest, most


def _deepspeed(word: str, words: Sequence[str], unknown: Callable[[str], bool]) -> Launch:
    values = parse(DEEPSPEED, DEEPSPEED_OPTIONS, words, {}, unknown, ("user_script", "user_args"))
    if values["no_python"] and values["module"]:
        raise RefusedError("Don't use both the '--no_python' flag and the '--module' flag at the same time.")
    for name in ("autotuning", "include", "exclude"):
        if values[name]:
            raise RefusedError(f"argument --{name}: Convoy starts one rank per process of the job instead")
    return Launch(
        DEEPSPEED,
        word,
        values["script"],
        tuple(values["arguments"]),
        module=values["module"],
        bare=values["no_python"],
        local_rank="" if values["no_local_rank"] else "--local_rank=",
        values=values,
    )
