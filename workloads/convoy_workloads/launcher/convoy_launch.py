"""Entry of the container, `python3 -I -S -X utf8 /var/run/convoy/lib/convoy_launch.py`, and of its zygote
(`--zygote`).

Runs from the folder that the agent mounts, where it lies beside the packages, and from the source tree. Any
Python 3 can parse this file, so one that is too old or incomplete is named instead of failing somewhere.
"""
# ruff: noqa: PLC0415, PTH100, PTH112, PTH118, PTH120, PTH123, UP031 - runs under any Python 3

import os
import sys

MYPY = False
if MYPY:  # old Pythons have no `typing`
    from convoy_workloads.launcher.program import Program

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = (
    HERE if os.path.isdir(os.path.join(HERE, "convoy_workloads")) else os.path.dirname(os.path.dirname(HERE))
)
OLDEST = (3, 9)
UNFIT = 127
"""The exit code of a launcher that this Python cannot run, as a shell's for a missing command."""
TERMINATION_LOG = "/dev/termination-log"
"""Where the kubelet reads why a container ended, unless its template names another file."""


def run(zygote: bool) -> "int | Program":
    """Runs the launcher, or its zygote, unless this Python cannot.

    Returns the exit code; in a process that the zygote has forked, the program of its rank.
    """
    if sys.version_info[:2] < OLDEST:
        return refuse("is Python %d.%d, which is too old" % sys.version_info[:2], zygote)
    try:
        if zygote:
            from convoy_workloads.launcher.zygote import main
        else:
            from convoy_workloads.launcher.supervisor import run as main
    except ImportError as error:
        return refuse("has an incomplete standard library: %s" % error, zygote)
    return main()


def refuse(why: str, zygote: bool) -> int:
    """Reports why this Python is unfit: in the log, and to the kubelet where the container ends with it."""
    text = "python3 at %s %s" % (sys.executable, why)
    sys.stderr.write("convoy: %s\n" % text)
    if not zygote:
        try:
            with open(TERMINATION_LOG, "r+") as log:
                log.write(text)
        except OSError:  # no container of Kubernetes
            pass
    return UNFIT


if __name__ == "__main__":
    # The modules beside this file are no top-level modules: only the packages are to be found.
    sys.path[:] = [ROOT] + [entry for entry in sys.path if os.path.abspath(entry or ".") not in (HERE, ROOT)]
    end = run(sys.argv[1:] == ["--zygote"])
    if isinstance(end, int):
        sys.exit(end)
    with end:  # no other frame is below the program's
        end.run(*end.arguments)
    end.end()
