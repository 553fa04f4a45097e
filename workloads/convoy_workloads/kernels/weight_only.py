"""Products of activations with packed weights: `Linear` computes y = x W' with the kernels w4a16 and w8a16.

Activations are rounded to bfloat16 once, if they are not bfloat16 already; sums are fp32. A row of the
result has the same bits for every number of rows, place of the row and number of threads.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy_workloads.kernels import dispatch
from convoy_workloads.kernels.ctypes_kernel import kernel_function
from convoy_workloads.kernels.dispatch import Kernel, Selection
from convoy_workloads.kernels.errors import InvalidInput
from convoy_workloads.kernels.packing import TILE_OUTPUTS, PackedWeights, aligned
from convoy_workloads.kernels.threads import ThreadPool, shared_pool

INSTRUCTION_SETS = ("amx", "avx512bf16", "avx512", "avx2")
FLOAT32, BFLOAT16 = 0, 1
_CHUNK_INPUTS = 128
_OUTPUTS_TOGETHER = 8 * TILE_OUTPUTS
_INPUTS_OF_ONE_THREAD = 1 << 17
"""Activations up to which the caller's thread prepares them: waking another would take longer."""
_PRODUCTS_OF_ONE_THREAD = 1 << 18
"""Products (rows x outputs x inputs) up to which the caller's thread computes all."""
_KEPT_BYTES = 64 << 20
"""Workspace that each thread keeps for its next call."""


class Arguments(ctypes.Structure):
    """The struct `WeightOnly` of sources/weight_only.h."""

    _fields_ = (
        ("weights", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("prepared", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("group_size", ctypes.c_int64),
        ("input_stride", ctypes.c_int64),
        ("output_stride", ctypes.c_int64),
        ("input_type", ctypes.c_int64),
        ("output_type", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows in memory: activations or results."""

    address: int
    rows: int
    stride: int
    """Elements from one row to the next."""
    type: int
    """FLOAT32 or BFLOAT16."""


Product = Callable[[PackedWeights, Matrix, Matrix, ThreadPool], None]
"""Writes the product of activations with packed weights to the results."""


def bind(name: str) -> Callable[[ctypes.CDLL], Product]:
    """Return the function that makes the product of kernel `name` from a loaded library."""

    def bound(loaded: ctypes.CDLL) -> Product:
        prepare = kernel_function(loaded, f"convoy_{name}_prepare")
        multiply = kernel_function(loaded, f"convoy_{name}")
        row_blocks = getattr(loaded, f"convoy_{name}_row_blocks")
        row_blocks.restype, row_blocks.argtypes = ctypes.c_int64, (ctypes.c_void_p,)

        def product(packed: PackedWeights, x: Matrix, y: Matrix, pool: ThreadPool) -> None:
            if not x.rows:
                return
            padded = packed.groups * packed.group_size
            chunks = packed.groups * -(-packed.group_size // _CHUNK_INPUTS)
            memory = _workspace(x.rows * (padded + chunks) * 4)
            arguments = Arguments(
                packed.address, x.address, y.address, memory, memory + x.rows * padded * 4,
                x.rows, packed.outputs, packed.inputs, packed.group_size, x.stride, y.stride, x.type, y.type,
            )  # fmt: skip
            blocks, tiles = row_blocks(ctypes.byref(arguments)), -(-packed.outputs // TILE_OUTPUTS)
            if x.rows * padded <= _INPUTS_OF_ONE_THREAD:
                prepare(ctypes.byref(arguments), 0, blocks)
            else:
                pool.run(prepare, arguments, blocks)
            if x.rows * padded * packed.outputs <= _PRODUCTS_OF_ONE_THREAD:
                multiply(ctypes.byref(arguments), 0, tiles)
            else:
                pool.run(multiply, arguments, tiles, multiple=_OUTPUTS_TOGETHER // TILE_OUTPUTS)

        return product

    return bound


class Linear:
    """A linear layer with packed weights.

    `instruction_set` is `auto`, `twin` or a name of INSTRUCTION_SETS. `threads` 0: as many as the container
    can run. Several threads may call one layer at the same time.
    """

    def __init__(
        self,
        kernel: Kernel[Product],
        packed: PackedWeights,
        *,
        instruction_set: str = dispatch.AUTO,
        threads: int = 0,
    ) -> None:
        if packed.scheme != kernel.name:
            raise InvalidInput(f"weights of scheme {packed.scheme} for kernel {kernel.name}")
        self.packed = packed
        self.selection: Selection[Product] = dispatch.select(kernel, instruction_set)
        self._product = self.selection.function
        self._pool = shared_pool(threads)

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Return x W' for x [..., inputs]: an fp32 numpy array, or an fp32 or bfloat16 torch tensor of the
        CPU.

        The result has the kind and type of x. Or it is written to `out`: a contiguous array or tensor
        [..., outputs] of fp32 or bfloat16. The elements of each row of x must be contiguous. No gradients are
        computed.
        """
        shape = (*x.shape[:-1], self.packed.outputs) if getattr(x, "shape", ()) else ()
        rows = matrix("x", x, self.packed.inputs)
        found = _like(x, shape) if out is None else out
        if tuple(getattr(found, "shape", ())) != shape:
            raise InvalidInput(f"out: shape {tuple(getattr(found, 'shape', ()))} instead of {shape}")
        results = matrix("out", found, self.packed.outputs, writable=True)
        self._product(self.packed, rows, results, self._pool)
        return found


def matrix(name: str, array: Any, width: int, *, writable: bool = False) -> Matrix:
    """Return the rows of an array or tensor [..., width]. Raises InvalidInput if C code cannot use them."""
    shape = tuple(getattr(array, "shape", ()))
    if not shape or shape[-1] != width:
        raise InvalidInput(f"{name}: shape {'x'.join(map(str, shape))} does not end in {width}")
    if isinstance(array, np.ndarray):
        kind, address = _numpy_type(name, array, writable), array.ctypes.data
        strides = tuple(stride // array.itemsize for stride in array.strides)
    else:
        kind, address = _torch_type(name, array, writable), array.data_ptr()
        strides = array.stride()
    rows = math.prod(shape[:-1])
    if len(shape) == 2 and not writable and rows > 1:
        if strides[1] != 1 and width > 1:
            raise InvalidInput(f"{name}: the elements of a row are not contiguous")
        if strides[0] < 0:
            raise InvalidInput(f"{name}: its rows are in reverse order")
        return Matrix(address, rows, strides[0], kind)
    if not (array.flags.c_contiguous if isinstance(array, np.ndarray) else array.is_contiguous()):
        raise InvalidInput(f"{name}: not contiguous")
    return Matrix(address, rows, width, kind)


def _numpy_type(name: str, array: NDArray[Any], writable: bool) -> int:
    if array.dtype != np.float32:
        raise InvalidInput(f"{name}: dtype {array.dtype.str} instead of {np.dtype(np.float32).str}")
    if array.ctypes.data % array.itemsize or any(stride % array.itemsize for stride in array.strides):
        raise InvalidInput(f"{name}: its address or the step of its rows is no multiple of {array.itemsize}")
    if writable and not array.flags.writeable:
        raise InvalidInput(f"{name}: read-only")
    return FLOAT32


def _torch_type(name: str, tensor: Any, writable: bool) -> int:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        raise InvalidInput(f"{name}: {type(tensor).__name__} is no numpy array and no torch tensor")
    if tensor.device.type != "cpu":
        raise InvalidInput(f"{name}: on {tensor.device} instead of the CPU")
    if tensor.requires_grad and (writable or torch.is_grad_enabled()):
        raise InvalidInput(f"{name}: gradients are not computed; use torch.no_grad()")
    if tensor.dtype == torch.bfloat16:
        return BFLOAT16
    if tensor.dtype == torch.float32:
        return FLOAT32
    raise InvalidInput(f"{name}: dtype {tensor.dtype} instead of torch.float32 or torch.bfloat16")


def _like(array: Any, shape: tuple[int, ...]) -> Any:
    """Return uninitialised memory of an array's or a tensor's kind and type."""
    return np.empty(shape, np.float32) if isinstance(array, np.ndarray) else array.new_empty(shape)


_own = threading.local()


def _workspace(size: int) -> int:
    """Return the address of `size` bytes of this thread, which stay valid until its next call."""
    memory: NDArray[np.uint8] | None = getattr(_own, "memory", None)
    if memory is None or memory.nbytes < size or memory.nbytes > max(size, _KEPT_BYTES):
        memory = _own.memory = aligned(size)
    return int(memory.ctypes.data)
