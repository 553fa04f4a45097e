"""Tests of the check of a job's commands, which runs before any pod exists. The commands must form one
process group over all pods.
"""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_controllers.launching.calls import MAX_DEPTH, calls
from convoy_controllers.launching.groups import Pods, problem
from convoy_controllers.launching.jobs import misfits
from convoy_controllers.launching.shell import UNKNOWN, commands, script_of
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.launcher.command import parse

TWO = Pods(2, 2)


def why(command: str | list[str], pods: Pods = TWO, **environment: str) -> str:
    """Return the problem of a command, given as words or as a shell script; empty if there is none."""
    words = ["bash", "-c", command] if isinstance(command, str) else command
    found = problem(words, environment, pods)
    return found.why if found else ""


ONE_GROUP = [
    "torchrun train.py",
    "set -e; echo preparing; torchrun --nproc-per-node=1 /scripts/world.py",
    "torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT t",
    "torchrun --nnodes=2 --node-rank=${RANK} --rdzv-endpoint $MASTER_ADDR:29400 --rdzv-backend c10d t.py",
    "torchrun --nnodes=1:4 --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT t.py",
    "torchrun --nnodes 2 train.py --standalone",
    "torchrun $OPTIONS train.py",
    "cd /src && exec torchrun --nproc-per-node=8 -m train 2>&1 | tee log",
    "python train.py",
    "python -m torch.distributed.run --nproc_per_node=gpu t.py",
    # It depends on the run which of these commands the shell starts, so no problem is certain.
    "if [ -n \"$X\" ]; then torchrun --standalone t.py; else torchrun t.py; fi",
    "torchrun t.py || torchrun --standalone t.py",
    "for i in 1 2; do torchrun --standalone t.py; done",
    "cat > run.sh <<EOF\ntorchrun --standalone t.py\nEOF\nbash run.sh",
    "f() { torchrun --standalone t.py; }; f",
    "eval \"$CMD\"; torchrun --standalone t.py",
    # These scripts mention a launcher but do not start it.
    "echo torchrun --standalone t.py",
    "# torchrun --standalone t.py\npython t.py",
    "which deepspeed mpirun; pip install deepspeed accelerate; timeout 9 which torchrun; python t.py",
    "python 'torchrun --standalone'",
    "exit 0; torchrun --standalone t.py",
    # The first of the two calls may only prepare something in each pod, so the script is accepted.
    "torchrun --standalone prepare.py && torchrun train.py",
    "mpirun -np 4 ./tokenize && torchrun train.py",
    # accelerate reads the variables of torchrun, which Convoy sets.
    "accelerate launch --num_processes 4 --mixed_precision bf16 t.py",
    "accelerate launch --config_file c.yaml --num_machines 1 t.py --num_machines 4",
    "accelerate launch --num_machines 2 --machine_rank $RANK --main_process_ip $MASTER_ADDR t.py",
    # These commands name the hosts, start one process only, or take the number of processes from a variable.
    # So no problem is certain.
    "deepspeed --hostfile /hosts --no_ssh --node_rank $RANK --master_addr $MASTER_ADDR t.py",
    "mpirun -np 1 python t.py",
    "mpirun --hostfile /hosts -np 16 python t.py",
    "mpirun -np $N python t.py",
    # The shell or the launcher rejects these commands as soon as they start.
    "torchrun --standalone 't.py",
    "torchrun --no-such-option=1 t.py",
]  # fmt: skip


@pytest.mark.parametrize("script", ONE_GROUP)
def test_possibly_correct_command_is_accepted(script: str) -> None:
    assert why(script) == ""


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("torchrun --standalone t.py", "torchrun --standalone trains alone in each of the 2 pods"),
        ("torchrun --stand --nproc-per-node=2 t.py; echo done", "--standalone trains alone"),
        ("source /venv/bin/activate && torchrun --standalone t.py", "--standalone trains alone"),
        ("set -euo pipefail\nexport A=b\nexec \\\n  torchrun \\\n  --standalone t.py", "--standalone trains"),
        ("torchrun --standalone t.py > log 2>&1 || exit 3", "--standalone trains alone"),
        ("PET_STANDALONE=1 torchrun t.py", "--standalone trains alone"),
        ("env A=b timeout -k 5 1h nice -n 10 torchrun --standalone t.py", "--standalone trains alone"),
        ("poetry run torchrun --standalone t.py", "--standalone trains alone"),
        ("conda run -n env --no-capture-output torchrun --standalone t.py", "--standalone trains alone"),
        ("nsys profile -o out -t cuda,nvtx torchrun --standalone t.py", "--standalone trains alone"),
        ("stdbuf -oL numactl --cpunodebind=0 /opt/bin/torchrun --standalone t", "--standalone trains alone"),
        ("bash -lc 'torchrun --standalone t.py'", "--standalone trains alone"),
        ("( torchrun --standalone t.py ) & wait", "--standalone trains alone"),
        ("python -u -m torch.distributed.run --standalone t.py", "--standalone trains alone"),
        ("python3 -m torch.distributed.launch --nnodes=1 t.py", "--nnodes=1 trains alone"),
        ("python prepare.py && torchrun --nnodes 1:1 t.py", "--nnodes=1:1 trains alone"),
        ("torchrun --nnodes=4 t.py", "torchrun --nnodes=4, but the job has 2 pods"),
        ("torchrun --nnodes=3:4 t.py", "torchrun --nnodes=3:4, but the job has 2 pods"),
        ("torchrun --node-rank=0 t.py", "torchrun --node-rank=0 is the same in all 2 pods"),
        ("torchrun --master-addr localhost t.py", "--master-addr=localhost is a different host in each pod"),
        ("torchrun --master-addr=127.0.0.1 t.py", "--master-addr=127.0.0.1 is a different host"),
        ("torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:29400 t", "--rdzv-endpoint=localhost:29400"),
        ("torchrun --rdzv-backend=c10d --rdzv-endpoint=[::1]:0 t", "--rdzv-endpoint=[::1]:0 is a different"),
        ("torchrun --rdzv-backend=c10d t", "--rdzv-backend=c10d needs --rdzv-endpoint to meet in one pod"),
        ("torchrun --standalone a.py; torchrun --nnodes=1 b.py", "--nnodes=1 trains alone"),
        ("accelerate launch --num_machines=4 t", "accelerate launch --num_machines=4, but the job"),
        ("accelerate launch --num-machines 2 --machine-rank 0 t.py", "--machine_rank=0 is the same"),
        ("accelerate-launch --num_machines 2 --main_process_ip 127.0.0.1 t", "--main_process_ip=127.0.0.1"),
        ("python -m accelerate.commands.launch --num_machines 3 t.py", "accelerate launch --num_machines=3"),
        ("deepspeed --num_gpus 8 t.py --deepspeed c.json", "deepspeed trains alone in each of the 2 pods: m"),
        ("mpirun -np 8 python t.py", "mpirun trains alone in each of the 2 pods: start the program itself"),
        ("/usr/bin/mpiexec python t.py", "mpiexec trains alone"),
        ("horovodrun -np 4 python t.py", "horovodrun trains alone"),
    ],
)  # fmt: skip
def test_command_that_splits_the_process_group_is_named(script: str, words: str) -> None:
    assert words in why(script)
    assert why(script, Pods(1, 1)) == "", "a single pod is a group"
    assert "set processesPerReplica to 1" in why(script, Pods(1, 1, processes=4))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("torchrun --standalone t.py", ""),
        ("torchrun --nnodes=1 t.py", ""),
        ("torchrun --nnodes=2 --node-rank=0 --master-addr=localhost t.py", ""),
        ("torchrun --nnodes=1:4 t.py", ""),
        ("torchrun --nnodes=4 t.py", "torchrun --nnodes=4, but the job has 2 pods"),
        ("torchrun --nnodes=$(NODES) t.py", ""),
        ("torchrun --nproc-per-node=2 t.py", "torchrun --nproc-per-node=2, but processesPerReplica is 1"),
        ("torchrun --nproc-per-node=$(N) --max-restarts=$(R) t.py", ""),
        ("torchrun --start-method=$(METHOD) t.py", ""),
        (
            "torchrun --nproc-per-node=$(FOUR) t.py",
            "torchrun --nproc-per-node=4, but processesPerReplica is 1",
        ),
        (
            "torchrun --max-restarts=x t.py",
            "torchrun: error: argument --max-restarts/--max_restarts: invalid int",
        ),
        ("torchrun --later=x --nproc-per-node=2 t.py", ""),
        ("torchrun --later 2 --standalone t.py", ""),
        ("torchrun --standalone --later 2 t.py", "torchrun --standalone trains alone"),
        ("torchrun --nnodes=1 --later t.py", "torchrun --nnodes=1 trains alone"),
        ("torchrun --rdzv-backend=c10d --later 2 --rdzv-endpoint=$(E) t.py", ""),
        ("torchrun --later --max-restarts=x t.py", "torchrun: error: argument --max-restarts"),
        ("torchrun --later", "torchrun: error: the following arguments are required"),
        ("torchrun --help", ""),
        ("python -m torch.distributed.launch --nproc 2 t.py", "torchrun --nproc-per-node=2, but"),
        ("deepspeed --num_gpus=2 t.py", "deepspeed --num_gpus=2, but processesPerReplica is 1: set it to 2"),
        ("deepspeed --num_nodes=4 t.py", "deepspeed --num_nodes=4, but the job has 2 pods"),
        ("deepspeed t.py", ""),
        ("deepspeed --later t.py", "deepspeed --later trains alone in each of the 2 pods: remove the option"),
        ("env A=b torchrun --standalone t.py", "torchrun --standalone trains alone"),
        (
            "accelerate launch --num_machines=3 t.py",
            "accelerate launch --num_machines=3, but the job has 2 pods",
        ),
        ("accelerate launch t.py", ""),
        ("mpirun -np 2 python t.py", "mpirun trains alone"),
        ("python torchrun.py --standalone", ""),
        ("python -c pass", ""),
        ("./train.sh", ""),
        ("bash train.sh -c torchrun", ""),
    ],
)
def test_launcher_as_the_command_is_checked(words: str, found: str) -> None:
    found_problem = why(words.split(), FOUR="4")
    assert found_problem.startswith(found) and bool(found_problem) == bool(found)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("torchrun --nproc-per-node=gpu t.py", "torchrun --nproc-per-node=gpu means 8 here, but"),
        ("torchrun --nproc-per-node=auto t.py", "torchrun --nproc-per-node=auto means 8 here, but"),
        ("torchrun --nproc-per-node=cpu t.py", ""),
        ("torchrun t.py", ""),
        ("deepspeed t.py", "deepspeed starts 8 processes, one for each GPU of the pod, but"),
    ],
)
def test_launcher_with_a_gpu_count_is_checked(words: str, found: str) -> None:
    found_problem = why(words.split(), Pods(1, 1, gpus=8))
    assert found_problem.startswith(found) and found_problem.endswith("set it to 8" if found else "")
    assert why(words.split(), Pods(1, 1, processes=8, gpus=8)) == ""


def job(*roles: dict[str, Any], **container: Any) -> TrainingJob:
    """Return a job with these roles. Each role gives its command, and may give its name and replicas.
    `container` has further fields of every container.
    """
    made = []
    for role in roles:
        words = {"name": "worker", "image": "mine", "command": role.pop("command"), **container}
        made.append({"name": "worker", **role, "template": {"spec": {"containers": [words]}}})
    return make_job(roles=made, engine=None)


def test_role_is_named_by_its_field_path() -> None:
    alone = ["bash", "-c", "torchrun --standalone t.py"]
    (found,) = misfits(job({"replicas": 2, "command": alone}), None)
    assert found.path == "spec.roles[0].template.spec.containers[0].command" and not found.refused
    (found,) = misfits(job({"replicas": 2, "command": alone[:2]}, args=alone[2:]), None)
    assert found.path == "spec.roles[0].template.spec.containers[0].args"
    (found,) = misfits(job({"replicas": 1, "command": ["torchrun", "--nnodes=two", "t"]}), None)
    assert found.refused
    assert str(found).startswith(f"{found.path}: torchrun: error: argument --nnodes")


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_unknown_launcher_option_needs_one_process_per_replica(launcher: str) -> None:
    role = {"replicas": 1, "command": [launcher, "--later=1", "t.py"]}
    assert not tuple(misfits(job(role.copy()), None))
    (found,) = misfits(job({**role, "processesPerReplica": 4}), None)
    assert f"does not know the {launcher} option --later=1" in found.why and "to 1 and --n" in found.why
    assert not found.refused


def test_roles_with_the_same_command_are_one_group() -> None:
    alone, others = ["bash", "-c", "torchrun --standalone t.py"], ["python", "actor.py"]
    chief = {"name": "chief", "replicas": 1, "command": alone}
    assert len(tuple(misfits(job(chief, {"replicas": 1, "command": alone}), None))) == 2
    chief["command"] = alone
    assert not tuple(misfits(job(chief, {"replicas": 4, "command": others}), None)), "it may be meant so"
    nodes = [["torchrun", "--nnodes=5", "a.py"], ["torchrun", "--nnodes=5", "b.py"]]
    roles = [{"name": f"r{n}", "replicas": 4 - 3 * n, "command": words} for n, words in enumerate(nodes)]
    assert not tuple(misfits(job(*roles), None))


def test_variables_and_limits_of_the_container_are_considered() -> None:
    env = [
        {"name": "PET_STANDALONE", "value": "1"},
        {"name": "S", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
    ]
    shell = {"replicas": 2, "command": ["sh", "-c", "torchrun t.py"]}
    (found,) = misfits(job(shell, env=env), None)
    assert "--standalone" in found.why
    overridden = [{"name": "PET_NNODES", "value": "1"}, {"name": "PET_NODE_RANK", "value": "0"}]
    assert not tuple(misfits(job({**shell, "command": ["sh", "-c", "torchrun t.py"]}, env=overridden), None))
    limits = {"limits": {"nvidia.com/gpu": 4, "cpu": "2"}}
    gpus = {"replicas": 1, "command": ["torchrun", "--nproc-per-node=gpu", "t.py"]}
    (found,) = misfits(job(gpus, resources=limits), None)
    assert "means 4 here" in found.why


def test_an_engine_brings_its_own_command() -> None:
    engine = make_engine()
    assert not tuple(misfits(make_job(), engine))
    assert not tuple(misfits(make_job(), None))


@pytest.mark.parametrize(
    ("option", "reason"), [("--nproc-per-node=2", "SplitGroup"), ("--max-restarts=x", "InvalidSpec")]
)
def test_job_with_a_misfitting_command_has_no_pods(option: str, reason: str) -> None:
    cluster = ToyCluster(job({"replicas": 1, "command": ["torchrun", option, "t.py"]})).settle()
    assert cluster.condition["Valid"] == ("False", reason)
    assert not cluster.pods
    assert cluster.job.status.message.startswith(
        "spec.roles[0].template.spec.containers[0].command: torchrun"
    )


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("a 'b c' \"d e\" f\\ g", [("a", "b c", "d e", "f g")]),
        ("a;b&&c|d&e\nf", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",)]),
        ("a $X \"${Y:-z}\" '$Z' $(b; c) `d` $1 $ x$", [
            ("a", UNKNOWN, UNKNOWN, "$Z", UNKNOWN, UNKNOWN, UNKNOWN, "$", "x$")]),
        ("a \"b\\\"c\\$d\\e\" # f", [("a", "b\"c$d\\e")]),
        ("a#b; # c;d\ne", [("a#b",), ("e",)]),
        ("a > b 2>&1 <c 2>/dev/null d &>f <<< g", [("a", "d")]),
        ("a \\\n b", [("a", "b")]),
        ("(a; b) | { c; }", [("a",), ("b",), ("c",)]),
        ("a || b; c", [("a",), ("c",)]),
        ("! a; time b", [("a",), ("b",)]),
        ("a; exit 1; b", [("a",), ("exit", "1")]),
        ("a ''", [("a", "")]),
        ("a 'b", []), ('a "b', []), ("a $(b", []), ("a `b", []), ("a <<E\nb\nE", []), ("x=(a b)", []),
        ("if a; then b; fi", []), ("", []),
    ],
)  # fmt: skip
def test_commands_of_a_script(script: str, found: list[tuple[str, ...]]) -> None:
    assert list(commands(script)) == found


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["bash", "-c", "x"], "x"), (["/bin/sh", "-ec", "x", "arg0"], "x"),
        (["bash", "-euo", "pipefail", "-c", "x"], "x"),
        (["bash", "--norc", "-lc", "x"], "x"), (["bash", "-c", "-e", "x"], "x"),
        (["bash", "--rcfile", "f", "-c", "x"], "x"),
        (["bash", "+x", "-c", "--", "x"], "x"), (["bash", "x.sh", "-c", "y"], None), (["bash", "-c"], None),
        (["bash"], None), (["python", "-c", "x"], None), ([], None),
    ],
)  # fmt: skip
def test_script_of_a_shell(words: list[str], script: str | None) -> None:
    assert script_of(words) == script


def test_shells_in_shells_are_read_to_a_depth() -> None:
    assert list(calls(["env", "-i", "A=b", "--", "bash", "-c", "torchrun t.py"]))
    command, found = ["torchrun", "t.py"], []
    for _ in range(MAX_DEPTH + 2):
        found.append(len(list(calls(command))))
        command = ["bash", "-c", shlex.join(command)]
    assert found == [1] * (MAX_DEPTH + 1) + [0]


PIECES = st.sampled_from(
    ["torchrun", "--standalone", "--nnodes", "--nnodes=", "--nnodes=--", "--nnodes=1:2:3", "x", "--", "-",
     "-m", "", "deepspeed", "--num_gpus", "99999999999999999999", "accelerate", "launch", "--num_machines",
     "mpirun", "-np", "bash", "-c", "torchrun --x 'y", "a$(b", "$(N)", "$", "\\", "'", '"', "<<E", "&&", "||",
     "(", ")", "#", "`", "env", "A=b", "conda", "run", "poetry", "python", "-X", "-mtorch.distributed.run",
     "-h", "\n", "\0", "\u0663"]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(
    words=st.lists(st.one_of(PIECES, st.lists(PIECES, max_size=6).map(" ".join)), max_size=8),
    value=PIECES,
    pods=st.builds(Pods, st.integers(1, 3), st.integers(3, 4), st.integers(1, 2), st.sampled_from([0, 8])),
)
def test_random_commands_do_not_crash_the_check(words: list[str], value: str, pods: Pods) -> None:
    found = problem(words, {"N": value, "PET_NNODES": value, "PET_STANDALONE": value}, pods)
    assert found is None or found.why
    parse(words, {"PET_NNODES": value, "PET_STANDALONE": value}, 2).for_rank(1)
