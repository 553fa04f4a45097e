"""Entry point of the container and, with `--zygote`, of the zygote.

The container runs `python3 -I -S -X utf8 /var/run/convoy/lib/convoy_launch.py`. The agent mounts the folder
with this file and Convoy's packages. The file also runs from the source tree. Any Python 3 can parse this
file, so a Python that is too old or incomplete gets a clear error.
"""
# ruff: noqa: PLC0415, PTH100, PTH112, PTH118, PTH120, PTH123, UP031 - runs under any Python 3

import os
import sys

MYPY = False
if MYPY:  # Old versions of Python have no module `typing`.
    from convoy_workloads.launcher.program import Program

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = (
    HERE if os.path.isdir(os.path.join(HERE, "convoy_workloads")) else os.path.dirname(os.path.dirname(HERE))
)
OLDEST = (3, 9)
UNFIT = 127
"""Exit code if this Python cannot run the launcher. A shell uses the same code for a missing command."""
TERMINATION_LOG = "/dev/termination-log"
"""File from which the kubelet reads the reason of a container's end. The pod template may name another
file.
"""


def run(zygote: bool) -> "int | Program":
    """Run the launcher or, if `zygote` is True, the zygote. Refuse to run if this Python is too old or
    incomplete.

    Returns the exit code. In a process that the zygote has forked, returns the program of the rank.
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
    """Report that this Python cannot run Convoy, and why. The report goes to the log and, for the launcher,
    to the kubelet.
    """
    text = "python3 at %s %s" % (sys.executable, why)
    needed = "Convoy needs Python %d.%d or later with its whole standard library" % OLDEST
    sys.stderr.write("convoy: %s. %s\n" % (text, needed))
    if not zygote:
        try:
            with open(TERMINATION_LOG, "r+") as log:
                log.write(text)
        except OSError:  # The file does not exist outside a Kubernetes container.
            pass
    return UNFIT


if __name__ == "__main__":
    # Put the packages' folder on the path and remove this file's folder. Otherwise the modules beside this
    # file could be imported as top-level modules.
    sys.path[:] = [ROOT] + [entry for entry in sys.path if os.path.abspath(entry or ".") not in (HERE, ROOT)]
    end = run(sys.argv[1:] == ["--zygote"])
    if isinstance(end, int):
        sys.exit(end)
    with end:  # Call the program here, so that no other frame than this one is below the program's frames.
        end.run(*end.arguments)
    end.end()
