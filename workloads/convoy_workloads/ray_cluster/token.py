"""The token with which the nodes of one Ray cluster authenticate each other.

Ray reads it from a file. Convoy derives it from the job's key, which only the pods of the job have. So the
token itself is in no variable and in no log.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from convoy_workloads.runtime.incarnation_key import read

KEY_VARIABLE = "CONVOY_JOB_KEY_FILE"
"""Variable with the file that holds the job's key. The agent writes the file, the launcher the variable."""
PURPOSE = b"convoy ray token"


class NoKey(RuntimeError):
    """The job has no key, so nobody could be kept out of its cluster."""


def job_key(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the key of the job, which all its pods have. Raises NoKey if the job has no key, or
    KeyUnreadable if its file cannot be read.
    """
    key = read(environ, KEY_VARIABLE)
    if key is None:
        raise NoKey(
            f"{KEY_VARIABLE} is not set: Ray runs only in pods of a TrainingJob, whose agents hand out the "
            "job's key"
        )
    return key


def derive(key: bytes) -> str:
    """Return the token of the Ray cluster of the job with this key."""
    return hmac.new(key, PURPOSE, hashlib.sha256).hexdigest()


def write(folder: Path, key: bytes) -> Path:
    """Write the token to a file in `folder` that only this user can read. Return the file's path.

    Creates the folder if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "token"
    partial = path.with_name("token.new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(derive(key))
    partial.replace(path)
    return path
