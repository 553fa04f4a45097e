"""Test of the memory of a loaded model, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from convoy_workloads.engines.lm.llama import Frequencies
from convoy_workloads.engines.lm.llama_files import Config
from convoy_workloads.engines.lm.transformer import Shape
from convoy_workloads.engines.tilefuse import blueprint, packed_folder
from convoy_workloads.engines.tilefuse.groups import Codes
from convoy_workloads.engines.tilefuse.packed_folder import Content
from convoy_workloads.engines.tilefuse.structure import Matrix

PROGRAM = """
import json, sys
from pathlib import Path
import torch
from convoy_workloads.engines.tilefuse import packed_folder
from convoy_workloads.engines.tilefuse.packed_linear import Layers

def resident(kind):
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(kind)) * 1024

def load(folder):
    index = packed_folder.read_index(folder)
    model = packed_folder.read(folder, index, Layers(torch.bfloat16, "twin"), lambda: None)
    for one in model.packed:
        one._linear.packed.tiles.sum()  # Reads all pages.
    for one in model.model.parameters():
        one.sum()
    return model

small = load(Path(sys.argv[1]))  # Loads libraries, and allocates buffers.
before = resident("Rss:"), resident("Anonymous:")
model = load(Path(sys.argv[2]))
after = resident("Rss:"), resident("Anonymous:")
size = sum(path.stat().st_size for path in Path(sys.argv[2]).iterdir())
print(json.dumps({"size": size, "resident": after[0] - before[0], "anonymous": after[1] - before[1]}))
"""


def packed(folder: Path, layers: int, width: int) -> Path:
    """Write a packed model whose codes are 0."""
    folder.mkdir()
    config = Config(
        Shape(256, 64, layers, width, 8, 8, width // 8), 3 * width, 1e-5, Frequencies(), False, False
    )
    made = blueprint.of_config(config)
    model = made.model()
    for one in model.parameters():  # type: ignore[union-attr]
        if one.numel() < 2**20:
            one.data.zero_()

    def codes(matrix: Matrix) -> Codes:
        outputs, inputs = matrix.module.weight.shape  # type: ignore[union-attr, misc]
        groups = (outputs, inputs // 128)
        scales, zeros = np.ones(groups, np.float16), np.zeros(groups, np.uint8)
        return Codes(np.zeros((outputs, inputs), np.uint8), scales, zeros, 4, 128)

    content = Content(model, made, codes, "w4a16", 128, torch.bfloat16)
    packed_folder.write(folder, content, "a test", {}, lambda: None)
    return folder


def test_loading_needs_the_memory_of_the_packed_weights_and_no_more(tmp_path: Path) -> None:
    folders = packed(tmp_path / "small", 1, 1024), packed(tmp_path / "large", 3, 1024)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, folders)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["size"] > 20e6
    assert found["resident"] < 1.01 * found["size"], found
    assert found["anonymous"] < 0.01 * found["size"], found
