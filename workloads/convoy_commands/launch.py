"""Parses the command lines of torchrun and deepspeed. These launchers start a program once per rank, as
Convoy does.

If a job's command calls such a launcher, Convoy does not run the launcher but does its work. Convoy reads
those options of the launcher that affect each rank. The number of ranks and their pods come from the job,
not from the launcher's options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_commands.launchers import DEEPSPEED, TORCHRUN, launcher_of
from convoy_commands.options import Option, RefusedError, parse, spellings


def _value(name: str, type: Callable[[str], Any] = str, short: str = "") -> Option:
    names = (f"-{short}", *spellings(name)) if short else spellings(name)
    return Option(names, type, variable=True)


def _flag(name: str, short: str = "") -> Option:
    names = (f"-{short}", *spellings(name)) if short else spellings(name)
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
    Option(spellings("start-method"), choices=("spawn", "fork", "forkserver"), variable=True),
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
    Option(spellings("numa-binding"), choices=("node", "socket", "exclusive", "core-complex")),
    _value("signals-to-handle"),
    _value("shutdown-timeout", int),
    _flag("virtual-local-rank"),
)
"""All options of torchrun, which is `torch.distributed.run` of PyTorch 2.13."""
CONVOY_VARIABLES = frozenset(
    {"PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_ID"}
)
"""Variables that Convoy sets for each rank. The container's values for them have no effect."""
USE_ENV = Option(spellings("use-env"), flag=True)
"""The option `--use-env`, which only `torch.distributed.launch` has."""

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
"""All options of the launcher `deepspeed` (DeepSpeed 0.18)."""


@dataclass(frozen=True)
class Launch:
    """A parsed command line of a launcher: the program that it starts, and its options."""

    launcher: str
    """Name of the launcher: `TORCHRUN` or `DEEPSPEED`."""
    word: str
    """First word of the command: the launcher, or the Python interpreter that runs the launcher's module."""
    script: str
    arguments: tuple[str, ...]
    module: bool = False
    """True if `script` is the name of a module."""
    runs_without_python: bool = False
    """True if `script` is an executable that must not be run by Python."""
    local_rank: str = ""
    """Option that the launcher puts before the script's arguments for each rank, without its value, such as
    `--local-rank=`; empty if the launcher adds no option.
    """
    values: Mapping[str, Any] = field(default_factory=dict)
    """Value of every option by destination (argparse's `dest`). The value is None if the option is not
    given, or if its value is unknown until the command runs.
    """

    @property
    def per_node(self) -> str:
        """Return the number of processes per pod in the launcher's options: a number, or a word such as
        `gpu`. Return an empty text if the option is not given.
        """
        number = self.values[self.option[2:].replace("-", "_")]
        return "" if number is None else str(number)

    @property
    def option(self) -> str:
        """Return the name of the launcher's option for the number of processes per pod."""
        return "--num_gpus" if self.launcher == DEEPSPEED else "--nproc-per-node"

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Return the options that are not in Convoy's table of the launcher's options, as the user wrote
        them. Either the user has misspelt them, or a later release of the launcher has them.
        """
        options: tuple[str, ...] = self.values["unlisted"]
        return options

    def has_option(self, destination: str) -> bool:
        """Return True if the command line gives the option, even if its value is unknown until the command
        runs.
        """
        return bool(self.values[destination]) or destination in self.values["unknown"]

    @property
    def replaces_local_rank(self) -> bool:
        """Return True if the launcher replaces the text `$local_rank` in the script's arguments. The
        replacement is the number of the rank within its pod.
        """
        return self.launcher == TORCHRUN


def read_launch(
    words: Sequence[str],
    environment: Mapping[str, str],
    unknown: Callable[[str], bool] = lambda text: False,
) -> Launch | None:
    """Return the launcher's command line in `words`; None if `words` do not call a launcher.

    `environment` has the container's variables, because some are defaults of torchrun's options. `unknown`
    has the meaning of `options.parse`. Raises RefusedError and HelpRequestedError for the same reasons as
    `options.parse`.
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
        runs_without_python=values["no_python"] and not run_path,
        local_rank="--local-rank=" if passes_rank else "",
        values=values,
    )


def process_count_conflict(launch: Launch, processes: int, gpus: int = 0) -> str:
    """Return a message if the launcher's option for the number of processes contradicts `processes`, the
    number of ranks of a pod. Return an empty text if it does not.

    `gpus` is the number of GPUs of the pod's container, 0 if it is unknown. The launcher's values `gpu` and
    `auto` mean this number. Deepspeed uses this number if the option is not given.
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
        return f"{option}: set it to 1 or more"
    return f"{option}, but processesPerReplica is {processes}: set it to {number}"


def unknown_option_problem(launch: Launch, processes: int) -> str:
    """Return a message if the command line has options that Convoy does not know and the pod has more than
    one rank (`processes`). Return an empty text otherwise.

    If the pod has one rank, Convoy runs the launcher itself, which knows its own options.
    """
    if not launch.unlisted or processes == 1:
        return ""
    options = " ".join(launch.unlisted)
    return (
        f"Convoy does not know the {launch.launcher} option {options}, so it cannot start the {processes} "
        f"ranks of the pod in place of {launch.launcher}. Remove the option, or set "
        f"processesPerReplica to 1 and {launch.option} to {processes}, so that "
        f"{launch.launcher} itself starts them"
    )


def nodes(text: str | None) -> tuple[int, int] | None:
    """Return the minimum and maximum number of nodes in torchrun's `--nnodes`; None if the option is not
    given or its value is unknown.

    Raises RefusedError for a value that torchrun refuses.
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
            raise RefusedError(
                f"argument --{name}: Convoy does not support this option and starts one rank per process "
                "of the job"
            )
    return Launch(
        DEEPSPEED,
        word,
        values["script"],
        tuple(values["arguments"]),
        module=values["module"],
        runs_without_python=values["no_python"],
        local_rank="" if values["no_local_rank"] else "--local_rank=",
        values=values,
    )
