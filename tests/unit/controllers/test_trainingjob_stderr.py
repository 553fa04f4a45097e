"""Tests of reading the end of a rank's stderr: the error, a lost peer, and the place of the main thread."""

from __future__ import annotations

import pytest

from convoy_controllers.workers.stderr import gist, lost_peer, main_thread, timed_out, waits_for_others
from convoy_workloads.launcher import stacks

TRACEBACK = "Traceback (most recent call last):\n  File 'train.py', line 9, in <module>\n    step()\n"
CLOSED = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[10.0.0.7]:20905. This is typically caused by a remote worker crashing."
)
RESET = CLOSED.replace("Connection closed by peer", "Read error [10.0.0.7]:20905: Connection reset by peer")
WATCHDOG = (
    "[rank0]:[E1125 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 milliseconds before "
    "timing out.\nterminate called after throwing an instance of 'c10::DistBackendError'\n"
    "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated\n"
)
WARNING = (
    "[W1125 10:00:00.1 socket.cpp:767] [c10d] The client socket has failed to connect to [node]:29500 (errno "
    "111 - Connection refused)."
)
DUMP = """Fatal Python error: Aborted

Thread 0x00007fa85cb296c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007fa87ea4fb80 (most recent call first):
  File "{file}", line 31 in {function}
  File "train.py", line 70 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 13)
"""
IN_A_COLLECTIVE = DUMP.format(file="/site/torch/distributed/distributed_c10d.py", function="all_reduce")
ELSEWHERE = DUMP.format(file="/app/data.py", function="fetch")


@pytest.mark.parametrize(
    "stderr",
    [
        TRACEBACK + CLOSED,
        TRACEBACK + RESET,
        TRACEBACK + RESET + "\nterminate called without an active exception\n" + IN_A_COLLECTIVE,
        "\n".join(f"[rank0]: {line}" for line in (TRACEBACK + CLOSED).splitlines()),
        TRACEBACK + "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely "
        "closed. Did the remote server shutdown or crash?",
        TRACEBACK + "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu",
        TRACEBACK + "RuntimeError: Broken pipe",
        TRACEBACK + "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        TRACEBACK + "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        TRACEBACK + "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
        "the C10d store has failed. See inner exception for details.",
        TRACEBACK + "RuntimeError: Timed out waiting 1800000ms for recv operation to complete",
        TRACEBACK + "RuntimeError: Application timeout caused pair closure",
        TRACEBACK + "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:3690, remote "
        "process exited or there was a network error, NCCL version 2.27.5\nncclRemoteError: A call failed "
        "possibly due to a network error or a remote process exiting prematurely.\nLast error:\nrefused",
        TRACEBACK + CLOSED + "\n\nThe above exception was the direct cause of the following exception:\n\n"
        + TRACEBACK + "trainer.errors.TrainingFailedError: rank 0 failed",
        TRACEBACK + CLOSED + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + TRACEBACK + "KeyError: 'loss'",
        "ERROR:trainer:failed: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:20905",
        WATCHDOG,
        WATCHDOG + IN_A_COLLECTIVE,
    ],
)  # fmt: skip
def test_stderr_of_a_lost_peer(stderr: str) -> None:
    assert lost_peer(stderr)


@pytest.mark.parametrize(
    "stderr",
    [
        "",
        "step 30 loss 2.4",
        TRACEBACK + "ValueError: boom",
        # The program failed to reach another server or to use a port, which is no lost peer.
        TRACEBACK + "ConnectionRefusedError: [Errno 111] Connection refused",
        TRACEBACK + "ConnectionResetError: [Errno 104] Connection reset by peer",
        TRACEBACK + "requests.exceptions.ConnectionError: timed out after 3 s",
        TRACEBACK
        + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        TRACEBACK + "RuntimeError: CUDA error: device-side assert triggered",
        TRACEBACK + "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.",
        # c10d warns about each attempt to connect, but the error is another one.
        f"{WARNING}\n{TRACEBACK}ValueError: boom",
        f"{WARNING}\nno config",
        # The program caught the error about the peer, and ended later because of another error.
        TRACEBACK + CLOSED + "\nretrying\n" + TRACEBACK + "ValueError: boom",
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n"
        '  File "train.py", line 3 in f\n',
    ],
)
def test_stderr_of_an_error_of_the_rank_itself(stderr: str) -> None:
    assert not lost_peer(stderr) and not timed_out(stderr)


def test_timeout_of_a_peer_may_be_a_hang() -> None:
    assert timed_out(WATCHDOG)
    assert timed_out(TRACEBACK + "RuntimeError: Timed out waiting 1800000ms for recv operation to complete")
    assert not timed_out(TRACEBACK + CLOSED)


@pytest.mark.parametrize(
    ("stderr", "text"),
    [
        (TRACEBACK + "ValueError: boom\n" + ELSEWHERE, "ValueError: boom"),
        (TRACEBACK + "ValueError: boom\nterminate called without an active exception\n", "ValueError: boom"),
        ("step 3\n" + ELSEWHERE, "Fatal Python error: Aborted at /app/data.py:31 in fetch"),
        (ELSEWHERE, "Fatal Python error: Aborted at /app/data.py:31 in fetch"),
        ("terminate called without an active exception", "terminate called without an active exception"),
    ],
)
def test_gist_omits_output_of_runtimes_after_an_error(stderr: str, text: str) -> None:
    assert gist(stderr) == text


@pytest.mark.parametrize(
    ("stderr", "place", "waits"),
    [
        ("", "", None),
        ("no step for 12 s after step 30", "", None),
        (IN_A_COLLECTIVE, "/site/torch/distributed/distributed_c10d.py:31 in all_reduce", True),
        (ELSEWHERE, "/app/data.py:31 in fetch", False),
        (DUMP.format(file="/s/torch/autograd/graph.py", function="_engine_run_backward"),
         "/s/torch/autograd/graph.py:31 in _engine_run_backward", True),
        ("no step for 9 s after step 30; its main thread is at /app/data.py:7 in fetch\n" + ELSEWHERE,
         "/app/data.py:7 in fetch", False),
        # The launcher names the line of the program, and the function that is called in this line.
        ("no step for 9 s; its main thread is at /a.py:70 in main (in /s/torch/distributed/x.py:9 in wait)",
         "/a.py:70 in main (in /s/torch/distributed/x.py:9 in wait)", True),
        ("no step for 9 s; its main thread is at /app/train.py:70 in <module>\n" + IN_A_COLLECTIVE,
         "/app/train.py:70 in <module>", True),
        ("has not ended 9 s after its last step; its main thread is at /a.py:7 in f (in /queue.py:9 in get)",
         "/a.py:7 in f (in /queue.py:9 in get)", False),
        # The start of the dump is missing, so it is not known whether this is the stack of the main thread.
        ('  File "/app/data.py", line 31 in fetch\n', "", None),
    ],
)  # fmt: skip
def test_place_of_the_main_thread_of_a_hung_rank(stderr: str, place: str, waits: bool | None) -> None:
    assert (main_thread(stderr), waits_for_others(stderr)) == (place, waits)


@pytest.mark.parametrize(("dump", "waits"), [(IN_A_COLLECTIVE, True), (ELSEWHERE, False)])
def test_stack_lines_of_the_launcher_are_parsed(dump: str, waits: bool) -> None:
    text = f"no step for 9 s after step 30; {stacks.main_line(dump)}"
    assert main_thread(text) and text.endswith(main_thread(text))
    assert waits_for_others(text) is waits
    block = "\n".join(stacks.main_block(dump))
    assert waits_for_others(f"no step for 9 s after step 30\n{block}") is waits
