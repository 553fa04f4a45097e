"""Tests of the results on each minor version of Kubernetes, and of the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from e2e.cluster import files, machine, versions
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.state import State
from e2e.compat import layers, page, results
from e2e.compat.results import Document, LayerResult, Minor

ROOT = Path(__file__).parents[3]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="passes"/>
<testcase classname="tests.a" name="prints"><system-out>text</system-out></testcase>
<testcase classname="tests.a" name="skips"><skipped message="no"/></testcase>
<testcase classname="tests.a.TestB" name="fails"><failure message="no"/></testcase>
<testcase classname="tests.a" name="has_no_fixture"><error message="no"/></testcase>
<testcase classname="tests.a" name="fails_twice"><failure message="no"/></testcase>
<testcase classname="tests.a" name="fails_twice"><error message="no"/></testcase>
</testsuite></testsuites>"""


def layer(*failed: str, passed: int = 9) -> LayerResult:
    return LayerResult(
        commit="abc1234", date="2026-01-02", seconds=60, passed=passed, skipped=1, failed=failed
    )


def minor(name: str, **more: object) -> Minor:
    plain = {"kubernetes": f"{name}.1", "etcd": "3.6.0", "containerd": "2.2.9", "cgroup": 1}
    return Minor.model_validate({"minor": name, **plain, **more})


def test_a_report_is_counted_by_test(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert layers.counts(tmp_path / "report.xml") == (
        2,
        1,
        ("tests.a.TestB::fails", "tests.a::has_no_fixture", "tests.a::fails_twice"),
    )


def test_the_file_is_read_as_it_was_written_and_has_versions_in_order(tmp_path: Path) -> None:
    file = tmp_path / "compat.json"
    assert results.read(file) == Document()
    document = Document(machine="2 cores")
    for name in ("1.37", "1.9", "1.36"):
        document = document.having(minor(name))
    document = document.having(minor("1.36", layers={"e2e": layer()}, mended=["A flag."]))
    results.write(document, file)
    assert results.read(file) == document
    assert [one.minor for one in document.minors] == ["1.9", "1.36", "1.37"]
    assert document.minors[1].mended == ("A flag.",)


@pytest.mark.parametrize(
    ("found", "passed"),
    [
        ({}, False),
        ({"e2e": layer()}, False),
        ({"integration": layer(), "e2e": layer()}, True),
        ({"integration": layer(), "e2e": layer("tests.a::b")}, False),
        ({"integration": layer(passed=0), "e2e": layer()}, False),
    ],
)
def test_a_version_passes_if_all_layers_do(found: dict[str, LayerResult], passed: bool) -> None:
    assert minor("1.36", layers=found).passed(layers.NAMES) is passed


def test_the_chart_and_the_pages_require_the_oldest_version_that_has_passed() -> None:
    oldest = next(one.minor for one in results.read().minors if one.passed(layers.NAMES))
    chart = yaml.safe_load((ROOT / "charts" / "convoy" / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={oldest}.0-0"
    for name in ("README.md", "docs/install.md"):
        assert f"Kubernetes {oldest} or later" in (ROOT / name).read_text()


def test_page_without_results_says_so() -> None:
    text = page.rendered(Document())
    assert "`make compat` has not tested a version yet" in text and "| version |" not in text
    assert "none" not in text and "Debian 12 |" in text


def test_the_page_shows_what_failed_and_what_was_not_tried() -> None:
    found = {"integration": layer("tests.a::b")}
    text = page.rendered(Document(minors=(minor("1.36", layers=found, mended=("The kubelet's flag.",)),)))
    assert (
        "| 1.36 | 1.36.1 | 3.6.0 | **1 failed**, 9 passed, 1 skipped (2026-01-02, abc1234) | not tried |"
        in text
    )
    assert "- `tests.a::b` failed.\n- The kubelet's flag.\n" in text
    assert "| control groups | version 1 | version 2 |" in text
    assert "| 3.9 | bullseye (glibc 2.31) |" in text
    assert "bookworm-minimal" not in text, "the launcher refuses that image"
    (torch,) = re.findall(r"torch==([0-9.]+)", (ROOT / "pyproject.toml").read_text())
    assert f"| {torch}, for CPUs |" in text


@pytest.mark.parametrize("name", versions.RELEASES)
def test_the_module_file_of_a_release_requires_its_versions(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(versions.CHOICE, name)
    release = versions.release()
    assert release.kubernetes.startswith(f"{name}.")
    text = (ROOT / "e2e" / "cluster" / "binaries" / f"{release.module}.mod").read_text()
    assert f"\tk8s.io/kubernetes v{release.kubernetes}\n" in text
    assert f"\tgo.etcd.io/etcd/server/v3 v{release.etcd}\n" in text
    replaced = re.findall(r"k8s\.io/\S+ => k8s\.io/\S+ v(\S+)", text)
    assert len(replaced) > 30 and set(replaced) == {f"0.{release.kubernetes.removeprefix('1.')}"}


def test_runs_of_two_versions_do_not_share_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for name in versions.RELEASES:
        monkeypatch.setenv(versions.CHOICE, name)
        found |= {layers.report_file(one) for one in layers.LAYERS}
    assert len(found) == len(versions.RELEASES) * len(layers.LAYERS)


def test_an_unknown_version_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(versions.CHOICE, "1.12")
    with pytest.raises(ClusterError, match=r"CONVOY_KUBERNETES=1\.12 is not .* 1\.34, 1\.35"):
        versions.release()


def test_a_cluster_with_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "require_root_and_tools", lambda: None)
    monkeypatch.setattr(Cluster, "_complete", lambda _: True)
    cluster = Cluster("old", checkout=files.CHECKOUT)
    options = {"kubernetes": versions.RELEASES["1.34"].kubernetes}
    cluster.file.save(State("old-1", "old", str(files.CHECKOUT), 1, phase="up", options=options))
    monkeypatch.setenv(versions.CHOICE, "1.34")
    assert Cluster.up(name="old").state().name == "old"
    monkeypatch.setenv(versions.CHOICE, "1.35")
    with pytest.raises(ClusterError, match=r"old runs Kubernetes 1\.34\.4, not 1\.35\.4; `down --name old`"):
        Cluster.up(name="old")
