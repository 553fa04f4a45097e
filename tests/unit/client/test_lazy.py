"""Tests that `import convoy` loads the client only on first use, so it is fast in training containers."""

from __future__ import annotations

import subprocess
import sys

SPARSE = """
import sys
class Bare:  # An image that has nothing but Python.
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kubernetes", "pydantic", "yaml", "torch", "typer"):
            raise ImportError(f"no {name} here", name=name)
sys.meta_path.insert(0, Bare())
import convoy
from convoy import *
assert callable(join)
assert not [one for one in sys.modules if one.startswith(("convoy.client", "convoy_crds"))]
try:
    convoy.Client
except ImportError as error:
    print(error)
try:
    convoy.Clinet
except AttributeError as error:
    print(error)
"""


def test_join_needs_no_extra_and_the_client_names_its_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPARSE], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("convoy.Client needs ") and first.endswith(
        "install convoy-operator with the extra `client`"
    )
    assert "has no attribute 'Clinet'" in second


def test_the_client_loads_with_its_libraries() -> None:
    import convoy
    from convoy.client import Client

    assert convoy.Client is Client
