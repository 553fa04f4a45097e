"""Tests that launcher and runtime work in any image: with an old Python, without packages, with or without
torch.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import convoy_commands
import convoy_workloads
from convoy_controllers.views import PodView
from convoy_controllers.workers.faults import pod_fault
from convoy_crds.reasons.catalogue import Reasons
from convoy_workloads.launcher import convoy_launch

PACKAGE = Path(convoy_workloads.__file__).parent
PARTS = ("launcher", "runtime", "runtime/folder")
COMMANDS = Path(convoy_commands.__file__).parent
FOLDERS = [*(PACKAGE / part for part in PARTS), COMMANDS]
SOURCES = sorted(path for folder in FOLDERS for path in folder.glob("*.py"))
ENTRY = "convoy_launch.py"
NEED_TORCH = {"optimizer_state.py", "snapshot.py", "state_dicts.py"}
"""Files that are imported only by code that has already imported torch."""


def test_the_checked_sources_exist() -> None:
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_module_is_python_3_9_and_imports_only_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    allowed = {"convoy_workloads", "convoy_commands"} | ({"torch"} if path.name in NEED_TORCH else set())
    for node in tree.body:
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )  # fmt: skip
        for name in names:
            top = name.partition(".")[0]
            assert top in sys.stdlib_module_names | allowed, f"{path.name} imports {name}"
            assert not name.startswith("convoy_workloads.") or name.split(".")[1] in ("launcher", "runtime")
    first = next((n for n in tree.body if not isinstance(n, ast.Expr)), None)
    annotated = [n for n in ast.walk(tree) if isinstance(n, ast.AnnAssign | ast.FunctionDef)]
    if annotated and path.name not in ("__init__.py", ENTRY):
        assert isinstance(first, ast.ImportFrom), f"{path.name}: annotations must stay strings for Python 3.9"
        assert first.module == "__future__"


@pytest.mark.parametrize(
    "path",
    sorted(path for folder in FOLDERS[:2] for path in folder.rglob("*.py")),
    ids=lambda path: path.relative_to(PACKAGE).as_posix(),
)
def test_a_module_evaluates_nothing_that_python_3_9_lacks(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    for call in calls:
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in ("isinstance", "issubclass"):
            assert not isinstance(call.args[1], ast.BinOp), f"line {call.lineno}: a union of types"
        if name == "dataclass":
            assert not {"slots", "kw_only"} & {one.arg for one in call.keywords}, f"line {call.lineno}"


def test_any_python_3_can_parse_the_entry_which_refuses_those_that_are_too_old() -> None:
    tree = ast.parse((PACKAGE / "launcher" / ENTRY).read_text(), feature_version=(3, 4))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.AnnAssign)]
    futures = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    assert not futures, "Python 3.6 has no postponed annotations"


@pytest.mark.parametrize("zygote", [False, True])
def test_a_python_that_is_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], zygote: bool
) -> None:
    monkeypatch.setattr(convoy_launch, "OLDEST", (99, 0))
    check_refused(monkeypatch, tmp_path, capsys, zygote, "which is too old")


@pytest.mark.parametrize("zygote", [False, True])
def test_a_python_without_its_whole_standard_library_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], zygote: bool
) -> None:
    for name in ("supervisor", "zygote"):
        monkeypatch.setitem(sys.modules, f"convoy_workloads.launcher.{name}", None)
    check_refused(monkeypatch, tmp_path, capsys, zygote, "has an incomplete standard library: import of ")


def check_refused(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str], zygote: bool, why: str
) -> None:
    """Run the launcher's entry point and expect that it refuses to start because of `why`.

    It must log the reason. It must report the reason to the kubelet only if the container ends.
    """
    log = folder / "termination-log"
    log.touch()
    monkeypatch.setattr(convoy_launch, "TERMINATION_LOG", str(log))
    assert convoy_launch.run(zygote) == convoy_launch.UNFIT
    log_line = capsys.readouterr().err
    assert log_line.startswith(f"convoy: python3 at {sys.executable} ") and why in log_line
    reason, separator, _ = log_line.removeprefix("convoy: ").partition(". Convoy needs Python ")
    assert separator and log.read_text() == ("" if zygote else reason)


def test_the_operator_recognises_the_messages_of_a_launcher_that_cannot_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setattr(convoy_launch, "TERMINATION_LOG", str(log))
    code = convoy_launch.refuse("is Python 3.8, which is too old", False)
    view = PodView("p", "u", "Failed", "n", exit_code=code, termination_message=log.read_text())
    fault = pod_fault(view, None)
    assert fault is not None
    assert fault.reason is Reasons.NO_PYTHON
    assert f"python3 at {sys.executable} is Python 3.8, which is too old" in fault.message
