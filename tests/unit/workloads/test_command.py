from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.launcher.command import CommandError, expand, parse, resolve

VARIABLES = {"A": "one", "B_2": "two", "EMPTY": "", "REFERENCE": "$(A)", "ESCAPE": "$$", "my.name-x": "dots"}


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        # references
        ("$(A)", "one"),
        ("$(A)-$(A)", "one-one"),
        ("--data=/mnt/$(A)/$(B_2).bin", "--data=/mnt/one/two.bin"),
        ("x$(EMPTY)y", "xy"),
        ("$(my.name-x)", "dots"),
        ("\\$(A)", "\\one"),
        ("first\n$(A)\n", "first\none\n"),
        ("ü$(A)ü", "üoneü"),
        # values are not looked into
        ("$(REFERENCE)", "$(A)"),
        ("$(ESCAPE)", "$$"),
        # what is not defined stays
        ("$(NONE)", "$(NONE)"),
        ("$(NONE)$(A)", "$(NONE)one"),
        ("$()", "$()"),
        ("$(A )", "$(A )"),
        ("$(A$(B_2))", "$(A$(B_2))"),
        ("$(NONE$$A)", "$(NONE$$A)"),
        ("$((RANK * 3))", "$((RANK * 3))"),
        # escapes
        ("$$", "$"),
        ("$$(A)", "$(A)"),
        ("$$(A)_$(A)", "$(A)_one"),
        ("$$$(A)", "$one"),
        ("$$$$(A)", "$$(A)"),
        ("$$$$$(A)", "$$one"),
        ("$$A", "$A"),
        # no references
        ("", ""),
        ("$", "$"),
        ("a$", "a$"),
        ("$A ${A} $? $! (A)", "$A ${A} $? $! (A)"),
        ("$A$(A)", "$Aone"),
        ("$A)", "$A)"),
        # without an end
        ("$(", "$("),
        ("$(A", "$(A"),
        ("$(A)$(A", "one$(A"),
        ("$($($(", "$($($("),
        ("$(A$$", "$(A$"),
    ],
)
def test_variables_are_expanded_as_by_the_kubelet(word: str, expanded: str) -> None:
    assert expand(["python", word, "$(A)"], VARIABLES) == ("python", expanded, "one")


@pytest.mark.parametrize(
    ("words", "kind", "target", "arguments"),
    [
        ("python train.py", "file", "train.py", ""),
        ("python3 train.py --lr 3", "file", "train.py", "--lr 3"),
        ("/opt/venv/bin/python3.12 a/b.py -m x", "file", "a/b.py", "-m x"),
        ("python -u train.py", "file", "train.py", ""),
        ("python -m package.module --x", "module", "package.module", "--x"),
        ("python -u -m module", "module", "module", ""),
        ("torchrun train.py --lr 3", "file", "train.py", "--lr 3"),
        ("torchrun --nproc-per-node=2 --nnodes 4 train.py -v", "file", "train.py", "-v"),
        ("torchrun --nproc_per_node 2 --standalone train.py", "file", "train.py", ""),
        ("torchrun --rdzv-backend=c10d --rdzv-endpoint h:1 --max-restarts=3 t.py", "file", "t.py", ""),
        ("torchrun -m package.train --lr 3", "module", "package.train", "--lr 3"),
        ("python -m torch.distributed.run --nproc-per-node=8 t.py a", "file", "t.py", "a"),
        ("python3 -m torch.distributed.launch --use-env t.py", "file", "t.py", ""),
    ],
)
def test_what_starts_warm(words: str, kind: str, target: str, arguments: str) -> None:
    start = parse(words.split())
    assert (start.kind, start.target, " ".join(start.arguments)) == (kind, target, arguments)


@pytest.mark.parametrize(
    ("words", "cold"),
    [
        ("bash -c true", "bash -c true"),
        ("python -c pass", "python -c pass"),
        ("python", "python"),
        ("python -O train.py", "python -O train.py"),
        ("python -", "python -"),
        ("python2 train.py", "python2 train.py"),
        ("pythonic train.py", "pythonic train.py"),
        ("torchrun --no-python ./train --lr 3", "./train --lr 3"),
        ("torchrun --help", "torchrun --help"),
    ],
)
def test_what_starts_cold(words: str, cold: str) -> None:
    start = parse(words.split())
    assert not start.warm
    assert " ".join(start.argv) == cold


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("torchrun --nproc-per-node=8 t.py", 8),
        ("torchrun --nproc_per_node 8 --standalone t.py", 8),
        ("torchrun --nproc-per-node=2 -m package.train", 2),
        ("torchrun --nproc-per-node=2 --no-python ./train", 2),
        ("python -m torch.distributed.run --nproc-per-node 8 t.py", 8),
        ("torchrun --nproc-per-node=gpu t.py", None),
        ("torchrun --nproc-per-node auto t.py", None),
        ("torchrun t.py --nproc-per-node=8", None),
        ("python t.py --nproc-per-node=8", None),
    ],
)
def test_how_many_processes_torchrun_is_told_to_start(words: str, number: int | None) -> None:
    assert parse(words.split()).per_node == number


def test_torchrun_runs_under_the_python_beside_it() -> None:
    assert parse(["/opt/venv/bin/torchrun", "t.py"]).argv == ("/opt/venv/bin/python", "t.py")
    assert parse(["torchrun", "t.py"]).argv == ("python", "t.py")


@pytest.fixture
def folders(tmp_path: Path) -> str:
    """A PATH of two folders: in the first `tool` cannot be executed, in the second it can."""
    for name, mode in (("one", 0o644), ("two", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").touch()
        (tmp_path / name / "tool").chmod(mode)
    return f"{tmp_path / 'one'}:{tmp_path / 'two'}"


def test_the_first_executable_on_path_is_taken(folders: str) -> None:
    assert resolve("tool", folders) == folders.split(":")[1] + "/tool"
    assert resolve(folders.split(":")[1] + "/tool", "") == folders.split(":")[1] + "/tool"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [("absent", 127, "absent: command not found on PATH="), ("{one}/absent", 127, "command not found"),
     ("{one}/tool", 126, "is not an executable file"), ("{one}", 126, "is not an executable file")],
)  # fmt: skip
def test_why_a_command_cannot_run(folders: str, name: str, code: int, words: str) -> None:
    with pytest.raises(CommandError, match=words) as error:
        resolve(name.format(one=folders.split(":", maxsplit=1)[0]), folders)
    assert error.value.exit_code == code


def test_only_files_without_the_mode_on_path_are_refused_as_such(folders: str) -> None:
    with pytest.raises(CommandError, match="is not an executable file") as error:
        resolve("tool", folders.split(":", maxsplit=1)[0])
    assert error.value.exit_code == 126
