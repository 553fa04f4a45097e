from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.launcher.command import CommandError, expand, interpreter, parse, resolve

VARIABLES = {"A": "one", "B_2": "two", "EMPTY": "", "REFERENCE": "$(A)", "ESCAPE": "$$", "my.name-x": "dots"}


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        # References to defined variables are expanded.
        ("$(A)", "one"),
        ("$(A)-$(A)", "one-one"),
        ("--data=/mnt/$(A)/$(B_2).bin", "--data=/mnt/one/two.bin"),
        ("x$(EMPTY)y", "xy"),
        ("$(my.name-x)", "dots"),
        ("\\$(A)", "\\one"),
        ("first\n$(A)\n", "first\none\n"),
        ("ü$(A)ü", "üoneü"),
        # Expanded values are not expanded again.
        ("$(REFERENCE)", "$(A)"),
        ("$(ESCAPE)", "$$"),
        # References to undefined variables stay unchanged.
        ("$(NONE)", "$(NONE)"),
        ("$(NONE)$(A)", "$(NONE)one"),
        ("$()", "$()"),
        ("$(A )", "$(A )"),
        ("$(A$(B_2))", "$(A$(B_2))"),
        ("$(NONE$$A)", "$(NONE$$A)"),
        ("$((RANK * 3))", "$((RANK * 3))"),
        # Two dollar signs stand for one, so a reference after them is not expanded.
        ("$$", "$"),
        ("$$(A)", "$(A)"),
        ("$$(A)_$(A)", "$(A)_one"),
        ("$$$(A)", "$one"),
        ("$$$$(A)", "$$(A)"),
        ("$$$$$(A)", "$$one"),
        ("$$A", "$A"),
        # These texts are not references.
        ("", ""),
        ("$", "$"),
        ("a$", "a$"),
        ("$A ${A} $? $! (A)", "$A ${A} $? $! (A)"),
        ("$A$(A)", "$Aone"),
        ("$A)", "$A)"),
        # References without a closing bracket stay unchanged.
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
        ("python -u -u -- train.py -u", "file", "train.py", "-u"),
        ("python -m package.module --x", "module", "package.module", "--x"),
        ("python -u -m module", "module", "module", ""),
        ("python -um module -m", "module", "module", "-m"),
        ("python -mmodule a", "module", "module", "a"),
        ("torchrun train.py --lr 3", "file", "train.py", "--lr 3"),
        ("torchrun --nproc-per-node=2 --nnodes 4 train.py -v", "file", "train.py", "-v"),
        ("torchrun --nproc_per_node 2 --standalone train.py", "file", "train.py", ""),
        ("torchrun --nproc 2 --nnod=4 --stand train.py --nproc 8", "file", "train.py", "--nproc 8"),
        ("torchrun --rdzv-backend=c10d --rdzv-endpoint h:1 --max-restarts=3 t.py", "file", "t.py", ""),
        ("torchrun -r3 -t 0:1,1:2 --log-dir logs t.py -r3", "file", "t.py", "-r3"),
        ("torchrun --nnodes=2 -- t.py --epochs 3", "file", "t.py", "--epochs 3"),
        ("torchrun --rdzv-conf=-1 --role=-r t.py", "file", "t.py", ""),
        ("torchrun -m package.train --lr 3", "module", "package.train", "--lr 3"),
        ("torchrun -mr3 package.train", "module", "package.train", ""),
        ("torchrun --run-path --no-python /t.py", "file", "/t.py", ""),
        ("python -m torch.distributed.run --nproc-per-node=8 t.py a", "file", "t.py", "a"),
        ("python -X dev -W error -OB -u -m torch.distributed.run -m t a", "module", "t", "a"),
        ("python -mtorch.distributed.run t.py", "file", "t.py", ""),
        ("python3 -m torch.distributed.launch --use-env t.py", "file", "t.py", ""),
        ("python3 -m torch.distributed.launch t.py -x", "file", "t.py", "--local-rank=1 -x"),
        ("python -m torch.distributed.launch -m t", "module", "t", "--local-rank=1"),
        ("torchrun t.py --device ${local_rank} $local_rank $other $$", "file", "t.py",
         "--device 1 1 $other $"),
        ("deepspeed --num_gpus 8 t.py --ds c.json", "file", "t.py", "--local_rank=1 --ds c.json"),
        ("deepspeed --no_local_rank --module t a", "module", "t", "a"),
        ("python -m deepspeed.launcher.runner --master_port 1 t.py", "file", "t.py", "--local_rank=1"),
    ],
)  # fmt: skip
def test_commands_that_start_warm(words: str, kind: str, target: str, arguments: str) -> None:
    start = parse(words.split()).for_rank(1)
    assert (start.kind, start.target, " ".join(start.arguments)) == (kind, target, arguments)


@pytest.mark.parametrize(
    ("words", "cold"),
    [
        ("bash -c true", "bash -c true"),
        ("python -c pass", "python -c pass"),
        ("python -uc pass", "python -uc pass"),
        ("python", "python"),
        ("python -m", "python -m"),
        ("python --version", "python --version"),
        ("python -O train.py", "python -O train.py"),
        ("python -X dev train.py", "python -X dev train.py"),
        ("python -Wd train.py", "python -Wd train.py"),
        ("python -", "python -"),
        ("python2 train.py", "python2 train.py"),
        ("pythonic train.py", "pythonic train.py"),
        ("torchrun --no-python ./train --lr 3", "./train --lr 3"),
        ("torchrun --no-python ./train $local_rank", "./train 1"),
        ("torchrun --help", "torchrun --help"),
        ("torchrun --he --nonsense", "torchrun --he --nonsense"),
        ("env A=b torchrun t.py", "env A=b torchrun t.py"),
        ("accelerate launch t.py", "accelerate launch t.py"),
    ],
)
def test_commands_that_start_cold(words: str, cold: str) -> None:
    start = parse(words.split()).for_rank(1)
    assert not start.warm
    assert " ".join(start.argv) == cold


@pytest.mark.parametrize("words", ["torchrun --nproc=2 --later 3 t.py -v", "deepspeed --later=3 t.py"])
def test_a_launcher_with_unknown_options_starts_cold(words: str) -> None:
    start = parse(words.split(), {}, 1).for_rank(0)
    assert (" ".join(start.argv), start.warm, start.refusal) == (words, False, "")


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("torchrun", "torchrun: error: the following arguments are required: training_script"),
        ("torchrun --nproc-per-node", "error: argument --nproc-per-node/--nproc_per_node: expected one"),
        ("torchrun --n 2 t.py", "torchrun: error: ambiguous option: --n could match --nnodes, "),
        ("torchrun --max-restarts x t.py", "argument --max-restarts/--max_restarts: invalid int value: 'x'"),
        ("torchrun --start-method x t.py", "invalid choice: 'x'"),
        ("torchrun --standalone=1 t.py", "argument --standalone: ignored explicit argument '1'"),
        ("torchrun --later=2 t.py", "Convoy does not know the torchrun option --later=2, so it cannot start"),
        ("deepspeed --later 2 t.py", "set processesPerReplica to 1 and --num_gpus to 4, so that deepspeed"),
        ("torchrun --nnodes 2:1 t.py", "got min_nodes=2, max_nodes=1"),
        ("torchrun --nnodes 1:2:3 t.py", 'nnodes=1:2:3 is not in "MIN:MAX" format'),
        ("torchrun --nnodes two t.py", "invalid literal for int"),
        ("torchrun --no-python -m t", "Don't use both the '--no-python' flag and the '--module' flag"),
        ("python -m torch.distributed.launch --no-python ./t", "you must also set the '--use-env' flag"),
        ("torchrun --nproc-per-node=2 t.py", "but processesPerReplica is 4: set it to 2"),
        ("torchrun --nproc 0 t.py", "torchrun --nproc-per-node=0: set it to 1 or more"),
        ("deepspeed --num_gpus=2 t.py", "deepspeed --num_gpus=2, but processesPerReplica is 4"),
        ("deepspeed --num_gpu x t.py", "argument --num_gpus/--num_accelerators: invalid int value: 'x'"),
        ("deepspeed -i localhost:0 t.py", "deepspeed: error: argument --include"),
    ],
)  # fmt: skip
def test_arguments_that_the_launcher_rejects_are_reported(words: str, refusal: str) -> None:
    start = parse(words.split(), {}, 4)
    assert not start.warm
    assert refusal in start.refusal


@pytest.mark.parametrize(
    "words",
    ["torchrun --nproc-per-node=4 t.py", "torchrun --nproc_per_node gpu t.py", "torchrun t.py --nproc=8",
     "python t.py --nproc-per-node=8", "torchrun t.py", "deepspeed t.py", "deepspeed --num_gpus 4 t.py"],
)  # fmt: skip
def test_a_number_of_processes_equal_to_the_pods_is_accepted(words: str) -> None:
    assert parse(words.split(), {}, 4).refusal == ""


def test_torchrun_reads_its_defaults_from_the_containers_variables() -> None:
    start = parse(["torchrun", "pkg"], {"PET_MODULE": "1", "PET_NPROC_PER_NODE": "2", "PYTHON_EXEC": "/x"}, 2)
    assert (start.kind, start.argv, start.refusal) == ("module", ("/x", "-m", "pkg"), "")
    assert "processesPerReplica is 1" in parse(["torchrun", "t"], {"PET_NPROC_PER_NODE": "2"}, 1).refusal
    assert "PET_STANDALONE=yes" in parse(["torchrun", "t"], {"PET_STANDALONE": "yes"}).refusal


def test_torchrun_runs_under_the_python_beside_it() -> None:
    assert parse(["/opt/venv/bin/torchrun", "t.py"]).argv == ("/opt/venv/bin/python", "t.py")
    assert parse(["torchrun", "t.py"]).argv == ("python", "t.py")
    assert parse(["/usr/bin/python3", "-m", "torch.distributed.run", "t"]).argv == ("/usr/bin/python3", "t")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("#!/opt/conda/bin/python3.12\nimport re\n", "/opt/conda/bin/python3.12"),
        ("#!/usr/bin/env python3\n", "python3"),
        ("#!/usr/bin/python3 -sP\n", "/usr/bin/python3"),
        ("#!/bin/sh\n'''exec' /deep/bin/python \"$0\" \"$@\"\n' '''\nimport re\n", "/deep/bin/python"),
        ("#!/bin/sh\n'''exec' \"/a b/bin/python\" \"$0\" \"$@\"\n' '''\n", "/a b/bin/python"),
        ("#!/bin/sh\nexec something\n", ""),
        ("#!it's no program\n", ""),
        ("\x7fELF", ""),
    ],
)
def test_the_interpreter_of_an_installed_launcher(tmp_path: Path, lines: str, found: str) -> None:
    program = tmp_path / "torchrun"
    program.write_text(lines)
    program.chmod(0o755)
    assert interpreter("torchrun", str(tmp_path)) == interpreter(str(program), "") == found
    assert interpreter("torchrun", str(tmp_path / "elsewhere")) == ""


@pytest.fixture
def folders(tmp_path: Path) -> str:
    """A PATH of two folders. `tool` is not executable in the first and executable in the second."""
    for name, mode in (("one", 0o644), ("two", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").touch()
        (tmp_path / name / "tool").chmod(mode)
    return f"{tmp_path / 'one'}:{tmp_path / 'two'}"


def test_the_first_executable_on_path_is_used(folders: str) -> None:
    assert resolve("tool", folders) == folders.split(":")[1] + "/tool"
    assert resolve(folders.split(":")[1] + "/tool", "") == folders.split(":")[1] + "/tool"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [("absent", 127, "absent: command not found on PATH="), ("{one}/absent", 127, "command not found"),
     ("{one}/tool", 126, "is not an executable file"), ("{one}", 126, "is not an executable file")],
)  # fmt: skip
def test_a_command_that_cannot_run_is_reported_with_a_reason(
    folders: str, name: str, code: int, words: str
) -> None:
    with pytest.raises(CommandError, match=words) as error:
        resolve(name.format(one=folders.split(":", maxsplit=1)[0]), folders)
    assert error.value.exit_code == code


def test_a_command_found_only_without_execute_mode_is_reported(folders: str) -> None:
    with pytest.raises(CommandError, match="is not an executable file") as error:
        resolve("tool", folders.split(":", maxsplit=1)[0])
    assert error.value.exit_code == 126
