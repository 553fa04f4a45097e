"""Tests of the messages without protobuf: they have the same bytes, and the conversion works with them."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.workloads.traces.build import FIXTURES

import convoy_workloads
from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.torch_json.document import load_json
from convoy_workloads.traces.wire import chakra_pb2, plain
from convoy_workloads.traces.wire.writer import encode

PACKAGE = Path(convoy_workloads.__file__).parent
NUMBERS = st.integers(0, 2**64 - 1)
TEXTS = st.text(max_size=8)
VALUES = {
    "double_val": st.floats(allow_nan=False),
    "int32_val": st.integers(-(2**31), 2**31 - 1),
    "int64_val": st.integers(-(2**63), 2**63 - 1),
    "uint64_val": NUMBERS,
    "bool_val": st.booleans(),
    "string_val": TEXTS,
}
ATTRIBUTES = st.one_of(
    st.fixed_dictionaries({"name": TEXTS, field: values}) for field, values in VALUES.items()
)
ARGUMENTS = st.fixed_dictionaries({"values": TEXTS, "shapes": TEXTS, "types": TEXTS}).filter(
    lambda found: any(found.values())
)
NODES = st.fixed_dictionaries(
    {
        "id": NUMBERS,
        "name": TEXTS,
        "type": st.integers(0, 7),
        "ctrl_deps": st.lists(NUMBERS, max_size=3),
        "data_deps": st.lists(NUMBERS, max_size=3),
        "start_time_micros": NUMBERS,
        "duration_micros": NUMBERS,
        "attr": st.lists(ATTRIBUTES, max_size=4),
    },
    optional={"inputs": ARGUMENTS, "outputs": ARGUMENTS},
)


def made(module: Any, fields: dict[str, Any]) -> bytes:
    """Return the bytes of a node that one of the two modules encodes."""
    found = {**fields, "attr": [module.AttributeProto(**one) for one in fields["attr"]]}
    for name in ("inputs", "outputs"):
        if name in fields:
            found[name] = module.IOInfo(**fields[name])
    return bytes(module.Node(**found).SerializeToString(deterministic=True))


@given(NODES)
@settings(max_examples=cases(200), deadline=None)
def test_plain_messages_have_the_bytes_of_protobuf(fields: dict[str, Any]) -> None:
    assert made(plain, fields) == made(chakra_pb2, fields)


@given(TEXTS, st.lists(ATTRIBUTES, max_size=3))
@settings(max_examples=cases(50), deadline=None)
def test_plain_metadata_has_the_bytes_of_protobuf(version: str, attributes: list[dict[str, Any]]) -> None:
    found = [
        module.GlobalMetadata(
            version=version, attr=[module.AttributeProto(**one) for one in attributes]
        ).SerializeToString()
        for module in (plain, chakra_pb2)
    ]
    assert found[0] == found[1]


PROGRAM = """
import sys, hashlib
from pathlib import Path
from convoy_workloads.traces import send
from convoy_workloads.traces.wire import messages
from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.torch_json.document import load_json
from convoy_workloads.traces.wire.writer import encode
assert messages.Node.__module__.endswith("plain")
files = [Path(sys.argv[1]) / f"{kind}.0.json.gz" for kind in ("host", "kineto")]
print(hashlib.sha256(encode(convert(*map(load_json, files)).trace)).hexdigest())
"""


def test_a_trace_converted_with_the_standard_library_alone_has_the_same_bytes() -> None:
    folder = FIXTURES / "ddp"
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, str(folder)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    files = [load_json(folder / f"{kind}.0.json.gz") for kind in ("host", "kineto")]
    assert done.stdout.strip() == hashlib.sha256(encode(convert(*files).trace)).hexdigest()


@pytest.mark.parametrize("path", sorted((PACKAGE / "traces").rglob("*.py")), ids=lambda path: path.stem)
def test_a_module_that_goes_into_pods_is_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))
