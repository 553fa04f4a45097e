"""Deletes a cluster completely. It finds the resources in the state file and by the cluster's identity."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from e2e.cluster.cgroups import Cgroups
from e2e.cluster.network import Network
from e2e.cluster.processes import ProcessId, end, marked
from e2e.cluster.run import run, wait_for
from e2e.cluster.state import State


def destroy(
    identity: str,
    folder: Path,
    state: State | None,
    cgroups: Cgroups,
    network: Network,
    report: Callable[[str], None],
) -> None:
    """End all processes of the cluster, and delete its mounts, network and files.

    May be called again after a failure. `state` may be missing or out of date.
    """
    processes: set[ProcessId] = set(state.processes.values()) if state else set()

    def all_ended() -> bool:
        found = processes | set(marked(identity))
        end(found, deadline=30)
        # A process that was just starting when its parent died appears only in a second scan.
        return not marked(identity)

    wait_for(all_ended, deadline=60, what=f"end of all processes of {identity}")
    report("processes ended")
    if state:
        network.remove_rules(state.firewall)
    network.destroy()
    cgroups.remove(f"convoy-{identity}")
    for mount in mounts_below(folder):
        run(["umount", "--lazy", mount])
    report("network, control groups and mounts removed")
    if folder.exists():
        shutil.rmtree(folder)


def mounts_below(folder: Path) -> list[str]:
    """Return the mounts below `folder` in the machine's mount namespace, innermost first."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        where = line.split()[1].encode().decode("unicode_escape")
        if where == str(folder) or where.startswith(f"{folder}/"):
            found.append(where)
    return sorted(found, reverse=True)


def leftovers(identity: str, folder: Path, cgroups: Cgroups, network: Network) -> list[str]:
    """Return one line for each remaining resource of a cluster; empty after a complete `down`."""
    found = [f"process {process.pid}" for process in marked(identity)]
    found += [f"link {link}" for link in network.links()]
    found += [f"mount {mount}" for mount in mounts_below(folder)]
    name = f"convoy-{identity}"
    found += [f"cgroup {mount / name}" for mount in cgroups.mounts if (mount / name).exists()]
    if folder.exists():
        found.append(f"folder {folder}")
    return found
