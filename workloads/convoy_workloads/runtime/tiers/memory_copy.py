"""Copies tensors to and from a node's memory, with all threads that torch may use.

The threads call the C library's memmove, and ctypes releases the GIL during each call. The threads take
pieces of the copy from one queue, so a thread that another program delays holds up only its own piece.
Torch's `copy_` instead waits for all threads after each tensor.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque

import torch

PIECE_BYTES = 8 << 20
"""Maximum number of bytes that a thread copies in one call."""
MAX_THREADS = 8
"""Maximum number of threads. Fewer than this many cores usually saturate the memory of a socket."""
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


class MemoryCopy:
    """Copies between tensors that are all done at once by `run`. The tensors must live until then.

    Copies of one `MemoryCopy` must not overlap each other.
    """

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, int, int]] = deque()
        """Pieces to copy, each as the target's address, the source's address, and the number of bytes."""
        self._bytes = 0
        self._others: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Targets and sources that torch must copy."""
        self._failures: list[BaseException] = []
        """Errors of the other threads."""

    def add(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Add a copy from `source` to `target`, which have the same shape. Torch converts the values if the
        types, devices or strides differ.
        """
        if not (
            _is_plain(target)
            and _is_plain(source)
            and target.dtype == source.dtype
            and target.shape == source.shape
        ):
            self._others.append((target, source))
            return
        to, start = target.data_ptr(), source.data_ptr()
        size = source.numel() * source.element_size()
        if to == start:
            return
        if not (to and start):
            self._others.append((target, source))  # No memory, such as a zero tensor of torch's autograd.
            return
        self._add_pieces(to, start, size)

    def add_bytes(self, to: int, source: torch.Tensor) -> bool:
        """Add a copy of the tensor's bytes to the address `to`, which must have room for them. Return False,
        and add nothing, if only torch can read the tensor's values.

        This takes a third of the time of `add`, which counts for many small tensors.
        """
        start = source.data_ptr() if _is_plain(source) else 0
        if start:
            self._add_pieces(to, start, source.numel() * source.element_size())
        return bool(start)

    def _add_pieces(self, to: int, start: int, size: int) -> None:
        self._bytes += size
        for at in range(0, size, PIECE_BYTES):
            self._pieces.append((to + at, start + at, min(PIECE_BYTES, size - at)))

    def run(self) -> None:
        """Make all added copies. Return when all bytes are copied, also those from a GPU.

        If an error ends the copy, the threads and the GPUs also have ended their parts. So the caller may
        free the memory in both cases.
        """
        helpers: list[threading.Thread] = []
        try:
            for target, source in self._others:
                target.copy_(source, non_blocking=_uses_cuda(target, source))
            self._start(helpers)
            self._work()
        finally:
            self._pieces.clear()
            for one in helpers:
                one.join()
            devices = {one.device for pair in self._others for one in pair if one.device.type == "cuda"}
            for device in devices:
                torch.cuda.current_stream(device).synchronize()
            self._others.clear()
            self._bytes = 0
        if self._failures:
            raise self._failures.pop()

    def _start(self, helpers: list[threading.Thread]) -> None:
        """Start the other threads, and add them to `helpers`."""
        count = min(torch.get_num_threads(), MAX_THREADS, -(-self._bytes // PIECE_BYTES))
        for _ in range(count - 1):
            one = threading.Thread(target=self._help, name="convoy-copy")
            try:
                one.start()
            except RuntimeError:  # The system permits no further thread. The other threads copy everything.
                return
            helpers.append(one)

    def _help(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failures.append(error)

    def _work(self) -> None:
        while True:
            try:
                to, start, size = self._pieces.popleft()
            except IndexError:
                return
            ctypes.memmove(to, start, size)


def _uses_cuda(*tensors: torch.Tensor) -> bool:
    """Return True if a tensor is on a CUDA device, whose stream `run` waits for."""
    return any(one.device.type == "cuda" for one in tensors)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return True if the bytes at the tensor's address are its values, one after another."""
    return (
        type(tensor) in _PLAIN_TYPES
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
