"""Lossless compression of chunks of floating-point numbers. The bytes are split into planes, and each plane
that gets smaller is compressed with zstd. An encoded chunk has these fields, by offset in bytes:

    0       magic
    4       bytes of a word: 2 or 4
    5       one bit for each plane, lowest byte first: 1 if the plane is compressed
    6       zeros
    8       length of the plain chunk, little endian
    12      length of each stored plane, little endian
    planes  one plane for the lowest byte of all words, one for the next byte, and so on
    rest    the bytes after the last whole word

Neighbouring numbers have similar magnitudes, so the bytes with their exponents compress well. The mantissas
hardly compress. The byte planes follow ZipNN (arXiv 2411.05239). ZipNN also moves the sign bit into the
mantissa. This code does not: it would save 0.3 % for weights, but cost 0.6 to 1 % for gradients, whose
signs are similar too.

A chunk's name is the digest of its plain bytes, so a decoder must check that digest. An encoded chunk is
always shorter than the plain chunk, whose length is in the manifest. So the length alone tells the two
forms apart.
"""

from __future__ import annotations

import struct
import threading

import numpy as np
import numpy.typing as npt
import zstandard

from convoy_agents.tiercheck.digest import Buffer, Damaged
from convoy_controllers.checkpoint.records import MAX_CHUNK, MAX_ENCODED_RATIO, MIN_ENCODED_BYTES

WORDS = (4, 2)
"""Supported word sizes in bytes."""
_MAGIC = b"CVP\x01"
_HEAD = struct.Struct("<4sBBHI")
_LEVEL = 1
"""Compression level of zstd. Higher levels take several times as long and save nothing for such planes."""
_SAMPLES, _SAMPLE = 8, 8192
"""Number of samples of a chunk, and the bytes of each, that decide how to encode it."""
_LONGEST = 2 * MAX_CHUNK
_own = threading.local()
"""Thread-local storage: the zstd contexts of each thread, since two threads cannot share one."""

_Bytes = npt.NDArray[np.uint8]


def best_word(data: Buffer) -> int:
    """Return the word size in bytes that compresses samples of a chunk best; 0 if no size saves enough."""
    view = memoryview(data)
    step = max(_SAMPLE, len(view) // _SAMPLES // 4 * 4)
    sample = b"".join(view[at : at + _SAMPLE] for at in range(0, len(view), step))
    sizes = {word: sum(len(plane) for plane, _ in _planes(sample, word)) for word in WORDS}
    word = min(WORDS, key=sizes.__getitem__)
    return word if sizes[word] <= MAX_ENCODED_RATIO * len(sample) else 0


def encode(data: Buffer, word: int) -> bytes | None:
    """Encode a chunk with words of `word` bytes. Return None if encoding saves too little."""
    planes = _planes(data, word)
    flags = sum(packed << number for number, (_, packed) in enumerate(planes))
    head = _HEAD.pack(_MAGIC, word, flags, 0, len(data))
    lengths = struct.pack(f"<{word}I", *(len(plane) for plane, _ in planes))
    rest = memoryview(data)[len(data) // word * word :]
    size = len(head) + len(lengths) + sum(len(plane) for plane, _ in planes) + len(rest)
    if size > MAX_ENCODED_RATIO * len(data):
        return None
    return b"".join((head, lengths, *(plane for plane, _ in planes), rest))


def decode(data: Buffer, length: int) -> bytes:
    """Decode an encoded chunk into its `length` plain bytes. Raises Damaged for invalid input, before
    memory is allocated.

    A flipped byte may go unnoticed and change the result, so the caller must check the digest.
    """
    view = memoryview(data)
    word, flags, lengths = _read_header(view, length)
    at = _HEAD.size + 4 * word
    count = length // word
    whole = bytearray(length)
    columns = np.frombuffer(whole, np.uint8, count * word).reshape(count, word)
    for number, size in enumerate(lengths):
        plane = view[at : at + size]
        if flags >> number & 1:
            plane = memoryview(_decompress(plane, count))
        columns[:, number] = np.frombuffer(plane, np.uint8)
        at += size
    whole[count * word :] = view[at:]
    return bytes(whole)


def unpack(data: Buffer, length: int) -> Buffer:
    """Return the plain bytes of a chunk that arrived encoded or plain. Raises Damaged for invalid input.
    `length`: the length of the plain chunk.
    """
    return data if len(data) == length else decode(data, length)


def _read_header(view: memoryview, length: int) -> tuple[int, int, tuple[int, ...]]:
    """Return the word size, the flags and the lengths of the planes from the header of an encoded chunk.
    Raises Damaged if the header does not fit the length of `view` or the plain chunk's `length`.
    """
    if length > _LONGEST or not MIN_ENCODED_BYTES <= len(view) <= MAX_ENCODED_RATIO * length:
        raise Damaged(f"{len(view)} bytes cannot be a chunk of {length} bytes")
    magic, word, flags, zeros, stated = _HEAD.unpack_from(view)
    if (magic, zeros, stated) != (_MAGIC, 0, length) or word not in WORDS or flags >> word:
        raise Damaged(f"{len(view)} bytes do not start with the header of an encoded chunk of {length} bytes")
    end = _HEAD.size + 4 * word
    if len(view) < end:
        raise Damaged(f"an encoded chunk is truncated after {len(view)} bytes")
    lengths = struct.unpack_from(f"<{word}I", view, _HEAD.size)
    count = length // word
    raw = [size for number, size in enumerate(lengths) if not flags >> number & 1]
    if any(size != count for size in raw) or end + sum(lengths) + length % word != len(view):
        raise Damaged("the planes of an encoded chunk do not have the lengths in its header")
    return word, flags, lengths


def _planes(data: Buffer, word: int) -> list[tuple[Buffer, bool]]:
    """Split a chunk into planes and compress each one if that saves enough. Return each stored plane, with
    True if it is compressed.
    """
    columns = np.frombuffer(data, np.uint8, len(data) // word * word).reshape(-1, word)
    return [_compress(np.ascontiguousarray(columns[:, number])) for number in range(word)]


def _compress(plane: _Bytes) -> tuple[Buffer, bool]:
    packed = _compressor().compress(plane.data)
    return (packed, True) if len(packed) <= MAX_ENCODED_RATIO * len(plane) else (plane.data, False)


def _decompress(plane: memoryview, size: int) -> bytes:
    """Decompress a plane. Raises Damaged, before memory is allocated, if the frame's header does not state
    `size` bytes.
    """
    try:
        if zstandard.frame_content_size(plane) != size:
            raise Damaged("a plane of an encoded chunk does not have one byte for each word")
        return _decompressor().decompress(plane, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Damaged(f"a plane of an encoded chunk cannot be decompressed: {error}") from error


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
