"""A chunk of floating-point numbers in fewer bytes, exactly: byte planes, each by zstd where that helps.

    0       magic
    4       bytes of a word: 2 or 4
    5       a bit for each plane, lowest byte first: whether it is compressed
    6       zeros
    8       length of the chunk, little endian
    12      length of each plane as it follows, little endian
    planes  lowest byte of every word, then the next; what is left of the chunk behind its last word

Neighbours are of like size, so the bytes that hold their exponents take few bits; of the mantissa hardly
anything can be saved. Byte planes for checkpoints are those of ZipNN (arXiv 2411.05239), which moves the sign
to the mantissa besides. Not so here: that saves 0.3 % of weights, and costs 0.6 to 1 % of gradients, whose
signs are alike too.

A chunk is named by the digest of its own bytes, however it lies or travels: whoever decodes has to look at
that digest. What is encoded is always shorter than the chunk, whose length its manifest tells, so nothing
more has to be said to tell the two apart.
"""

from __future__ import annotations

import struct
import threading

import numpy as np
import numpy.typing as npt
import zstandard

from convoy_agents.tiercheck.digest import Buffer, Damaged
from convoy_controllers.checkpoint.records import ENCODED_LEAST, ENCODED_MOST, MAX_CHUNK

WORDS = (4, 2)
"""Bytes of a word that can be told apart."""
_MAGIC = b"CVP\x01"
_HEAD = struct.Struct("<4sBBHI")
_LEVEL = 1
"""Of zstd: higher ones take several times as long, and give no fewer bytes on such planes."""
_SAMPLES, _SAMPLE = 8, 8192
"""Pieces of a chunk, and bytes of each, by which it is judged."""
_LONGEST = 2 * MAX_CHUNK
_own = threading.local()
"""Each thread's zstd contexts: one cannot be used by two threads at once."""

_Bytes = npt.NDArray[np.uint8]


def best_word(data: Buffer) -> int:
    """The word by which a chunk gets shortest, as pieces of it show; 0 when it does not get short enough."""
    view = memoryview(data)
    step = max(_SAMPLE, len(view) // _SAMPLES // 4 * 4)
    sample = b"".join(view[at : at + _SAMPLE] for at in range(0, len(view), step))
    sizes = {word: sum(len(plane) for plane, _ in _planes(sample, word)) for word in WORDS}
    word = min(WORDS, key=sizes.__getitem__)
    return word if sizes[word] <= ENCODED_MOST * len(sample) else 0


def encode(data: Buffer, word: int) -> bytes | None:
    """A chunk's bytes as numbers of so many bytes each; None when that makes them hardly shorter."""
    planes = _planes(data, word)
    flags = sum(packed << number for number, (_, packed) in enumerate(planes))
    head = _HEAD.pack(_MAGIC, word, flags, 0, len(data))
    lengths = struct.pack(f"<{word}I", *(len(plane) for plane, _ in planes))
    rest = memoryview(data)[len(data) // word * word :]
    size = len(head) + len(lengths) + sum(len(plane) for plane, _ in planes) + len(rest)
    if size > ENCODED_MOST * len(data):
        return None
    return b"".join((head, lengths, *(plane for plane, _ in planes), rest))


def decode(data: Buffer, length: int) -> bytes:
    """The chunk of this length that `encode` was given. Damaged for anything else, before there is memory for
    more than that; a changed byte may also give other bytes of that length.
    """
    view = memoryview(data)
    word, flags, lengths = _head(view, length)
    at = _HEAD.size + 4 * word
    count = length // word
    whole = bytearray(length)
    columns = np.frombuffer(whole, np.uint8, count * word).reshape(count, word)
    for number, size in enumerate(lengths):
        plane = view[at : at + size]
        if flags >> number & 1:
            plane = memoryview(_unpacked(plane, count))
        columns[:, number] = np.frombuffer(plane, np.uint8)
        at += size
    whole[count * word :] = view[at:]
    return bytes(whole)


def unpack(data: Buffer, length: int) -> Buffer:
    """A chunk of this length, whether it came encoded or as it is. Damaged for anything else."""
    return data if len(data) == length else decode(data, length)


def _head(view: memoryview, length: int) -> tuple[int, int, tuple[int, ...]]:
    """Bytes of a word, flags, lengths of the planes: such that they and the rest are all of it. Damaged."""
    if length > _LONGEST or not ENCODED_LEAST <= len(view) <= ENCODED_MOST * length:
        raise Damaged(f"{len(view)} bytes are no chunk of {length}")
    magic, word, flags, zeros, stated = _HEAD.unpack_from(view)
    if (magic, zeros, stated) != (_MAGIC, 0, length) or word not in WORDS or flags >> word:
        raise Damaged(f"{len(view)} bytes do not begin as an encoded chunk of {length} does")
    end = _HEAD.size + 4 * word
    if len(view) < end:
        raise Damaged(f"an encoded chunk ends after {len(view)} bytes")
    lengths = struct.unpack_from(f"<{word}I", view, _HEAD.size)
    count = length // word
    raw = [size for number, size in enumerate(lengths) if not flags >> number & 1]
    if any(size != count for size in raw) or end + sum(lengths) + length % word != len(view):
        raise Damaged("the planes of an encoded chunk have other lengths than it says")
    return word, flags, lengths


def _planes(data: Buffer, word: int) -> list[tuple[Buffer, bool]]:
    """The planes as they are kept, and whether each is compressed."""
    columns = np.frombuffer(data, np.uint8, len(data) // word * word).reshape(-1, word)
    return [_packed(np.ascontiguousarray(columns[:, number])) for number in range(word)]


def _packed(plane: _Bytes) -> tuple[Buffer, bool]:
    packed = _compressor().compress(plane.data)
    return (packed, True) if len(packed) <= ENCODED_MOST * len(plane) else (plane.data, False)


def _unpacked(plane: memoryview, size: int) -> bytes:
    """Damaged, and nothing is allocated, when the frame does not say that it has so many bytes."""
    try:
        if zstandard.frame_content_size(plane) != size:
            raise Damaged("a plane of an encoded chunk has another length than its word asks for")
        return _decompressor().decompress(plane, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Damaged(f"a plane of an encoded chunk: {error}") from error


def _compressor() -> zstandard.ZstdCompressor:
    found: zstandard.ZstdCompressor | None = getattr(_own, "compressor", None)
    if found is None:
        found = _own.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    return found


def _decompressor() -> zstandard.ZstdDecompressor:
    found: zstandard.ZstdDecompressor | None = getattr(_own, "decompressor", None)
    if found is None:
        found = _own.decompressor = zstandard.ZstdDecompressor(max_window_size=_LONGEST)
    return found
