from __future__ import annotations

import subprocess
import sys

import pytest

from convoy_workloads.launcher.stacks import frames, main_block, main_line

HEAD = "step 12 loss 0.4\nFatal Python error: Aborted\n\n"
WORKER = (
    "Thread 0x00007f03a797c6c0{name} (most recent call first):\n"
    '  File "/usr/lib/python3.11/threading.py", line 320 in wait\n'
    '  File "/scripts/loader.py", line 4 in worker\n\n'
)
MAIN = (
    "{who} 0x00007f03a8a73b80{name} (most recent call first):\n"
    '  File "/usr/local/lib/python3.11/site-packages/torch/distributed/c10d.py", line 2806 in all_reduce\n'
    '  File "/scripts/my model.py", line 7 in evaluate\n'
    '  File "/scripts/train.py", line 10 in <module>\n'
)
SHUTDOWN = (
    "Current thread 0x00007f03a8a73b80 (most recent call first):\n"
    '  File "/usr/lib/python3.13/threading.py", line 1535 in _shutdown\n'
)
EXTENSIONS = "\nExtension modules: numpy.core._multiarray_umath, torch._C (total: 2)\n"
OWN = (
    "its main thread is at /scripts/my model.py:7 in evaluate "
    "(in /usr/local/lib/python3.11/site-packages/torch/distributed/c10d.py:2806 in all_reduce)"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            HEAD + WORKER.format(name="") + MAIN.format(who="Current thread", name=""), OWN, id="3.9"
        ),
        pytest.param(
            HEAD + WORKER.format(name="") + MAIN.format(who="Current thread", name="") + EXTENSIONS,
            OWN,
            id="3.10",
        ),
        pytest.param(
            HEAD
            + WORKER.format(name="").replace("Thread", "Current thread")
            + MAIN.format(who="Thread", name="")
            + EXTENSIONS,
            OWN,
            id="another thread got the signal",
        ),
        pytest.param(
            HEAD
            + WORKER.format(name=" [loader]")
            + MAIN.format(who="Current thread", name=" [python]")
            + "\nCurrent thread's C stack trace (most recent call first):\n"
            + '  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x31 [0x5a]\n'
            + EXTENSIONS,
            OWN,
            id="3.14",
        ),
        pytest.param(
            HEAD + WORKER.format(name="") + SHUTDOWN,
            "its main thread is at /usr/lib/python3.13/threading.py:1535 in _shutdown",
            id="the interpreter's own end",
        ),
        pytest.param(
            HEAD + MAIN.format(who="Current thread", name="") + "\n" + WORKER.format(name="") * 99 + "...\n",
            OWN,
            id="more than 100 threads, the main one among those printed",
        ),
        pytest.param(HEAD + WORKER.format(name="") * 100 + "...\n", "", id="more than 100 threads"),
        pytest.param(HEAD + WORKER.format(name=""), None, id="cut short"),
        pytest.param(
            HEAD + "Thread 0x00007f (most recent call first):\n  <no Python frame>\n", "", id="none"
        ),
        pytest.param(
            HEAD + WORKER.format(name="") + HEAD + MAIN.format(who="Current thread", name=""), OWN, id="twice"
        ),
        pytest.param(HEAD, "", id="no stack"),
        pytest.param('File "/scripts/train.py", line 10 in <module>', "", id="no dump"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_the_main_thread_s_line_is_found_in_every_format(text: str, line: str | None) -> None:
    if line is not None:
        assert main_line(text) == line
    else:
        assert main_line(text).startswith("its main thread is at /scripts/loader.py:4")


def test_a_dump_of_this_interpreter_is_read() -> None:
    source = (
        "import faulthandler, os, signal, threading\n"
        "faulthandler.enable()\n"
        "ready = threading.Event()\n"
        "def other():\n    ready.set(); threading.Event().wait()\n"
        "def evaluate():\n    os.kill(os.getpid(), signal.SIGABRT)\n"
        "threading.Thread(target=other, daemon=True).start(); ready.wait()\n"
        "evaluate()\n"
    )
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert run.returncode == -6
    assert [frame.function for frame in frames(main_block(run.stderr))] == ["evaluate", "<module>"]
    assert main_line(run.stderr) == "its main thread is at <string>:7 in evaluate"
