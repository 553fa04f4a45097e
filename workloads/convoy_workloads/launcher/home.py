"""Defaults for what an image may lack for the pod's user: a name, a home, a folder for temporary files.

A worker runs as a uid that most images do not know. Then HOME is `/`, no cache can be made below it, and
`getpass.getuser()` fails. An image that is complete for its user is left alone.
"""
# ruff: noqa: PTH102, PTH103, PTH109, PTH112, PTH118, PTH208, PTH211 - PID 1 keeps its imports few

from __future__ import annotations

import os
from collections.abc import MutableMapping

HOME_VARIABLE = "CONVOY_HOME"
"""Names a folder that any uid of the pod may write to: `convoy_crds.terms.ENV_HOME`."""
NAME = "convoy"
"""The name of a user whom the image does not know."""
TEMPORARY = "/tmp"  # noqa: S108 - the default of all programs
LEVELS = 4
"""Depth to which the hidden folders of an unwritable home are made anew, their entries linked."""
LINKS = 4096
"""Most links into an unwritable home; about 50 ms."""


def settle(environment: MutableMapping[str, str]) -> list[str]:
    """Completes the environment for this process's user; lines for the log about what was amiss."""
    user = f"uid {os.getuid()}"
    spare = environment.get(HOME_VARIABLE, "")
    found = _name(environment, user)
    if spare:
        try:
            found += _home(environment, spare, user) + _temporary(environment, spare)
        except OSError as error:
            found.append(f"{spare} cannot serve as home: {error.strerror}")
    lines = ["; ".join(found)] if found else []
    if not _writable(os.curdir):
        lines.append(
            f"{user} cannot write to the working directory {_here()}: files with relative paths fail. Set "
            "workingDir to a writable volume, write below HOME, or set securityContext.runAsUser"
        )
    return lines


def _name(environment: MutableMapping[str, str], user: str) -> list[str]:
    """USER and LOGNAME for a user without an account, so that `getpass.getuser()` finds one of them."""
    if _has_account(os.getuid()):
        return []
    name = environment.get("LOGNAME") or environment.get("USER") or NAME
    for variable in ("LOGNAME", "USER"):
        environment[variable] = environment.get(variable) or name
    return [f"{user} has no account in this image: USER is {environment['USER']}"]


def _home(environment: MutableMapping[str, str], spare: str, user: str) -> list[str]:
    """HOME below `spare` unless it is a folder that can be written to; OSError when `spare` cannot either."""
    old = environment.get("HOME", "")
    if old.startswith("/") and _usable(old):
        return []
    home = os.path.join(spare, "home")
    os.makedirs(home, 0o700, exist_ok=True)
    if old.startswith("/"):
        furnish(home, old)
    environment["HOME"] = home
    return [f"{user} cannot write to HOME={old}: HOME is {home}"]


def _temporary(environment: MutableMapping[str, str], spare: str) -> list[str]:
    """TMPDIR below `spare` where nothing says otherwise and /tmp cannot be written to."""
    if environment.get("TMPDIR") or _writable(TEMPORARY):
        return []
    folder = os.path.join(spare, "tmp")
    os.makedirs(folder, 0o700, exist_ok=True)
    environment["TMPDIR"] = folder
    return [f"{TEMPORARY} cannot be written to: TMPDIR is {folder}"]


def furnish(home: str, old: str) -> None:
    """Links what can be read in the folder `old` into `home`.

    So settings, packages of `pip install --user` and models in caches are found as before. Hidden folders
    that cannot be written to become real ones with links in them: a cache takes further files. Of the root
    directory only hidden entries are taken: the others are the system's.
    """
    left = LINKS
    for name, path in _entries(old):
        hidden = name.startswith(".")
        if hidden or old != "/":
            left = _reflect(path, os.path.join(home, name), LEVELS if hidden else 0, left)


def _reflect(path: str, target: str, levels: int, left: int) -> int:
    """Makes `target` a link to `path`, or a folder of links; how many links may still be made."""
    if left <= 0 or os.path.lexists(target) or not os.access(path, os.R_OK):
        return left
    if not levels or not os.path.isdir(path) or _writable(path):
        os.symlink(path, target)
        return left - 1
    os.mkdir(target, 0o700)
    for name, inner in _entries(path):
        left = _reflect(inner, os.path.join(target, name), levels - 1, left)
    return left


def _entries(folder: str) -> list[tuple[str, str]]:
    """Names and paths in a folder, sorted, hidden ones first; none where it cannot be read."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [(name, os.path.join(folder, name)) for name in sorted(names)]


def _usable(folder: str) -> bool:
    """Return true if files can be made in the folder, which is made where its parent allows."""
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError:
        return False
    return _writable(folder)


def _writable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "(deleted)"


def _has_account(uid: int) -> bool:
    """Return true if the image knows the uid. Without the module pwd, `getpass` does not either."""
    try:
        import pwd  # noqa: PLC0415 - some images' Python lacks it

        pwd.getpwuid(uid)
    except (ImportError, KeyError):
        return False
    return True
