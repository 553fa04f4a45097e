"""Tests of images that were not made for Convoy: users without an account, unwritable folders, no shell,
few modules.

The fast tests run this machine's Python in a separate root file system. `make foreign-images` tests whole
images, of other distributions and with another libc.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.images import foreign

from .conftest import Agent, Launcher
from .containers import HOME, PODS, SYSTEM, Container, skeleton

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, for mounts and users")

PREFIX = Path(sys.base_prefix)
SITE = f"lib/python3.{sys.version_info.minor}/site-packages"
REPORT = """
import getpass, os, pathlib, tempfile
print("uid", os.getuid(), "HOME", os.environ.get("HOME"), "USER", os.environ.get("USER"), "cwd", os.getcwd())
cache = pathlib.Path.home() / ".cache" / "huggingface"
try: cache.mkdir(parents=True, exist_ok=True); (cache / "x").write_text(""); print("cache ok")
except OSError as e: print("cache:", e)
try: open("snapshot.pt", "w"); print("cwd ok")
except OSError as e: print("cwd:", e.strerror)
try: print("tmp", tempfile.mkdtemp())
except OSError as e: print("tmp:", e)
print("user", getpass.getuser())
"""
"""A program with the first actions of many training scripts."""

Boot = Callable[..., Launcher]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Root file system of an image with an empty /etc, without a shell, and with `python` and `python3` in
    /opt/bin.
    """
    root = skeleton(tmp_path / "image")
    for name in SYSTEM:
        for path in (Path("/", name), Path("/usr", name)):
            if path.is_symlink():
                (root / path.relative_to("/")).symlink_to(path.readlink())
            elif path.is_dir():
                (root / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
    (root / PREFIX.relative_to("/")).mkdir(parents=True, exist_ok=True)
    (root / "opt/bin").mkdir(parents=True)
    real = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    for name in ("python", "python3"):
        (root / "opt/bin" / name).symlink_to(real)
    (root / "app/report.py").write_text(REPORT)
    return root


def _system(root: Path) -> dict[str, str]:
    """Return the mounts that give an image this machine's Python."""
    found = [Path("/", name) for name in SYSTEM] + [Path("/usr", name) for name in SYSTEM] + [PREFIX]
    return {str(path): str(path) for path in found if path.is_dir() and not path.is_symlink()}


@pytest.fixture
def boot(agent: Agent, library: Path, short: Path, tmp_path: Path) -> Iterator[Boot]:
    """A function that starts the launcher in an image, with the volumes of a worker's pod."""
    started: list[subprocess.Popen[bytes]] = []
    library.chmod(0o755)
    short.chmod(0o755)
    (short / "lib").mkdir(exist_ok=True)
    agent.path.chmod(0o666)
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    home.chmod(0o777)

    def start(
        root: Path,
        mounts: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        **more: object,
    ) -> Launcher:
        variables = {
            "PATH": "/opt/bin",
            "HOME": "/",
            "CONVOY_SOCKET": f"{PODS}/agent.sock",
            "CONVOY_HOME": HOME,
        }
        container = Container(
            root=str(root),
            environment={**variables, **(environment or {})},
            mounts={
                **(_system(root) if mounts is None else mounts),
                PODS: str(short),
                f"{PODS}/lib": str(library),
                HOME: str(home),
            },
            **{"working_dir": "/app", **more},  # type: ignore[arg-type]
        )
        log = tmp_path / f"log-{len(started)}"
        started.append(container.start(log))
        return Launcher(started[-1], log)

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.wait(10)


async def runs(agent: Agent, *command: str, incarnation: int = 1) -> dict[str, object]:
    """Run a rank with the command. Return the last report about the rank."""
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(list(command), incarnation, ranks=1)
    return await agent.receives_exit(0, incarnation)


async def test_a_user_without_an_account_has_a_name_and_a_home(agent: Agent, boot: Boot, image: Path) -> None:
    launcher = boot(image)
    for incarnation, command in enumerate((["python", "report.py"], ["python3", "-c", REPORT]), 1):
        report = await runs(agent, *command, incarnation=incarnation)
        assert report["exitCode"] == 0, launcher.log
        printed = [
            line.split("] ", 1)[1] for line in launcher.log.splitlines() if line[1:2] == str(incarnation)
        ]
        assert printed[0] == f"uid 65532 HOME {HOME}/home USER convoy cwd /app"
        assert printed[1:3] == ["cache ok", "cwd: Read-only file system"]
        assert printed[3].startswith(f"tmp {HOME}/tmp/") and printed[4] == "user convoy"
    assert "incarnation 1: 1 ranks (1 warm)" in launcher.log, launcher.log
    assert "incarnation 2: 1 ranks (0 warm)" in launcher.log
    own = [line for line in launcher.log.splitlines() if line.startswith("convoy: uid 65532")]
    assert own[0] == (
        "convoy: uid 65532 has no account in this image, so USER is set to convoy; uid 65532 cannot write to "
        f"HOME=/, so HOME is set to {HOME}/home; /tmp is not writable, so TMPDIR is set to {HOME}/tmp"
    )
    assert len(own) == 2 and "cannot write to the working directory /app" in own[1]


def lines(launcher: Launcher) -> list[str]:
    """Return the lines that rank 0 of incarnation 1 has printed."""
    return [line.removeprefix("[1/0] ") for line in launcher.log.splitlines() if line.startswith("[1/0] ")]


def account(root: Path, home: str) -> Path:
    """Give the image an account for the user of the workers. Return the folder that is mounted as the
    user's home.
    """
    (root / "etc/passwd").write_text(f"nonroot:x:65532:65532::{home}:/sbin/nologin\n")
    (root / home[1:]).mkdir(parents=True, exist_ok=True)
    return root / home[1:]


async def test_an_image_with_an_account_for_its_user_is_not_changed(
    agent: Agent, boot: Boot, image: Path
) -> None:
    os.chown(account(image, "/home/me"), 65532, 65532)
    os.chown(image / "app", 65532, 65532)
    launcher = boot(image, environment={"HOME": "/home/me"}, read_only=False)
    await runs(agent, "python", "report.py")
    printed = lines(launcher)
    assert printed[0] == "uid 65532 HOME /home/me USER None cwd /app"
    assert printed[1:3] == ["cache ok", "cwd ok"]
    assert printed[3].startswith("tmp /tmp/") and printed[4] == "user nonroot"
    assert "convoy: uid" not in launcher.log


async def test_files_of_an_unwritable_home_are_readable(agent: Agent, boot: Boot, image: Path) -> None:
    home = account(image, "/home/me")
    models = home / ".cache/huggingface/hub/models--small"
    package = home / ".local" / SITE / "mine"
    for folder in (models, package, home / "data"):
        folder.mkdir(parents=True)
    (models / "weights").write_text("baked")
    (package / "__init__.py").write_text("word = 'user package'")
    (home / "data/set").write_text("records")
    (home / ".secret").mkdir(mode=0o700)
    (image / "app/read.py").write_text(
        "import mine, pathlib\n"
        "home = pathlib.Path.home()\n"
        "hub = home / '.cache/huggingface/hub'\n"
        "(hub / 'models--other').mkdir()\n"
        "print(mine.word, (hub / 'models--small/weights').read_text(), (home / 'data/set').read_text())\n"
        "(home / '.secret').mkdir()\n"
    )
    launcher = boot(image, environment={"HOME": "/home/me"})
    for incarnation, command in enumerate((["python"], ["python", "-X", "dev"]), 1):
        report = await runs(agent, *command, "read.py", incarnation=incarnation)
        assert report["exitCode"] == (0 if incarnation == 1 else 1), launcher.log
    assert lines(launcher) == ["user package baked records"]
    assert "FileExistsError" in launcher.log, "the same home in the next incarnation"


async def test_a_home_set_by_the_job_is_kept(agent: Agent, boot: Boot, image: Path) -> None:
    launcher = boot(
        image, environment={"HOME": "/data/me", "CONVOY_HOME": "", "USER": "ada"}, read_only=False
    )
    await runs(agent, "python", "report.py")
    printed = lines(launcher)
    assert printed[0] == "uid 65532 HOME /data/me USER ada cwd /app"
    assert printed[1].startswith("cache: [Errno 13]") and printed[4] == "user ada"


async def test_root_keeps_its_home(agent: Agent, boot: Boot, image: Path) -> None:
    (image / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (image / "root").mkdir(exist_ok=True)  # This machine's Python may be in /root.
    launcher = boot(image, environment={"HOME": "/root"}, read_only=False, uid=0)
    await runs(agent, "python", "report.py")
    assert lines(launcher)[:3] == ["uid 0 HOME /root USER None cwd /app", "cache ok", "cwd ok"]
    assert "convoy: uid" not in launcher.log


async def test_ranks_start_if_the_working_directory_is_inaccessible(
    agent: Agent, boot: Boot, image: Path
) -> None:
    (image / "app").chmod(0o700)
    (image / "opt/program.py").write_text("import os\nprint('ran in', os.getcwd())\n")
    launcher = boot(image)
    for incarnation, command in enumerate((["python"], ["python", "-X", "dev"]), 1):
        report = await runs(agent, *command, "/opt/program.py", incarnation=incarnation)
        assert report["exitCode"] == 0, launcher.log
    assert "[1/0] ran in /app" in launcher.log and "[2/0] ran in /app" in launcher.log
    assert "(1 warm)" in launcher.log


@pytest.mark.parametrize(
    ("lacks", "options"),
    [
        ("shared memory", {"shared_memory": False}),
        (
            "modules with C libraries",
            {"hidden": ("_ctypes", "_ssl", "_sqlite3", "_posixshmem", "_lzma", "_bz2")},
        ),
        ("a locale", {"environment": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_ranks_start_in_an_image_without_common_parts(
    agent: Agent, boot: Boot, image: Path, lacks: str, options: dict[str, object]
) -> None:
    mounts, hidden = _system(image), options.pop("hidden", ())
    for name in hidden if isinstance(hidden, tuple) else ():
        for path in (PREFIX / "lib").glob(f"python3.*/lib-dynload/{name}.*.so"):
            mounts[str(path)] = "/dev/null"
    environment = {"WORD": "caf\u00e9", **options.pop("environment", {})}  # type: ignore[dict-item]
    (image / "app/word.py").write_text("import os\nprint(os.environb[b'WORD'], flush=True)\n")
    launcher = boot(image, mounts, environment, **options)
    for incarnation, command in enumerate((["python"], ["python", "-B"]), 1):
        report = await runs(agent, *command, "word.py", incarnation=incarnation)
        assert report["exitCode"] == 0, launcher.log
        assert f"[{incarnation}/0] b'caf\\xc3\\xa9'" in launcher.log
    assert "incarnation 1: 1 ranks (1 warm)" in launcher.log, launcher.log


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder for /app that contains the program REPORT."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "report.py").write_text(REPORT)
    return folder


whole = pytest.mark.skipif(
    "CONVOY_FOREIGN_IMAGES" not in os.environ, reason="builds images for minutes: make foreign-images"
)
STANDARD = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def built(one: foreign.Foreign) -> Path:
    """Return the root file system of the image, with the folders on which a container runtime mounts."""
    assert one.root.is_dir(), "make foreign-images builds it first"
    return skeleton(one.root)


@whole
@pytest.mark.parametrize("one", [i for i in foreign.IMAGES if i.runs], ids=lambda one: one.name)
async def test_ranks_run_in_a_complete_image(
    agent: Agent, boot: Boot, app: Path, one: foreign.Foreign
) -> None:
    launcher = boot(built(one), {"/app": str(app)}, STANDARD)
    hello = await agent.receives(lambda m: m["type"] == "hello")
    assert hello["python"].startswith(one.python + ".")
    for incarnation, command in enumerate((["python3"], ["python3", "-B"]), 1):
        report = await runs(agent, *command, "report.py", incarnation=incarnation)
        assert report["exitCode"] == 0, launcher.log
    printed = lines(launcher)
    assert printed[0] == f"uid 65532 HOME {HOME}/home USER convoy cwd /app"
    assert (printed[1], printed[4]) == ("cache ok", "user convoy")
    assert "incarnation 1: 1 ranks (1 warm)" in launcher.log
    assert "incarnation 2: 1 ranks (0 warm)" in launcher.log


@whole
@pytest.mark.parametrize("one", [i for i in foreign.IMAGES if not i.runs], ids=lambda one: one.name)
async def test_an_image_with_an_unsuitable_python_is_reported(
    boot: Boot, app: Path, tmp_path: Path, one: foreign.Foreign
) -> None:
    log = tmp_path / "termination-log"
    log.touch(mode=0o666)
    log.chmod(0o666)
    launcher = boot(built(one), {"/app": str(app), "/dev/termination-log": str(log)}, STANDARD)
    assert await launcher.ends() == 127
    assert log.read_text().startswith("python3 at /usr/bin/python3 has an incomplete standard library: ")


@pytest.mark.parametrize(("code", "left"), [(0, "{}"), (1, "")])
async def test_a_launcher_that_ends_well_leaves_the_result_as_its_termination_message(
    agent: Agent, boot: Boot, image: Path, tmp_path: Path, code: int, left: str
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    log.chmod(0o666)
    launcher = boot(image, {**_system(image), "/dev/termination-log": str(log)})
    report = await runs(
        agent, "python", "-c", "import os; open(os.environ['CONVOY_RESULT'], 'w').write('{}')"
    )
    assert (report["exitCode"], report["result"]) == (0, "{}"), launcher.log
    assert log.read_text() == ""
    agent.send(type="shutdown", exitCode=code)
    assert await launcher.ends() == code
    assert log.read_text() == left
