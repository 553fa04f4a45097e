"""Tests of the page of perturbations."""

from __future__ import annotations

import pytest

from convoy_crds import perturbations_page
from convoy_crds.perturbations import PERTURBATIONS, Backend


def test_the_page_has_a_row_for_each_kind_and_is_up_to_date() -> None:
    page = perturbations_page.PAGE.read_text()
    assert perturbations_page.with_table(page) == page, "run python -m convoy_crds.perturbations_page"
    assert page.count("\n| `") >= len(PERTURBATIONS)


def test_a_kind_that_pods_get_says_how_it_is_measured() -> None:
    on_pods = {Backend.AGENT, Backend.HARNESS}
    assert {one.kind for one in PERTURBATIONS if one.measured} == {
        one.kind for one in PERTURBATIONS if one.backends & on_pods
    }


def test_a_page_without_the_comments_is_refused() -> None:
    with pytest.raises(ValueError, match="table: end"):
        perturbations_page.with_table("# Perturbations\n")
