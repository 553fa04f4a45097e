"""Tests of job names. A name that the API server accepts must be valid for all objects that are made from
the job.
"""

from __future__ import annotations

import re

import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.cli.rules import schema_of
from convoy_controllers.testing.builders import make_engine, make_job
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.workers.pod import with_incarnation
from convoy_crds import trainingjob
from convoy_crds.layout import slots
from convoy_crds.meta import MAX_REPLICAS

LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
"""Pattern of a label value, as `IsValidLabelValue` of apimachinery. A label value also has at most 63
characters.
"""
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
ROLE = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,22}[a-z0-9])?", fullmatch=True)
JOB = st.lists(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,24}[a-z0-9])?", fullmatch=True), min_size=1, max_size=4)
RULES = [
    rule["rule"]
    for rule in schema_of(trainingjob.KIND)["x-kubernetes-validations"]
    if "oldSelf" not in rule["rule"]
]


def accepted(name: str, role: str) -> bool:
    """Return True if the CEL rules of the kind accept the names of the job and its role."""
    body = {"metadata": {"name": name}, "spec": {"roles": [{"name": role, "replicas": 1}]}}
    return all(cel.evaluate(rule, {"self": body}) for rule in RULES)


@settings(max_examples=60)
@given(name=JOB.map(".".join), role=ROLE, replica=st.sampled_from([0, 10]))
def test_objects_made_from_an_accepted_name_are_valid(name: str, role: str, replica: int) -> None:
    if not accepted(name, role):
        assert len(name) + len(role) + len(f"--{MAX_REPLICAS - 1}") > 63, "and the message says so"
        return
    job = make_job(name, roles=[{"name": role, "replicas": replica + 1}])
    made = with_incarnation(pod(job, make_engine(), slots(job)[replica]), 3, ["node.example.com"])
    meta = made["metadata"]
    assert len(meta["name"]) <= 63 and SUBDOMAIN.fullmatch(meta["name"])
    assert all(len(value) <= 63 and LABEL.fullmatch(value) for value in meta["labels"].values())


@settings(max_examples=30)
@given(roles=st.lists(ROLE, min_size=2, max_size=8, unique=True))
def test_pods_of_one_job_never_share_a_name(roles: list[str]) -> None:
    job = make_job("1.a-0", roles=[{"name": role, "replicas": 12} for role in roles])
    names = [slot.pod for slot in slots(job)]
    assert len(set(names)) == len(names)
