"""The process group with emulated links, as a backend of torch.distributed.

Python knows each operation before gloo begins it. The result is ready when gloo has it and the emulated time
is over. Operations overlap with computation as they do on real links.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from convoy_workloads.comm import costs
from convoy_workloads.comm.costs import Cost
from convoy_workloads.comm.links import Links
from convoy_workloads.comm.pacing import Pacer

BACKEND = "links"
# The stubs of torch lack a part of the C++ module.
_c10d: Any = importlib.import_module("torch._C._distributed_c10d")
_ProcessGroup: Any = dist.ProcessGroup


@dataclass(frozen=True, slots=True)
class Emulation:
    """The links of a process group, and the accounts of this rank."""

    links: Links
    pacer: Pacer = field(default_factory=Pacer)


def init(links: Links, pacer: Pacer | None = None, **settings: Any) -> Emulation:
    """Form the default process group with emulated links. Return the accounts of this rank.

    `settings`: further arguments of `torch.distributed.init_process_group`.
    """
    _register()
    made = Emulation(links, pacer or Pacer())
    dist.init_process_group(BACKEND, pg_options=made, **settings)
    return made


def new_group(emulation: Emulation, ranks: Sequence[int] | None = None) -> Any:
    """Form a further process group over the same links. Its operations share the links with the others."""
    _register()
    return dist.new_group(ranks, backend=BACKEND, pg_options=emulation)


class LinkedGroup(_ProcessGroup):  # type: ignore[misc]  # torch types its methods by their C++ overloads
    """A gloo process group whose operations take as long as on emulated links."""

    def __init__(self, options: Any, emulation: Emulation) -> None:
        """`options`: what torch.distributed tells a backend about the group."""
        super().__init__(options.group_rank, options.group_size)
        self._inner: Any = dist.ProcessGroupGloo(
            options.store, options.group_rank, options.group_size, options.timeout
        )
        self._links, self._pacer = emulation.links, emulation.pacer
        self._ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
        self._own = self._ranks[options.group_rank]
        # One thread keeps the order of the operations, which is the same in all ranks.
        self._order = ThreadPoolExecutor(1, thread_name_prefix="links")
        # A receive waits for its sender, so it must not hold up the operations after it.
        self._receives = ThreadPoolExecutor(8, thread_name_prefix="links-receive")

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return BACKEND

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """Reduce tensors over all ranks."""
        cost = costs.all_reduce(self._links, self._ranks, _bytes(tensors))
        return self._run(
            cost, lambda: self._inner.allreduce(tensors, opts or dist.AllreduceOptions()), tensors
        )

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """Reduce several tensors over all ranks, in one operation."""
        cost = costs.all_reduce(self._links, self._ranks, _bytes(tensors))
        given = opts or dist.AllreduceCoalescedOptions()
        return self._run(cost, lambda: self._inner.allreduce_coalesced(tensors, given), tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """Give all ranks the tensors of one."""
        cost = costs.broadcast(self._links, self._ranks, self._ranks[opts.rootRank], _bytes(tensors))
        return self._run(cost, lambda: self._inner.broadcast(tensors, opts), tensors)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """Reduce tensors to one rank."""
        cost = costs.broadcast(self._links, self._ranks, self._ranks[opts.rootRank], _bytes(tensors))
        return self._run(cost, lambda: self._inner.reduce(tensors, opts), tensors)

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        """Give all ranks the tensors of each rank."""
        cost = costs.all_gather(self._links, self._ranks, _bytes(inputs))
        given = opts or _c10d.AllgatherOptions()
        return self._run(cost, lambda: self._inner.allgather(outputs, inputs, given), outputs)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Give all ranks the tensor of each rank, in one tensor."""
        cost = costs.all_gather(self._links, self._ranks, _bytes([given]))
        options = opts or _c10d.AllgatherOptions()
        return self._run(cost, lambda: self._inner._allgather_base(output, given, options), output)

    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None
    ) -> Any:
        """Reduce tensors, and give each rank its part."""
        cost = costs.all_gather(self._links, self._ranks, _bytes(outputs))
        given = opts or dist.ReduceScatterOptions()
        return self._run(cost, lambda: self._inner.reduce_scatter(outputs, inputs, given), outputs)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Reduce a tensor, and give each rank its part."""
        cost = costs.all_gather(self._links, self._ranks, _bytes([output]))
        options = opts or dist.ReduceScatterOptions()
        return self._run(cost, lambda: self._inner._reduce_scatter_base(output, given, options), output)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_sizes: list[int],
        input_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        """Exchange parts of a tensor between all ranks. The largest part decides the time."""
        rows = max(input_sizes or [given.shape[0] // len(self._ranks)])
        part = rows * _bytes([given]) // max(1, given.shape[0])
        cost = costs.all_to_all(self._links, self._ranks, part)
        options = opts or dist.AllToAllOptions()

        def start() -> Any:
            return self._inner.alltoall_base(output, given, output_sizes, input_sizes, options)

        return self._run(cost, start, output)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Any:
        """Give one rank the tensors of each rank."""
        cost = costs.gather(self._links, self._ranks, self._ranks[opts.rootRank], _bytes(inputs))
        return self._run(cost, lambda: self._inner.gather(outputs, inputs, opts), outputs)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Any:
        """Give each rank its part of one rank's tensors."""
        cost = costs.scatter(self._links, self._ranks, self._ranks[opts.rootRank], _bytes(outputs))
        return self._run(cost, lambda: self._inner.scatter(outputs, inputs, opts), outputs)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        cost = costs.all_reduce(self._links, self._ranks, 0)
        return self._run(cost, lambda: self._inner.barrier(opts or dist.BarrierOptions()), [])

    def send(self, tensors: list[torch.Tensor], receiver: int, tag: int) -> Any:
        """Send tensors to a rank."""
        cost = costs.point_to_point(self._links, self._own, self._ranks[receiver], _bytes(tensors))
        return self._run(cost, lambda: self._inner.send(tensors, receiver, tag), tensors)

    def recv(self, tensors: list[torch.Tensor], sender: int, tag: int) -> Any:
        """Receive tensors from a rank. The sender accounts for the link; its latency counts here too."""
        work, done = self._inner.recv(tensors, sender, tag), Future[Any]()
        cost = costs.point_to_point(self._links, self._ranks[sender], self._own, _bytes(tensors))
        begun = self._pacer.now()
        self._receives.submit(self._finish, work, begun + cost.seconds, tensors, done)
        return _c10d._create_work_from_future(done)

    def _run(self, cost: Cost, start: Callable[[], Any], result: Any) -> Any:
        """Start an operation of gloo. Return work that is done when gloo and the links are."""
        end, work, done = self._pacer.reserve(cost), start(), Future[Any]()
        self._order.submit(self._finish, work, end, result, done)
        return _c10d._create_work_from_future(done)

    def _finish(self, work: Any, end: float, result: Any, done: Future[Any]) -> None:
        try:
            work.wait()
            self._pacer.wait_until(end)
        except Exception as error:
            done.set_exception(error)
            return
        done.set_result(result)


def _register() -> None:
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, LinkedGroup, extended_api=True, devices=["cpu"])


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)
