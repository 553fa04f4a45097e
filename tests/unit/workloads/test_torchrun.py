"""Tests that Convoy starts ranks as torchrun does, compared with the installed torchrun."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.ports import free_port

from convoy_commands.launch import TORCHRUN_OPTIONS, USE_ENV, read_launch
from convoy_commands.options import HelpRequestedError, RefusedError, parse, spellings
from convoy_workloads.launcher.rank_env import Container, parse_assignment, rank_environment

DEADLINE = 50.0
"""Maximum number of seconds for a torchrun to end. Most of the time is the import of torch on a busy
machine.
"""
DUMP = """
import json, os, sys
rank = f"{os.environ['RANK']}-{os.environ['WORLD_SIZE']}"
with open(f"{os.environ['DUMPS']}/{rank}.json", "w") as file:
    json.dump([dict(os.environ), sys.argv[1:]], file)
"""
OTHERWISE = {
    "MASTER_ADDR": "rank 0's pod, not the name of this machine",
    "MASTER_PORT": "picked by Convoy",
    "TORCHELASTIC_RUN_ID": "the job's uid, not a random one",
    "TORCHELASTIC_USE_AGENT_STORE": "no agent serves a store: rank 0 does",
    "OMP_NUM_THREADS": "the pod's cores divided by its ranks, not 1",
}
"""Variables whose values differ from torchrun's values, each with the reason."""
ABSENT = {
    "TORCHELASTIC_ERROR_FILE": "the traceback is in the rank's log, and its end in the job's status",
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "for torchrun itself; Convoy forwards SIGTERM and waits for the rank",
}
"""Variables that torchrun sets and Convoy does not set, each with the reason."""
IGNORED = ("PWD", "_", "SHLVL", "LC_CTYPE")


class Torchruns:
    """Runs real torchruns, whose workers write their environments and arguments to files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "dump.py").write_text(DUMP)

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        """Start one torchrun. Its workers write to the folder `name`."""
        (self._folder / name).mkdir(exist_ok=True)
        base = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "DUMPS": str(self._folder / name)}
        with (self._folder / f"log-{len(self._started)}").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    command, env={**base, **environment}, cwd=self._folder, stdout=log, stderr=log
                )
            )  # fmt: skip

    def dumps(self, name: str) -> dict[str, tuple[dict[str, str], list[str]]]:
        """Wait until all torchruns have ended. Return the environment and arguments of each worker in
        folder `name`.

        The keys are rank and world size, such as `1-2`.
        """
        for index, process in enumerate(self._started):
            code = process.wait(DEADLINE)
            assert code == 0, (self._folder / f"log-{index}").read_text()
        files = sorted((self._folder / name).glob("*.json"))
        return {file.stem: tuple(json.loads(file.read_text())) for file in files}

    def stop(self) -> None:
        """Kill the torchruns that are still running."""
        for process in self._started:
            process.kill()
            process.wait()


def rank_of(
    pod: int, pods: int, port: int, processes: int = 1, local: int = 0, words: str = ""
) -> dict[str, str]:
    """Return the environment of one of Convoy's ranks."""
    message = {
        "incarnation": 1, "slot": pod, "rankOffset": pod * processes, "processes": processes,
        "worldSize": pods * processes, "masterAddr": "127.0.0.1", "masterPort": port, "command": ["x"],
        "slots": pods, "jobUid": "u-1",
    }  # fmt: skip
    launch = read_launch(words.split(), {})
    return rank_environment({}, parse_assignment(message), local, Container(8, "lo", "/lib"), "/beat", launch)


@pytest.fixture(scope="module")
def torchruns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Torchruns]:
    """Three torchruns: one that runs alone, and one in each of two pods. They start together, because each
    import of torch takes seconds.
    """
    runs = Torchruns(tmp_path_factory.mktemp("torchrun"))
    options = ["--role=trainer", "--max-restarts=3"]
    alone = [
        "torchrun",
        "--standalone",
        "--nproc-per-node=2",
        *options,
        "dump.py",
        "--out=${local_rank}",
        "-x",
    ]
    runs.start("alone", alone, {})
    bare = "set -e; torchrun --nproc-per-node=2 dump.py"
    port = free_port()
    for pod in (0, 1):
        runs.start("bare", ["bash", "-c", bare], rank_of(pod, 2, port))
    yield runs
    runs.stop()


def test_a_ranks_environment_equals_that_of_torchrun(torchruns: Torchruns) -> None:
    words = "torchrun --standalone --nproc-per-node=2 --role=trainer --max-restarts=3 dump.py"
    for local, (theirs, _) in enumerate(torchruns.dumps("alone").values()):
        ours = rank_of(0, 1, 1, processes=2, local=local, words=words)
        named = {name for name in theirs if name not in IGNORED and name not in ("PATH", "DUMPS")}
        assert {"RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_RESTART_COUNT"} <= named
        assert {name for name in named if name not in ours} <= set(ABSENT)
        different = {name for name in named & set(ours) if ours[name] != theirs[name]}
        assert different <= set(OTHERWISE)


def test_arguments_are_substituted_as_by_torchrun(torchruns: Torchruns) -> None:
    from convoy_workloads.launcher.command import parse as start_of

    start = start_of(["torchrun", "--nproc-per-node=2", "dump.py", "--out=${local_rank}", "-x"])
    for local, (_, arguments) in enumerate(torchruns.dumps("alone").values()):
        assert list(start.for_rank(local).arguments) == arguments


def test_a_torchrun_in_a_shell_in_each_pod_forms_one_group(torchruns: Torchruns) -> None:
    found = torchruns.dumps("bare")
    assert sorted(found) == ["0-4", "1-4", "2-4", "3-4"]
    assert [found[rank][0]["GROUP_RANK"] for rank in sorted(found)] == ["0", "0", "1", "1"]
    assert [found[rank][0]["LOCAL_RANK"] for rank in sorted(found)] == ["0", "1", "0", "1"]


class Refusing(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RefusedError(message)


@pytest.fixture(scope="module")
def theirs() -> Callable[[list[str]], dict[str, Any]]:
    """torchrun's own parser, changed to raise an error where it would exit."""
    from torch.distributed import run

    parser = run.get_args_parser()
    parser.__class__ = Refusing
    return lambda words: vars(parser.parse_args(words))


def test_no_option_of_torchrun_is_missing() -> None:
    from torch.distributed import run

    actions = [action for action in run.get_args_parser()._actions if action.option_strings]
    assert {tuple(action.option_strings) for action in actions} == {
        ("-h", "--help"),
        *(option.names for option in TORCHRUN_OPTIONS),
    }
    for action, option in zip(actions[1:], TORCHRUN_OPTIONS, strict=True):
        assert (action.nargs == 0, bool(action.choices)) == (option.flag, bool(option.choices)), option.names
        assert tuple(action.choices or ()) == (option.choices or ())
    assert USE_ENV.names == spellings("use-env")


def outcome(read: Callable[[list[str]], dict[str, Any]], words: list[str]) -> dict[str, Any] | str:
    """Return the parsed values or the text of the error. The text is empty if help was requested."""
    try:
        return read(words)
    except RefusedError as error:
        return str(error)
    except (HelpRequestedError, SystemExit):
        return ""


def ours(words: list[str]) -> dict[str, Any]:
    values = parse("torchrun", TORCHRUN_OPTIONS, words, {})
    if values["unlisted"]:
        raise RefusedError("unrecognized arguments: " + " ".join(values["unlisted"]))
    return {**values, "training_script": values["script"], "training_script_args": values["arguments"]}


def check(words: list[str], theirs: Callable[[list[str]], dict[str, Any]]) -> None:
    wanted, found = outcome(theirs, words), outcome(ours, words)
    plain = theirs(["x"])
    if isinstance(wanted, dict) and any(
        value == [] != plain[name] for name, value in wanted.items() if name != "training_script_args"
    ):
        # Before Python 3.13, `--x=--` and `-x--` give an empty list, on which torchrun fails later. Convoy
        # refuses these options at once.
        assert isinstance(found, str) and "expected one argument" in found
        return
    if isinstance(wanted, str) and wanted.startswith("ambiguous option"):
        candidates = wanted.partition(" could match ")[2].split(", ")
        if len({name.replace("_", "-") for name in candidates}) == 1:
            # Before Python 3.12, two spellings of one option count as ambiguous, so torchrun's result is not
            # compared.
            return
    if isinstance(wanted, str) or isinstance(found, str):
        assert found == wanted
    else:
        for name, value in wanted.items():
            mine = found[name]
            if mine is None:
                assert value == plain[name], name
            else:
                assert mine == (",".join(value) if name.startswith("duplicate") else value), name


LINES = [
    "t.py", "", "--", "-- t.py", "t.py --", "t.py -- a", "-- t.py -- a", "--nnodes=2 -- t.py --epochs 3",
    "--nproc-per-node 2 t.py --nproc-per-node 4", "--nproc_per_node=gpu t.py", "--nproc=2 t.py", "--nn 2 t",
    "--n 2 t.py", "--no t.py", "--no-p ./t", "-m pkg.mod a -m", "-mr3 t", "-r3 -t3 t", "-r 3 t -r", "-rt 3 t",
    "--rdzv-endpoint=-1 t", "--rdzv-endpoint -1 t", "--rdzv-conf a=1,b=2 t", "--role -x t", "--role=-x t",
    "--standalone t", "--standalone=1 t", "--max-restarts x t", "--max-restarts=-1 t", "--start-m=fork t",
    "--start-method x t", "--monitor-interval 1e-1 t", "--node-rank 1.5 t", "-x t", "t -x",
    "--unknown t", "--unknown=3 t", "--numa node t", "--numa-binding far t", "--use-env t", "-h", "--he x",
    "--log-dir", "--tee 0:1,1:2 t", "--virtual t", "--signals-to-handle SIGUSR1 t", "--run-path /t --a",
    "--dup-stdout a t", "--duplicate-stdout-filters a,b t", "-1 t", "- t", "--local-ranks-filter 0,1 t a b",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_arguments_are_parsed_as_by_torchrun(
    line: str, theirs: Callable[[list[str]], dict[str, Any]]
) -> None:
    check(line.split(), theirs)


NAMES = sorted({name for option in TORCHRUN_OPTIONS for name in option.names})
PREFIXES = st.sampled_from(NAMES).flatmap(lambda name: st.integers(2, len(name)).map(lambda end: name[:end]))
VALUES = st.sampled_from(
    ["2", "1:4", "gpu", "x", "-1", "-r", "--nnodes", "a=b", "", "t.py", "--", "0", "fork"]
)
WORDS = st.one_of(
    st.sampled_from(NAMES),
    PREFIXES,
    VALUES,
    st.tuples(PREFIXES, VALUES).map("=".join),
    st.tuples(st.sampled_from(["-r", "-t", "-m", "-mr", "-rm"]), VALUES).map("".join),
)


@pytest.mark.timeout(cases(180))
@settings(max_examples=cases(150), deadline=None)
@given(words=st.lists(WORDS, max_size=7))
def test_random_arguments_are_parsed_as_by_torchrun(
    words: list[str], theirs: Callable[[list[str]], dict[str, Any]]
) -> None:
    check(words, theirs)


def test_defaults_come_from_the_same_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed import run

    given = {
        "PET_NNODES": "3",
        "PET_MODULE": "1",
        "PET_STANDALONE": "0",
        "PET_NODE_RANK": "2",
        "PET_ROLE": "r",
    }
    for name, value in given.items():
        monkeypatch.setitem(os.environ, name, value)
    wanted = vars(run.get_args_parser().parse_args(["t"]))
    found = parse("torchrun", TORCHRUN_OPTIONS, ["t"], given)
    for name in ("nnodes", "module", "standalone", "node_rank", "role"):
        assert found[name] == wanted[name]
