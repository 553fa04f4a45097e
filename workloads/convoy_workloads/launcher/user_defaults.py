"""Sets defaults if the image lacks something for the pod's user: a user name, a home, or a folder for
temporary files.

A worker often runs under a uid that its image does not know. Then HOME is `/`, programs cannot create a
cache below HOME, and `getpass.getuser()` fails. If the image lacks nothing for the user, this module
changes nothing.
"""
# ruff: noqa: PTH102, PTH103, PTH109, PTH112, PTH118, PTH208, PTH211 - PID 1 keeps its imports few

from __future__ import annotations

import os
from collections.abc import MutableMapping

HOME_VARIABLE = "CONVOY_HOME"
"""Variable with the path of a folder that every uid of the pod can write (`convoy_crds.terms.ENV_HOME`)."""
NAME = "convoy"
"""User name for a uid without an account."""
TEMPORARY = "/tmp"  # noqa: S108 - the default of all programs
LINK_DEPTH = 4
"""Number of levels to which hidden folders of an unwritable home are recreated, with links to their
entries.
"""
MAX_LINKS = 4096
"""Maximum number of links into an unwritable home. Creating this many takes about 50 ms."""


def apply_defaults(environment: MutableMapping[str, str]) -> list[str]:
    """Set missing variables in the environment for this process's user. Return log lines that say what was
    missing.
    """
    user = f"uid {os.getuid()}"
    fallback = environment.get(HOME_VARIABLE, "")
    found = _name(environment, user)
    if fallback:
        try:
            found += _home(environment, fallback, user) + _temporary(environment, fallback)
        except OSError as error:
            found.append(f"{fallback} cannot be used as HOME: {error.strerror}")
    lines = ["; ".join(found)] if found else []
    if not _writable(os.curdir):
        lines.append(
            f"{user} cannot write to the working directory {_working_directory()}, so files with "
            "relative paths fail. Set workingDir to a writable volume, write below HOME, or set "
            "securityContext.runAsUser"
        )
    return lines


def _name(environment: MutableMapping[str, str], user: str) -> list[str]:
    """Set USER and LOGNAME if the user has no account, so that `getpass.getuser()` works."""
    if _has_account(os.getuid()):
        return []
    name = environment.get("LOGNAME") or environment.get("USER") or NAME
    for variable in ("LOGNAME", "USER"):
        environment[variable] = environment.get(variable) or name
    return [f"{user} has no account in this image, so USER is set to {environment['USER']}"]


def _home(environment: MutableMapping[str, str], fallback: str, user: str) -> list[str]:
    """Set HOME to a folder below `fallback` if HOME is not writable. Raises OSError if `fallback` is not
    writable either.
    """
    old = environment.get("HOME", "")
    if old.startswith("/") and _usable(old):
        return []
    home = os.path.join(fallback, "home")
    os.makedirs(home, 0o700, exist_ok=True)
    if old.startswith("/"):
        link_home(home, old)
    environment["HOME"] = home
    return [f"{user} cannot write to HOME={old}, so HOME is set to {home}"]


def _temporary(environment: MutableMapping[str, str], fallback: str) -> list[str]:
    """Set TMPDIR to a folder below `fallback` if TMPDIR is not set and /tmp is not writable."""
    if environment.get("TMPDIR") or _writable(TEMPORARY):
        return []
    folder = os.path.join(fallback, "tmp")
    os.makedirs(folder, 0o700, exist_ok=True)
    environment["TMPDIR"] = folder
    return [f"{TEMPORARY} is not writable, so TMPDIR is set to {folder}"]


def link_home(home: str, old: str) -> None:
    """Create links in `home` to the readable entries of the folder `old`.

    So programs still find their settings, packages of `pip install --user` and cached models. A hidden
    folder that is not writable becomes a real folder with links in it, so that a cache can store more files
    there. If `old` is the root directory, only hidden entries are linked, because the other entries belong
    to the system.
    """
    left = MAX_LINKS
    for name, path in _entries(old):
        hidden = name.startswith(".")
        if hidden or old != "/":
            left = _link(path, os.path.join(home, name), LINK_DEPTH if hidden else 0, left)


def _link(path: str, target: str, levels: int, left: int) -> int:
    """Make `target` a link to `path`. If `path` is a folder that the user cannot write, and `levels` is
    above 0, make `target` a folder with links to the entries of `path` instead.

    `left` is the number of links that may still be created. Return the number that remains.
    """
    if left <= 0 or os.path.lexists(target) or not os.access(path, os.R_OK):
        return left
    if not levels or not os.path.isdir(path) or _writable(path):
        os.symlink(path, target)
        return left - 1
    os.mkdir(target, 0o700)
    for name, inner in _entries(path):
        left = _link(inner, os.path.join(target, name), levels - 1, left)
    return left


def _entries(folder: str) -> list[tuple[str, str]]:
    """Return the sorted names and paths of the entries in a folder; an empty list if the folder cannot be
    read.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [(name, os.path.join(folder, name)) for name in sorted(names)]


def _usable(folder: str) -> bool:
    """Create the folder if it does not exist. Return True if the folder is writable."""
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError:
        return False
    return _writable(folder)


def _writable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "(deleted)"


def _has_account(uid: int) -> bool:
    """Return True if the image has an account for the uid. Without the module pwd, return False, because
    `getpass` then finds no account either.
    """
    try:
        import pwd  # noqa: PLC0415 - some images' Python lacks it

        pwd.getpwuid(uid)
    except (ImportError, KeyError):
        return False
    return True
