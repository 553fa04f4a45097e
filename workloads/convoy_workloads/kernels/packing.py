"""Packed weights of layout n16k2: the codes, scales and zero points of a quantised matrix in the order in
which the kernels `w4a16` and `w8a16` read them. `sources/weight_only.h` describes the layout.

A weight is `scale * (code - zero)`. Scales (fp16) and zero points (u8) belong to an output and a group of
inputs. Packing loses nothing: `unpack` returns the same arrays, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy_workloads.kernels.ctypes_kernel import check_array
from convoy_workloads.kernels.errors import InvalidInput

LAYOUT = "n16k2"
BITS = {"w4a16": 4, "w8a16": 8}
"""Bits of a code by scheme."""
ALIGNMENT = 64
GROUP_MULTIPLE = 32
MAX_GROUP = 65536
MAX_DIMENSION = 1 << 30
TILE_OUTPUTS = 16
_METADATA = 64
_OUTPUTS_AT_ONCE = 512
"""Outputs that are packed or unpacked together, so that temporary arrays stay small."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeights:
    """A packed matrix of `outputs` x `inputs` weights. Make it with `pack` or `packed_file.open_packed`."""

    scheme: str
    outputs: int
    inputs: int
    group_size: int
    tiles: NDArray[np.uint8]
    """All tiles, one after another. The address is a multiple of ALIGNMENT."""
    address: int = field(init=False, repr=False)
    """Address of the tiles."""

    def __post_init__(self) -> None:
        size = packed_size(self.scheme, self.outputs, self.inputs, self.group_size)
        check_array("tiles", self.tiles, np.uint8, (size,), alignment=ALIGNMENT)
        object.__setattr__(self, "address", self.tiles.ctypes.data)

    @property
    def groups(self) -> int:
        """Return the number of groups of inputs."""
        return -(-self.inputs // self.group_size)


def packed_size(scheme: str, outputs: int, inputs: int, group_size: int) -> int:
    """Return the bytes of a packed matrix. Raises InvalidInput for sizes that cannot be packed."""
    if scheme not in BITS:
        raise InvalidInput(f"scheme: {scheme!r} is not one of {', '.join(BITS)}")
    for name, length in (("outputs", outputs), ("inputs", inputs)):
        if not 1 <= length <= MAX_DIMENSION:
            raise InvalidInput(f"{name}: {length} is not between 1 and {MAX_DIMENSION}")
    if not GROUP_MULTIPLE <= group_size <= MAX_GROUP or group_size % GROUP_MULTIPLE:
        raise InvalidInput(
            f"group_size: {group_size} is not a multiple of {GROUP_MULTIPLE} up to {MAX_GROUP}"
        )
    tile = _METADATA + TILE_OUTPUTS * group_size * BITS[scheme] // 8
    return -(-outputs // TILE_OUTPUTS) * -(-inputs // group_size) * tile


def aligned(size: int) -> NDArray[np.uint8]:
    """Return `size` bytes of uninitialised memory. The address is a multiple of ALIGNMENT."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def pack(
    scheme: str,
    codes: NDArray[np.uint8],
    scales: NDArray[np.float16],
    zeros: NDArray[np.uint8],
    group_size: int,
) -> PackedWeights:
    """Pack codes [outputs, inputs] with scales and zero points [outputs, groups].

    The last group may have fewer inputs than `group_size`. Raises InvalidInput for arrays of another dtype,
    byte order or shape, for codes that need more bits, and for scales that are not finite.
    """
    check_array("codes", codes, np.uint8, (None, None))
    outputs, inputs = codes.shape
    size = packed_size(scheme, outputs, inputs, group_size)
    groups = -(-inputs // group_size)
    check_array("scales", scales, np.float16, (outputs, groups))
    check_array("zeros", zeros, np.uint8, (outputs, groups))
    if not np.isfinite(scales).all():
        output, group = np.argwhere(~np.isfinite(scales))[0]
        raise InvalidInput(f"scales[{output}, {group}]: {scales[output, group]} is not finite")
    bits = BITS[scheme]
    if int(codes.max()) >> bits:
        output, place = np.argwhere(codes >> bits)[0]
        raise InvalidInput(f"codes[{output}, {place}]: {codes[output, place]} needs more than {bits} bits")
    tiles = aligned(size)
    shaped = _by_tile(tiles, outputs, groups)
    for first in range(0, outputs, _OUTPUTS_AT_ONCE):
        last = min(first + _OUTPUTS_AT_ONCE, outputs)
        part = shaped[first // TILE_OUTPUTS : -(-last // TILE_OUTPUTS)]
        own = _padded(codes[first:last], groups * group_size)
        part[:, :, _METADATA:] = (_pack4 if bits == 4 else _pack8)(own, groups)
        part[:, :, :32] = _groups_last(_padded(scales[first:last], groups)).view(np.uint8)
        part[:, :, 32:48] = _groups_last(_padded(zeros[first:last], groups))
        part[:, :, 48:_METADATA] = 0
    return PackedWeights(scheme, outputs, inputs, group_size, tiles)


def unpack(
    packed: PackedWeights, first: int = 0, last: int | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float16], NDArray[np.uint8]]:
    """Return the codes, scales and zero points of the outputs `first` to `last` - 1 (default: all)."""
    last = packed.outputs if last is None else last
    begin = first // TILE_OUTPUTS
    shaped = _by_tile(packed.tiles, packed.outputs, packed.groups)[begin : -(-last // TILE_OUTPUTS)]
    codes = np.empty((len(shaped) * TILE_OUTPUTS, packed.inputs), np.uint8)
    step = _OUTPUTS_AT_ONCE // TILE_OUTPUTS
    for start in range(0, len(shaped), step):
        part = shaped[start : start + step, :, _METADATA:]
        found = _unpack4(part) if BITS[packed.scheme] == 4 else _unpack8(part)
        codes[start * TILE_OUTPUTS :][: len(found)] = found[:, : packed.inputs]
    scales = np.ascontiguousarray(shaped[:, :, :32]).view("<f2").transpose(0, 2, 1)
    zeros = shaped[:, :, 32:48].transpose(0, 2, 1)
    own = slice(first - begin * TILE_OUTPUTS, last - begin * TILE_OUTPUTS)
    return (
        codes[own],
        np.ascontiguousarray(scales).reshape(-1, packed.groups)[own],
        np.ascontiguousarray(zeros).reshape(-1, packed.groups)[own],
    )


def dequantise(packed: PackedWeights, first: int = 0, last: int | None = None) -> NDArray[np.float32]:
    """Return the fp32 weights of the outputs `first` to `last` - 1 (default: all)."""
    codes, scales, zeros = unpack(packed, first, last)
    by_group = np.arange(packed.inputs) // packed.group_size
    centred = codes.astype(np.float32)
    centred -= zeros[:, by_group]
    centred *= scales.astype(np.float32)[:, by_group]
    return centred


def _by_tile(tiles: NDArray[np.uint8], outputs: int, groups: int) -> NDArray[np.uint8]:
    return tiles.reshape(-(-outputs // TILE_OUTPUTS), groups, -1)


def _padded(rows: NDArray[Any], width: int) -> NDArray[Any]:
    """Return the rows with zeros behind them, so that their number is a multiple of TILE_OUTPUTS."""
    found = np.zeros((-(-len(rows) // TILE_OUTPUTS) * TILE_OUTPUTS, width), rows.dtype)
    found[: len(rows), : rows.shape[1]] = rows
    return found


def _groups_last(rows: NDArray[Any]) -> NDArray[Any]:
    """Return [outputs, groups] as contiguous [tiles, groups, 16 outputs]."""
    return np.ascontiguousarray(rows.reshape(-1, TILE_OUTPUTS, rows.shape[1]).transpose(0, 2, 1))


def _pack4(codes: NDArray[np.uint8], groups: int) -> NDArray[np.uint8]:
    # Axes: tile, output, group, block, pair, input of the pair.
    split = codes.reshape(-1, TILE_OUTPUTS, groups, codes.shape[1] // groups // 8, 4, 2)
    lanes = split[:, :, :, :, 0].astype("<u2")
    for pair in range(1, 4):
        lanes |= split[:, :, :, :, pair].astype("<u2") << (4 * pair)
    lanes = np.ascontiguousarray(lanes.transpose(0, 2, 3, 1, 4))
    return lanes.view(np.uint8).reshape(len(split), groups, -1)


def _unpack4(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    tiles, groups, _ = blocks.shape
    lanes = np.ascontiguousarray(blocks).view("<u2").reshape(tiles, groups, -1, TILE_OUTPUTS, 2)
    pairs = np.stack([(lanes >> (4 * pair)).astype(np.uint8) & 15 for pair in range(4)], axis=4)
    # Axes: tile, group, block, output, pair, input of the pair.
    return np.ascontiguousarray(pairs.transpose(0, 3, 1, 2, 4, 5)).reshape(tiles * TILE_OUTPUTS, -1)


def _pack8(codes: NDArray[np.uint8], groups: int) -> NDArray[np.uint8]:
    stored = np.where(codes >= 128, codes ^ 128, ~codes)
    # Axes: tile, quarter of the outputs, output of the quarter, group, block, pair, input of the pair.
    split = stored.reshape(-1, 4, 4, groups, codes.shape[1] // groups // 4, 2, 2)
    return split.transpose(0, 3, 4, 1, 5, 2, 6).reshape(len(split), groups, -1)


def _unpack8(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    tiles, groups, _ = blocks.shape
    split = blocks.reshape(tiles, groups, -1, 4, 2, 4, 2)
    stored = split.transpose(0, 3, 5, 1, 2, 4, 6).reshape(tiles * TILE_OUTPUTS, -1)
    return np.where(stored >= 128, ~stored, stored ^ 128)
