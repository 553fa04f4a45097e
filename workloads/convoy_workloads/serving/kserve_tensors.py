"""Inference requests of the Open Inference Protocol on tensors: JSON, and the binary tensor extension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field

from convoy_workloads.serving.datatypes import (
    BYTES,
    DTYPES,
    Array,
    DataError,
    convert,
    from_bytes,
    from_json,
    to_bytes,
    to_json,
)
from convoy_workloads.serving.errors import Headers, RequestError
from convoy_workloads.serving.openai.requests import parse_content
from convoy_workloads.serving.protocol import ModelCard, TensorSpec

LENGTH = b"inference-header-content-length"
"""Header with the length of the JSON part of a body. Binary tensors follow that part."""
MAX_DIMENSIONS = 8
RequestId = Annotated[str, Field(max_length=128, pattern=r"^[\x20-\x7e]*$")]
"""Id of a request. It is a header of the response, so it has only characters of headers."""
Name = Annotated[str, Field(min_length=1, max_length=256)]
ContentType = Literal["np", "pd", "str"]
"""Content types of MLServer's clients that need no conversion. Data of another one, such as
base64, would be read as plain texts.
"""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _InputParameters(_Body):
    binary_data_size: Annotated[int, Field(ge=0)] | None = None
    content_type: ContentType | None = None


class _Input(_Body):
    name: Name
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=MAX_DIMENSIONS)]
    datatype: str
    parameters: _InputParameters = Field(default_factory=_InputParameters)
    data: Any = None


class _OutputParameters(_Body):
    binary_data: bool | None = None


class _Output(_Body):
    name: Name
    parameters: _OutputParameters = Field(default_factory=_OutputParameters)


class _Parameters(_Body):
    binary_data_output: bool = False
    content_type: ContentType | None = None


class _Inference(_Body):
    id: RequestId | None = None
    parameters: _Parameters = Field(default_factory=_Parameters)
    inputs: Annotated[list[_Input], Field(min_length=1)]
    outputs: list[_Output] | None = None


@dataclass(frozen=True)
class TensorRequest:
    """An inference request whose tensors fit the model."""

    id: str | None
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    """Names of the outputs, in the order of the response."""
    binary: frozenset[str]
    """Names of the outputs that the client wants as bytes."""
    rows: int


def parse(body: bytes, headers: Mapping[bytes, bytes], card: ModelCard) -> TensorRequest:
    """Return the request in a body. Raises RequestError, with the name of the field, if it is invalid or does
    not fit the model.
    """
    text, rest = _split(body, headers)
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        why = f"the body is not valid JSON: {error}{_json_hint(text, LENGTH in headers)}"
        raise RequestError(400, why, code="invalid_json") from error
    wanted = parse_content(_Inference, content)
    tensors = _tensors(wanted.inputs, rest, card)
    rows = {name: len(one) for name, one in tensors.items()}
    if len(set(rows.values())) > 1:
        raise _wrong("inputs", f"the inputs must have the same number of rows, have {rows}")
    outputs, binary = _outputs(wanted, card)
    return TensorRequest(wanted.id, tensors, outputs, binary, next(iter(rows.values())))


def _json_hint(text: bytes, split: bool) -> str:
    """Return the likely cause of invalid JSON. `split`: the request has the length of its JSON part."""
    if b"binary_data_size" in text and not split:
        return "; binary tensors after the JSON need the header Inference-Header-Content-Length"
    if b"NaN" in text:
        return "; write null for NaN"
    return ""


def _wrong(field: str, why: str) -> RequestError:
    return RequestError(400, f"{field}: {why}", field, "invalid_value")


def _split(body: bytes, headers: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the JSON part of a body, and the binary tensors after it."""
    length = headers.get(LENGTH)
    if length is None:
        return body, b""
    if not length.isdigit() or int(length) > len(body):
        field = "Inference-Header-Content-Length"
        raise _wrong(field, f"must be a number of bytes up to the body's length of {len(body)}")
    return body[: int(length)], body[int(length) :]


def _tensors(inputs: list[_Input], rest: bytes, card: ModelCard) -> dict[str, Array]:
    specs = {one.name: one for one in card.inputs}
    found: dict[str, Array] = {}
    for number, given in enumerate(inputs):
        field = f"inputs.{number}"
        # The name is free if there is only one input: clients of other servers call it as they like.
        spec = card.inputs[0] if len(specs) == 1 else specs.get(given.name)
        if spec is None:
            raise _wrong(f"{field}.name", f"the model has no input {given.name!r}, only {', '.join(specs)}")
        if spec.name in found:
            raise _wrong(f"{field}.name", f"a second tensor for the input {spec.name!r}")
        size = given.parameters.binary_data_size
        if size is not None and size > len(rest):
            why = f"{size} bytes do not follow the JSON part of the body"
            raise _wrong(f"{field}.parameters.binary_data_size", why)
        found[spec.name] = _tensor(given, None if size is None else rest[:size], spec, field)
        rest = rest[size or 0 :]
    if rest:
        raise _wrong("body", f"has {len(rest)} bytes after the last binary tensor")
    if missing := [name for name in specs if name not in found]:
        raise _wrong("inputs", f"the model needs the input {', '.join(missing)}")
    return found


def _tensor(given: _Input, data: bytes | None, spec: TensorSpec, field: str) -> Array:
    if given.datatype not in DTYPES:
        raise _wrong(f"{field}.datatype", f"must be one of {', '.join(DTYPES)}")
    source, target = DTYPES[given.datatype], DTYPES[spec.datatype]
    texts = (given.datatype == BYTES, spec.datatype == BYTES)
    if texts[0] is not texts[1] or not np.can_cast(source, target, "same_kind"):
        raise _wrong(f"{field}.datatype", f"{given.datatype} does not fit {spec.name!r} of {spec.datatype}")
    if data is not None and given.data is not None:
        raise _wrong(f"{field}.data", "must be absent beside parameters.binary_data_size")
    shape = tuple(given.shape)
    try:
        if data is None:
            array = from_json(given.data, given.datatype, shape)
        else:
            array = from_bytes(data, given.datatype, shape)
        if spec.datatype != BYTES:
            array = convert(array, spec.datatype)
    except DataError as error:
        raise _wrong(f"{field}.data", str(error)) from error
    # A column may also be a table with one column.
    if len(shape) == len(spec.shape) + 1 and shape[-1] == 1:
        array = array.reshape(shape[:-1])
    if array.ndim != len(spec.shape) or any(
        want not in (-1, size) for want, size in zip(spec.shape, array.shape, strict=True)
    ):
        raise _wrong(f"{field}.shape", f"{list(shape)} does not fit {list(spec.shape)}; -1 is any size")
    if not len(array):
        raise _wrong(f"{field}.shape", "must have at least 1 row")
    return array


def _outputs(wanted: _Inference, card: ModelCard) -> tuple[tuple[str, ...], frozenset[str]]:
    known = [one.name for one in card.outputs]
    listed = wanted.outputs or [_Output(name=known[0])]
    names = [one.name for one in listed]
    for number, name in enumerate(names):
        if name not in known:
            why = f"the model has no output {name!r}, only {', '.join(known)}"
            raise _wrong(f"outputs.{number}.name", why)
        if name in names[:number]:
            raise _wrong(f"outputs.{number}.name", f"a second request for the output {name!r}")
    default = wanted.parameters.binary_data_output
    binary = [
        one.name
        for one in listed
        if (default if one.parameters.binary_data is None else one.parameters.binary_data)
    ]
    return tuple(names), frozenset(binary)


def render(
    head: Mapping[str, str], request: TensorRequest, card: ModelCard, outputs: Mapping[str, Any]
) -> tuple[bytes, Headers]:
    """Return the body of a response and its headers. `head`: the first entries of the body."""
    specs = {one.name: one for one in card.outputs}
    entries, parts = [], []
    for name in request.outputs:
        array = outputs[name]
        entry: dict[str, Any] = {
            "name": name,
            "datatype": specs[name].datatype,
            "shape": list(array.shape),
        }
        if name in request.binary:
            parts.append(to_bytes(array))
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            entry["data"] = to_json(array)
        entries.append(entry)
    text = orjson.dumps({**head, "outputs": entries})
    if not parts:
        return text, [(b"content-type", b"application/json")]
    headers = [(b"content-type", b"application/octet-stream"), (LENGTH, str(len(text)).encode())]
    return b"".join([text, *parts]), headers
