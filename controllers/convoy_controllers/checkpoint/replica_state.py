"""Names of the states that replicas of ServingJobs save. Pure.

Agents keep the state of a replica under a uid of its own. The uid names the job, the role and revision, and
the replica: `<uid of the job>-state-<family>-<number>`. The family is a digest of role and revision. So a
state never reaches a replica of another job, role or revision.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_UID = re.compile(r"([A-Za-z0-9-]{1,40})-state-([0-9a-f]{10})-(\d{1,6})")


class StateUid(NamedTuple):
    """The uid under which agents keep the state of one replica."""

    job_uid: str
    """`metadata.uid` of the ServingJob."""
    family: str
    """Digest of the role and the revision of the replica."""
    replica: int
    """Number of the replica in its role."""

    @property
    def text(self) -> str:
        """Return the uid as text."""
        return f"{self.job_uid}-state-{self.family}-{self.replica}"


def state_uid(job_uid: str, role: str, revision: str, replica: int) -> StateUid:
    """Return the uid of a replica's state."""
    return StateUid(job_uid, hashlib.sha256(f"{role}/{revision}".encode()).hexdigest()[:10], replica)


def parse(uid: str) -> StateUid | None:
    """Return the parts of a uid; None for the uid of a TrainingJob."""
    match = _UID.fullmatch(uid)
    return StateUid(match[1], match[2], int(match[3])) if match else None


def job_of(uid: str) -> str:
    """Return the uid of the job to which memory belongs. A TrainingJob's memory has the uid of the job."""
    found = parse(uid)
    return found.job_uid if found else uid


def may_read(own: str, uid: str) -> bool:
    """Return True if the owner of the memory `own` may read the memory `uid`: they are equal, or both are
    states of the same job, role and revision.
    """
    mine, other = parse(own), parse(uid)
    return own == uid or (mine is not None and other is not None and mine[:2] == other[:2])
