"""Tests that a warm rank behaves like `python FILE`. The launcher's own code starts the program in both
ways, and the results are compared.

`CONVOY_WARM_AND_COLD=1` or `make warm-and-cold` adds old interpreters and more tests of torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.ports import free_port

from .programs.ends import ENDS, EXITS, PROCESSES, SOURCES
from .warm_and_cold import Outcome, Pair

pytestmark = pytest.mark.asyncio(loop_scope="module")
STATE = Path(__file__).with_name("programs") / "state.py"
LONG = bool(os.environ.get("CONVOY_WARM_AND_COLD"))


def interpreters() -> list[str]:
    """Return the base interpreter of this Python, which has no packages. The long test run adds other
    versions of Python.
    """
    found = [sys._base_executable]  # type: ignore[attr-defined]
    for minor in range(9, 16) if LONG else ():
        pattern = f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"
        names = [*map(str, Path.home().glob(pattern)), shutil.which(f"python3.{minor}") or ""]
        found += [name for name in names if name][:1] if minor != sys.version_info.minor else []
    return found


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=interpreters(), ids=lambda path: Path(path).name
)
async def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python").symlink_to(request.param)
    pair = Pair({"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/nowhere"}, tmp_path_factory.mktemp("out"))
    here = tmp_path_factory.mktemp("here")
    write_forms(here)
    # The zygote must start in this folder, because programs are found relative to it.
    with contextlib.chdir(here):
        yield pair
    pair.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def torch(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": "/nowhere", "OMP_NUM_THREADS": "2", "GLOO_SOCKET_IFNAME": "lo"}
    pair = Pair(environment, tmp_path_factory.mktemp("out"))
    yield pair
    pair.stop()


_BY_NATURE = [
    (re.compile(r'  File "[^"]*convoy_launch\.py", line \d+,? in <module>\n(?:    .*\n)?'), ""),
    # Addresses of threads and objects differ between any two processes.
    (re.compile(r"0x[0-9a-f]{6,}"), "0x"),
    # The stack of a warm program has one more frame below the program.
    (re.compile(r"Previous line repeated \d+ more times"), "Previous line repeated"),
    (re.compile(r"\.\.\. \d+ frames \.\.\."), ""),
    (re.compile(r"/psm_\w+"), "/psm_"),
    (re.compile(r"tmp\w{8}\b"), "tmp"),
]


def compared(outcome: Outcome) -> Outcome:
    """Return the outcome without the parts that differ between any two processes."""
    out, err = outcome.stdout, outcome.stderr
    for pattern, replacement in _BY_NATURE:
        out, err = pattern.sub(replacement, out), pattern.sub(replacement, err)
    return Outcome(outcome.status, out, err, outcome.files)


async def assert_same(pair: Pair, *command: str, **environment: str) -> Outcome:
    warm, cold = await pair.both(*command, **environment)
    assert compared(warm) == compared(cold)
    return warm


@pytest.mark.parametrize("name", [*ENDS, *EXITS])
async def test_every_way_to_end_is_the_same_warm_and_cold(pair: Pair, tmp_path: Path, name: str) -> None:
    program = tmp_path / "program.py"
    program.write_text({**ENDS, **EXITS}[name])
    await assert_same(pair, "python", str(program), "-a", "b c", "")


async def test_an_unclosed_file_is_flushed(pair: Pair, tmp_path: Path) -> None:
    """The program ends without closing its file. Both starts must write the file."""
    program = tmp_path / "program.py"
    program.write_text(ENDS["an open file"])
    assert (await assert_same(pair, "python", str(program))).files == (("file", "written"),)


@pytest.mark.parametrize("name", SOURCES)
async def test_every_kind_of_source_runs_the_same(pair: Pair, tmp_path: Path, name: str) -> None:
    program = tmp_path / "program.py"
    program.write_bytes(SOURCES[name])
    await assert_same(pair, "python", str(program))


TEXT = "import sys\nprint(__file__, __name__, __package__, sys.argv, sys.path[:2], __spec__)\n"


def write_forms(folder: Path) -> None:
    """Write one program in every form that Python can run: file, folder, package and module."""
    package = [f"package/{name}.py" for name in ("__init__", "__main__", "part")]
    for name in ("program.py", "folder/__main__.py", *package):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(TEXT)
    (folder / "without").mkdir()
    (folder / "bare").mkdir()
    (folder / "bare/__init__.py").touch()
    (folder / "failing.py").write_text("import json\njson.loads('{')\n")
    (folder / "link.py").symlink_to("folder/__main__.py")
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", TEXT)
    shutil.copy(folder / "archive.zip", folder / "archive")
    (folder / "broken.pyc").write_bytes(b"\0" * 32)


FORMS = [
    ("program.py",), ("./program.py",), (".//program.py",), ("folder/../program.py",), ("link.py",),
    ("folder",), ("folder/",), ("without",), ("archive.zip",), ("archive",), ("broken.pyc",), ("nowhere.py",),
    ("nowhere/",),
    ("/dev/null",), ("program.py/x",), ("failing.py",), ("-u", "program.py"),
    ("-m", "program"), ("-m", "package"), ("-m", "package.part"), ("-m", "bare"), ("-m", "nowhere"),
    ("-m", "package.nowhere"), ("-m", "failing"), ("-m", "folder"), ("-m", ".x"),
    ("-m", "json.tool", "--help"),
]  # fmt: skip


@pytest.mark.parametrize("words", FORMS, ids=" ".join)
async def test_every_form_of_a_program_runs_the_same(pair: Pair, words: tuple[str, ...]) -> None:
    await assert_same(pair, "python", *words, "--option", "value")


async def test_a_compiled_program_runs_the_same(pair: Pair, tmp_path: Path) -> None:
    compiled = tmp_path / "program.pyc"
    (tmp_path / "program.py").write_text("print(__file__, __cached__, __loader__.__class__)\n")
    (tmp_path / "compile.py").write_text(
        f"import py_compile\npy_compile.compile({str(tmp_path / 'program.py')!r}, {str(compiled)!r})\n"
    )
    await assert_same(pair, "python", str(tmp_path / "compile.py"))
    await assert_same(pair, "python", str(compiled))
    await assert_same(pair, "python", str(compiled.rename(tmp_path / "program.bin")))


def differences(warm: Any, cold: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves that differ between two nested mappings, by path."""
    if isinstance(warm, dict) and isinstance(cold, dict):
        found = {}
        for key in {**warm, **cold}:
            found |= differences(warm.get(key), cold.get(key), f"{path}/{key}")
        return found
    return {} if warm == cold else {path: (warm, cold)}


async def assert_same_state(pair: Pair, *arguments: str, **environment: str) -> None:
    warm, cold = await pair.both("python", str(STATE), *arguments, **environment)
    assert (warm.stderr, cold.stderr) == ("", "")
    assert differences(json.loads(warm.stdout), json.loads(cold.stdout)) == {}


async def test_a_program_starts_in_the_same_environment(pair: Pair) -> None:
    await assert_same_state(pair)


async def test_a_program_starts_in_the_same_environment_with_torch_loaded(torch: Pair) -> None:
    await assert_same_state(torch, OMP_NUM_THREADS="1")
    await assert_same_state(torch, "torch")


VARIABLES = [
    {"PYTHONHASHSEED": "0"}, {"PYTHONUNBUFFERED": "0"}, {"PYTHONOPTIMIZE": "2"},
    {"PYTHONDONTWRITEBYTECODE": "1"},
    {"PYTHONWARNINGS": "error::UserWarning,ignore"}, {"PYTHONUTF8": "1"},
    {"PYTHONIOENCODING": "latin-1:replace"},
    {"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8", "LANG": "de"}, {"PYTHONCOERCECLOCALE": "0", "LANG": "C"},
    {"PYTHONSAFEPATH": "1"}, {"PYTHONPYCACHEPREFIX": "/nowhere"}, {"PYTHONFAULTHANDLER": ""},
    {"PYTHONMALLOC": "malloc"}, {"PYTHONINTMAXSTRDIGITS": "640"}, {"TZ": "Asia/Tokyo"},
    {"PYTHONNOUSERSITE": "1"},
    {"PYTHONSTARTUP": "/nowhere"}, {"PYTHONASYNCIODEBUG": "1"}, {"MALLOC_ARENA_MAX": "2"},
]  # fmt: skip


@pytest.mark.parametrize("variables", VARIABLES if LONG else VARIABLES[::2], ids="-".join)
async def test_variables_that_an_interpreter_reads_at_startup_have_the_same_effect(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """An interpreter reads these variables at its start. The zygote starts with the same variables as the
    cold rank.
    """
    pair = Pair({"PATH": f"{bin_folder(tmp_path)}:/usr/bin:/bin", **variables}, tmp_path)
    try:
        await assert_same_state(pair)
    finally:
        pair.stop()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_processes_of_a_program_are_the_same(pair: Pair, tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROCESSES)
    found = await assert_same(pair, "python", str(program), method)
    assert (found.status, found.stdout.count("[]")) == (0, 1)


def bin_folder(parent: Path) -> Path:
    """Return a folder for PATH with a Python without packages."""
    folder = parent / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    return folder


COLD = [
    ({"PYTHONDEVMODE": "1"}, "PYTHONDEVMODE is set"),
    ({"PYTHONPROFILEIMPORTTIME": "1"}, "PYTHONPROFILEIMPORTTIME is set"),
    ({"PYTHONINSPECT": "1"}, "PYTHONINSPECT is set"),
    ({"PYTHONTRACEMALLOC": "1"}, "PYTHONTRACEMALLOC is set"),
    ({"OMP_NUM_THREADS": "4,2"}, "OMP_NUM_THREADS=4,2 is not a number"),
    ({"LD_PRELOAD": "", "LC_ALL": "C"}, "LC_ALL is read at the start of a process"),
    ({"TORCH_LOGS": "+dynamo"}, "TORCH_LOGS is read at the start of a process"),
]


@pytest.mark.parametrize(
    ("variables", "why"), COLD, ids=lambda value: "-".join(value) if value is dict else ""
)
async def test_a_rank_that_would_differ_starts_cold(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], variables: dict[str, str], why: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('ran')\n")
    probe = await pair.start(pair.warm, "python", str(program), **variables)
    outcome = await probe.outcome()
    assert (probe.warm, outcome.status, outcome.stdout) == (False, 0, "ran\n")
    assert f"rank 0 starts cold: {why}" in capsys.readouterr().err


async def test_a_module_beside_the_program_hides_the_library_s(pair: Pair, tmp_path: Path) -> None:
    """The zygote has already imported the library's `traceback`, but the program must get its own. So the
    rank starts cold.
    """
    (tmp_path / "traceback.py").write_text("mine = True\n")
    (tmp_path / "unrelated.py").touch()
    (tmp_path / "program.py").write_text("import traceback\nprint(traceback.mine)\n")
    probe = await pair.start(pair.warm, "python", str(tmp_path / "program.py"))
    assert ((await probe.outcome()).stdout, probe.warm) == ("True\n", False)


GROUP = """
import os, sys, threading, torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
file = open(os.environ["OUT"] + "/file", "w")
file.write("written")
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
way = sys.argv[1]
if way == "destroyed":
    dist.destroy_process_group()
elif way == "pending" and rank == 0:
    work = dist.all_reduce(torch.ones(9), async_op=True)
    raise ValueError("x")
elif way == "lost" and rank == 0:
    dist.all_reduce(torch.ones(9))
if rank == 1 and way == "pending":
    threading.Event().wait()
if rank == 1 and way == "lost":
    os._exit(9)
"""


@pytest.mark.parametrize(
    ("way", "statuses"), [("left", [0, 0]), ("destroyed", [0, 0]), ("pending", [1, -9]), ("lost", [76, 9])]
)
async def test_a_rank_in_a_process_group_ends_independently_of_its_peers(
    torch: Pair, tmp_path: Path, way: str, statuses: list[int]
) -> None:
    """A process started by `python FILE` would wait for the pending collective until its peer ends."""
    program = tmp_path / "program.py"
    program.write_text(GROUP)
    port = str(free_port())
    ranks = [
        await torch.start(
            torch.warm,
            "python",
            str(program),
            way,
            RANK=str(rank),
            WORLD_SIZE="2",
            MASTER_PORT=port,
        )
        for rank in (0, 1)
    ]
    first = await ranks[0].outcome()
    if way == "pending":
        ranks[1].kill()
    second = await ranks[1].outcome()
    assert [first.status, second.status] == statuses, (first.stderr, second.stderr)
    assert first.files == (("file", "written"),)


async def test_a_daemon_thread_has_its_modules_until_it_is_stopped(torch: Pair, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import threading\nbegun = threading.Event()\n"
        "def work():\n    while True:\n        import torch\n        begun.set()\n"
        "threading.Thread(target=work, daemon=True).start()\nbegun.wait()\nprint('through')\n"
    )
    probe = await torch.start(torch.warm, "python", str(program))
    outcome = await probe.outcome()
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "through\n", "")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"] if LONG else ["fork"])
async def test_data_loader_workers_run_the_same(torch: Pair, tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORKERS)
    found = await assert_same(torch, "python", str(program), method)
    assert found.status == 0


WORKERS = """
import sys, torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset, get_worker_info

class Data(TensorDataset):
    def __getitem__(self, index):
        assert get_worker_info() is not None
        return super().__getitem__(index)

def work(index, shared):
    shared[index] = 7

if __name__ == "__main__":
    method = sys.argv[1]
    loader = DataLoader(Data(torch.arange(8)), batch_size=4, num_workers=1, multiprocessing_context=method)
    print([batch[0].tolist() for batch in loader])
    shared = torch.zeros(2).share_memory_()
    mp.start_processes(work, args=(shared,), nprocs=1, start_method=method)
    print(shared.tolist())
"""
