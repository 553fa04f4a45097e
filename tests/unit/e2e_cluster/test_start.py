"""Tests of e2e runs whose cluster does not start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONFTEST = """
import errno
import e2e.tests.conftest as real
from e2e.cluster.errors import ClusterError
from e2e.tests.conftest import cluster, creates_cluster, pytest_configure, pytest_deselected

class Cluster:
    exists = False

    def __init__(self, name):
        pass

    def down(self):
        {down}

def bring_up(*arguments, **options):
    raise {error}

real.Cluster, real.bring_up = Cluster, bring_up
"""


@pytest.mark.parametrize(
    ("error", "down", "shown"),
    [
        ('OSError(errno.ENOSPC, "No space left on device")', "print('deleted')", "The disk is full: delete"),
        ('ClusterError("etcd does not run")', "print('deleted')", "did not start: etcd does not run"),
        ('ClusterError("etcd does not run")', "raise OSError('busy')", "could not be deleted: busy"),
    ],
)
def test_a_cluster_that_does_not_start_is_one_message(
    tmp_path: Path, error: str, down: str, shown: str
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(error=error, down=down))
    tests = "".join(f"def test_{number}(cluster): pass\n" for number in range(3))
    (tmp_path / "test_it.py").write_text(tests)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count(shown) == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "ERROR" not in done.stdout
    assert done.stdout.count("deleted\n") == ("print" in down)
