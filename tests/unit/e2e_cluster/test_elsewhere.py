"""Tests of `USED_ELSEWHERE`. It lists the rights that the e2e tests in CI do not use, but other tests do.

Each listed right must name a reason and an existing test.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from e2e.drive.unused_rights import USED_ELSEWHERE
from e2e.rights import UsedElsewhere

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("entry", USED_ELSEWHERE, ids=str)
def test_a_listed_right_has_a_reason_and_a_test(entry: UsedElsewhere) -> None:
    file, _, test = entry.test.partition("::")
    assert f"def {test}(" in (ROOT / file).read_text()
    assert len(entry.why.split()) > 3


OPTIONAL = ("kueue.x-k8s.io", "podgroups.")
"""Resources of other projects. All rights for them are in the operator's generated rules."""


@pytest.mark.parametrize(
    "entry", [one for one in USED_ELSEWHERE if any(name in one.resources for name in OPTIONAL)], ids=str
)
def test_the_operator_has_each_listed_right_for_optional_resources(entry: UsedElsewhere) -> None:
    granted = {
        (verb, f"{resource}.{group}")
        for rule in yaml.safe_load((ROOT / "charts/convoy/files/operator-rules.yaml").read_text())["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    wanted = {(verb, one) for verb in entry.verbs.split() for one in entry.resources.split()}
    assert not wanted - granted
