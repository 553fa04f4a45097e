"""Entry of the container: `python3 -I -S /var/run/convoy/lib/convoy_launch.py`, and of its zygote
(`--zygote`).

Runs from the folder that the agent mounts, where it lies beside the packages, and from the source tree.
"""
# ruff: noqa: PTH100, PTH112, PTH118, PTH120 - runs before anything is known to be importable

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = (
    HERE if os.path.isdir(os.path.join(HERE, "convoy_workloads")) else os.path.dirname(os.path.dirname(HERE))
)

if __name__ == "__main__":
    # The modules beside this file are no top-level modules: only the packages are to be found.
    sys.path[:] = [ROOT] + [entry for entry in sys.path if os.path.abspath(entry or ".") not in (HERE, ROOT)]
    if sys.argv[1:] == ["--zygote"]:
        from convoy_workloads.launcher.zygote import main
    else:
        from convoy_workloads.launcher import main
    sys.exit(main())
