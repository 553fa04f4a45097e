"""Test of the settings of the memory allocator."""

from __future__ import annotations

import subprocess
import sys

from convoy_agents.allocator import KEPT_BYTES

PROGRAM = """
import resource, sys
from convoy_agents.allocator import keep_freed_memory
assert sys.argv[1] == "default" or keep_freed_memory()
size, count = 4 * 2**20, 20
bytearray(b"x") * size
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(count):
    one, two = bytearray(b"x") * size, bytearray(b"x") * size
    del one, two
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // count)
"""


def faults(mode: str) -> int:
    """Return the page faults for each pair of chunks that a process allocates and frees."""
    found = subprocess.run([sys.executable, "-c", PROGRAM, mode], check=True, capture_output=True, text=True)
    return int(found.stdout)


def test_a_freed_chunk_is_used_again_without_page_faults() -> None:
    assert KEPT_BYTES <= 32 * 2**20, "glibc refuses a higher threshold"
    assert faults("kept") < faults("default") / 4
