"""Memory between pages that nobody may touch: a kernel that reads or writes outside of it dies at once."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_PROT_NONE = 0


class Guarded:
    """Memory of at most `size` bytes, which is reused for one array after another."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._size = -(-size // page) * page
        self._memory = mmap.mmap(-1, self._size + 2 * page)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        library = ctypes.CDLL(None, use_errno=True)
        for guard in (self._address, self._address + page + self._size):
            if library.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect failed")

    def array(self, dtype: npt.DTypeLike, count: int, *, at_end: bool = True) -> npt.NDArray[Any]:
        """Return an array of `count` elements that ends, or starts, beside a guarded page.

        The array is valid until the next call.
        """
        kind = np.dtype(dtype)
        size = count * kind.itemsize
        if size > self._size:
            raise ValueError(f"{size} bytes are more than the memory's {self._size}")
        start = mmap.PAGESIZE + (self._size - size if at_end else 0)
        return np.frombuffer(self._memory, kind, count, start)
