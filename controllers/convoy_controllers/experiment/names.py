"""The names of an Experiment's jobs. A name says which run of which plan the job belongs to."""

from __future__ import annotations

import hashlib

from convoy_crds.experiment_hash import HASH_PREFIX

MAX_NAME = 51
"""Maximum number of characters of a job's name. A pod adds its role and its number."""
LOAD_SUFFIX = "-load"
PLAN_STEP, RESULT_STEP = "plan", "result"
_DIGITS, _SHORT_DIGITS = 6, 8


def plan_label(plan_hash: str) -> str:
    """Return the digits of a plan's hash that its jobs have as a label."""
    return plan_hash.removeprefix(HASH_PREFIX)[:12]


def tuning_step(arm: str) -> str:
    """Return the name of the step that tunes an arm."""
    return f"t-{arm}"


def step_name(experiment: str, plan_hash: str, step: str, attempt: int) -> str:
    """Return the name of the job of a step."""
    return shortened(f"{experiment}-{_digits(plan_hash)}-{step}-{attempt}", MAX_NAME)


def run_name(experiment: str, plan_hash: str, run: str, attempt: int, most: int = MAX_NAME) -> str:
    """Return the name of a run's job. `run` names the block and the arm. `most`: maximum length."""
    return shortened(f"{experiment}-{_digits(plan_hash)}-{run}-{attempt}", most)


def load_name(run: str) -> str:
    """Return the name of the job that sends the requests of a run."""
    return run + LOAD_SUFFIX


def shortened(name: str, most: int) -> str:
    """Return a name of at most `most` characters. If it is too long, its end is replaced by a digest of the
    whole name.
    """
    if len(name) <= most:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_SHORT_DIGITS]
    return f"{name[: most - _SHORT_DIGITS - 1].rstrip('-')}-{digest}"


def _digits(plan_hash: str) -> str:
    return plan_hash.removeprefix(HASH_PREFIX)[:_DIGITS]
