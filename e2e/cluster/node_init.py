"""The first process of a node. It runs as a script in new namespaces and uses only the standard library.

The process gives the node its own root file system and waits for the network. Then it keeps containerd,
kubelet and kube-proxy running and reaps orphans. If this process is killed, the node crashes: the kernel
ends all processes of its process namespace, and tmpfs, mounts and network disappear with their namespaces.

Argument: a JSON file with `name`, `folder` (the node's disk), `binaries`, `keep` (folders that stay visible
under their own path), `etc` (text by file below /etc) and `commands` (command line by component, in
starting order).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# The kubelet sets these sysctls on the whole machine unless they have the values that it requires. A node
# must not change the machine, so the kubelet sees files with the required values instead.
_KUBELET_WANTS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_OWN = {"proc", "sys", "run", "tmp", "var", "etc", "lost+found"}


def mount(*arguments: str | Path) -> None:
    """Run mount(8)."""
    subprocess.run(["mount", *map(str, arguments)], check=True, timeout=20)


def bind(source: Path, target: Path, *, recursive: bool = False) -> None:
    """Bind-mount the folder or file `source` at `target`. Create `target` if it is missing."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount("--rbind" if recursive else "--bind", source, target)


def make_root(config: dict[str, Any]) -> None:
    """Change to a root with the machine's programs and the node's own /var, /etc, /run, /tmp and /proc."""
    disk = Path(config["folder"])
    mount("--make-rprivate", "/")
    root = disk / "root"
    root.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", root)
    for entry in sorted(Path("/").iterdir()):
        if entry.is_symlink():
            (root / entry.name).symlink_to(entry.readlink())
        elif entry.is_dir() and entry.name not in _OWN:
            bind(entry, root / entry.name, recursive=True)
    for name in ("run", "tmp", "proc", "sys"):
        (root / name).mkdir()
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", root / "run")
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / "tmp")
    (root / "run" / "lock").mkdir()
    for folder in ("lib/kubelet", "lib/containerd", "lib/cni", "log", "tmp"):
        (disk / "var" / folder).mkdir(parents=True, exist_ok=True)
    if not (disk / "var" / "run").is_symlink():
        (disk / "var" / "run").symlink_to("/run")
    bind(disk / "var", root / "var")
    make_etc(config, disk / "etc")
    bind(disk / "etc", root / "etc")
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / "dev" / "shm")
    for kept in map(Path, config["keep"]):
        if kept.parts[1] in _OWN:
            bind(kept, root / kept.relative_to("/"), recursive=True)
    # Mount the /sys of this network namespace, with the machine's control groups.
    mount("-t", "sysfs", "sysfs", root / "sys")
    mount("--rbind", "/sys/fs/cgroup", root / "sys" / "fs" / "cgroup")
    mount("-t", "proc", "proc", root / "proc")
    for name, value in _KUBELET_WANTS.items():
        shown = disk / "sysctl" / name
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(value + "\n")
        if (root / "proc" / "sys" / name).exists():
            mount("--bind", shown, root / "proc" / "sys" / name)
    (root / "old").mkdir()
    subprocess.run(["pivot_root", root, root / "old"], check=True, timeout=20)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/old"], check=True, timeout=20)
    Path("/old").rmdir()
    # Make all mounts shared, so that containers' Bidirectional mounts reach the kubelet and other containers.
    mount("--make-rshared", "/")


def make_etc(config: dict[str, Any], etc: Path) -> None:
    """Copy the machine's /etc at the first start. The copy has the node's own name, machine id and
    resolver.
    """
    if not etc.exists():
        temporary = etc.with_name("etc.new")
        shutil.rmtree(temporary, ignore_errors=True)
        subprocess.run(["cp", "-a", "/etc", temporary], check=True, timeout=60)
        for file, text in config["etc"].items():
            path = temporary / file
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        temporary.rename(etc)


def wait_for_network() -> None:
    """Wait until the program that started this node reports the network. Exit if that program has ended."""
    if sys.stdin.readline().strip() != "connected":
        sys.exit("the tool that started this node ended before the node had a network")
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


class Supervisor:
    """Starts components, and restarts each one after it ends, as an init system does."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        self.commands = commands
        self.running: dict[int, str] = {}
        self.restart_at: dict[str, float] = dict.fromkeys(commands, 0.0)

    def start_due(self) -> None:
        """Start every component whose start time has come."""
        for name, due in list(self.restart_at.items()):
            if time.monotonic() < due:
                continue
            # A child inherits blocked signals, and containerd's helpers need SIGCHLD, so unblock it for the
            # start.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            with Path("/var/log", f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    self.commands[name],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            # `Supervisor.reap` reaps this process. The exit status makes Python's subprocess module leave it
            # alone.
            process.returncode = 0
            self.running[process.pid] = name
            del self.restart_at[name]
            Path("/run", f"{name}.pid").write_text(str(process.pid))

    def reap(self) -> None:
        """Reap ended children. Schedule the restart of an ended component for one second later."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self.running.pop(pid, None)
            if name is not None:
                print(
                    f"{name} ended with status {os.waitstatus_to_exitcode(status)}; starting it again",
                    flush=True,
                )
                self.restart_at[name] = time.monotonic() + 1.0


def main() -> None:
    """Run the node until killed."""
    config = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(config["name"])
    make_root(config)
    wait_for_network()
    os.environ["PATH"] = f"{config['binaries']}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # SIGCHLD stays blocked, so the signal of a child that ends before the wait stays pending and ends the
    # wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    supervisor = Supervisor(config["commands"])
    while True:
        supervisor.start_due()
        # `start_due` unblocks SIGCHLD for a moment, so the signal of a child that ended then may be lost.
        # Reap such a child now.
        supervisor.reap()
        signal.sigtimedwait({signal.SIGCHLD}, 0.5 if supervisor.restart_at else 60.0)
        supervisor.reap()


if __name__ == "__main__":
    main()
