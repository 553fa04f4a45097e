"""SGD of generalized linear models whose columns are spread over ranks, with one all-reduce for s iterations.

Rank p has the columns X_p of the features and the weights w_p. Plain SGD needs the margins of each batch from
all ranks, so it calls an all-reduce in each iteration. CA-SGD gathers the rows Y of s batches, and reduces

    z = sum over p of Y_p w_p    and    G = sum over p of Y_p Y_p^T, the blocks below the diagonal

in one message. Then each rank computes the margins that plain SGD would have seen. With the step sizes c, the
factors r = 1 - c l2 and the derivatives u, iteration k of the block has

    m_k = r_0 ... r_(k-1) z_k - sum over j < k of G_kj v_j,    v_j = c_j u_j r_(j+1) ... r_(k-1)

and at the end of the block w_p = r_0 ... r_(s-1) w_p - Y_p^T v. In exact arithmetic this is plain SGD. With s
= 1 the message has no Gram matrix: it is plain SGD.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from convoy_workloads.comm.collectives import Collectives, of_group
from convoy_workloads.comm.triangle import BlockTriangle
from convoy_workloads.optim.agreement import disagreement
from convoy_workloads.optim.block_size import choose
from convoy_workloads.optim.device_stopwatch import DeviceStopwatch
from convoy_workloads.optim.gram import gram_into
from convoy_workloads.optim.losses import LOSSES, LossName
from convoy_workloads.optim.precision import FP32, Precision

MAX_BLOCK = 256
"""Largest number of iterations for one all-reduce."""
COPIED_BYTES = 1 << 18
"""Bytes of a message, for each iteration, up to which the processor computes the iterations of a GPU's block.
They are a chain of small operations, and to start those on a GPU takes longer than to copy the message.
"""
PROCESSOR = torch.device("cpu")


class GlmDataError(ValueError):
    """The features or targets cannot be trained on."""


class Diverged(ArithmeticError):
    """The margins are not finite any more: the learning rate is too high, or the targets are too large."""


@dataclass(frozen=True, kw_only=True)
class CASGDOptions:
    """The settings of a training. Raises ValueError for an invalid one."""

    loss: LossName
    """Loss of the model: logistic, linear or poisson."""
    lr: float
    """Learning rate."""
    batch: int
    """Usual number of rows of a batch, from which `auto` chooses s."""
    s: int | Literal["auto"] = "auto"
    """Number of iterations for one all-reduce; `auto` to choose it from measured costs."""
    l2: float = 0.0
    """Factor of the L2 penalty."""
    precision: Precision = FP32
    """Types of numbers."""

    def __post_init__(self) -> None:
        if self.s != "auto" and not 1 <= self.s <= MAX_BLOCK:
            raise ValueError(f"s: {self.s} is not between 1 and {MAX_BLOCK}")
        if self.batch < 1:
            raise ValueError(f"batch: {self.batch} is not above 0")
        if not self.lr > 0 or not self.l2 >= 0 or self.lr * self.l2 >= 1:
            raise ValueError(
                f"lr: {self.lr} and l2: {self.l2}: lr must be above 0, l2 0 or more, lr x l2 below 1"
            )
        if self.loss not in LOSSES:
            raise ValueError(f"loss: {self.loss!r} is not one of {', '.join(LOSSES)}")


class CASGD(Optimizer):
    """SGD for a generalized linear model, with one all-reduce for `s` iterations.

    Each rank passes its own columns of the features; all ranks pass the same rows, in the same order. `step`
    takes the row numbers of one batch, like an iteration of SGD. It computes when `s` batches are there;
    `weights` computes at once what is left.

    ```python
    options = CASGDOptions(loss="logistic", lr=0.1, batch=16, s=8)
    optimizer = CASGD(features[:, mine], targets, options)
    for rows in batches:  # the same batches on all ranks
        optimizer.step(rows)
    print(optimizer.weights)  # of this rank's columns
    ```

    Learning rates of `param_groups` may change between two calls of `step`, for example by a scheduler.
    """

    def __init__(
        self,
        features: Tensor,
        targets: Tensor,
        options: CASGDOptions,
        *,
        weights: Tensor | None = None,
        collectives: Collectives | None = None,
    ) -> None:
        """`features`: all rows of this rank's columns. `targets`: one number for each row. `weights`: first
        weights of this rank's columns, which are changed in place; zeros by default. `collectives`: the
        ranks that have the other columns; by default those of the default process group.

        All ranks must call this. Raises GlmDataError on all ranks if the features or targets of one cannot be
        used, or if ranks differ in more than columns, and ValueError for weights that do not fit.
        """
        precision = options.precision
        self.collectives = collectives or of_group()
        fault = _fault(features, targets, weights, options)
        problem = disagreement(fault is not None, targets, asdict(options), self.collectives)
        if fault is not None or problem:
            raise fault or GlmDataError(problem)
        if weights is None:
            weights = torch.zeros(features.shape[1], dtype=precision.weight, device=features.device)
        super().__init__([weights], {"lr": options.lr, "l2": options.l2})
        self._loss = LOSSES[options.loss]
        self._precision = precision
        self._features = features.to(precision.data)
        self._targets = {one: targets.to(one) for one in (features.device, PROCESSOR)}
        self._weights = weights
        self._pending: list[tuple[Tensor, float, float]] = []
        """Row numbers, on the processor, learning rate and L2 factor of each iteration that is not computed
        yet.
        """
        self._gram_time = DeviceStopwatch(features.device)
        self.batch_loss = float("nan")
        """Mean loss over the rows of the last computed block, each before its own iteration."""
        self._layouts: dict[tuple[int, ...], BlockTriangle] = {}
        began = time.perf_counter()
        s = options.s
        self.s: int = choose(self._features, options.batch, precision, self.collectives) if s == "auto" else s
        """Number of iterations for one all-reduce."""
        self.choice_seconds = time.perf_counter() - began if s == "auto" else 0.0
        """Seconds that `auto` has taken to choose s."""

    @property
    def gram_seconds(self) -> float:
        """Return the seconds for this rank's part of the Gram matrices of all computed iterations."""
        return self._gram_time.seconds

    @property
    def weights(self) -> Tensor:
        """Return the weights of this rank's columns after all iterations. All ranks must ask for them at the
        same iteration.
        """
        self.flush()
        return self._weights

    @torch.no_grad()
    def step(self, rows: Tensor) -> None:  # type: ignore[override]  # SGD's closure cannot name the rows
        """Take the rows of one batch. Compute if these are the last of `s` batches.

        Raises IndexError for a row that does not exist, and Diverged if margins are not finite.
        """
        if rows.dim() != 1 or not len(rows):
            raise ValueError(f"rows: a batch of shape {list(rows.shape)} is not a list of row numbers")
        rows = rows.to(PROCESSOR)
        least, most = (int(one) for one in torch.aminmax(rows))
        if least < 0 or most >= len(self._features):
            raise IndexError(
                f"rows: {least} to {most}, but there are the rows 0 to {len(self._features) - 1}"
            )
        group = self.param_groups[0]
        if not group["lr"] >= 0:
            raise ValueError(f"lr: {group['lr']} is not 0 or more")
        self._pending.append((rows, group["lr"], group["l2"]))
        if len(self._pending) >= self.s:
            self.flush()

    @torch.no_grad()
    def flush(self) -> None:
        """Compute the iterations that wait. All ranks must call this at the same iteration."""
        if not self._pending:
            return
        pending = self._pending
        rows = torch.cat([one for one, _, _ in pending])
        sizes = tuple(len(one) for one, _, _ in pending)
        layout = self._layouts.setdefault(sizes, BlockTriangle(sizes))
        given = self._features.index_select(0, rows.to(self._features.device))
        message = self._message(given, layout)
        self.collectives.all_reduce(message)
        if message.nbytes <= COPIED_BYTES * len(pending):
            message = message.to(PROCESSOR)
        rates = [(lr, 1.0 - lr * l2) for _, lr, l2 in pending]
        targets = self._targets[message.device].index_select(0, rows.to(message.device))
        scaled, kept = self._recur(message, layout, rates, targets.to(self._precision.residual))
        self._gram_time.read()  # The recurrence has waited for the device.
        update = self._precision.update
        delta = torch.mv(given.to(update).t(), scaled.to(given.device, update))
        self._weights.mul_(kept).sub_(delta)
        self._pending = []  # Only now: an error above leaves them, so the next flush fails too.

    def _message(self, given: Tensor, layout: BlockTriangle) -> Tensor:
        """Return this rank's part of the Gram matrix' blocks and of the margins."""
        precision = self._precision
        message = torch.empty(
            layout.elements + layout.rows, dtype=precision.communication, device=given.device
        )
        if layout.elements:
            with self._gram_time:
                gram_into(message, given.to(precision.gram_input), layout, precision.gram_accumulation)
        margins = torch.mv(given.to(precision.weight), self._weights)
        message[layout.elements :] = margins.to(precision.margin)
        return message

    def _recur(
        self, message: Tensor, layout: BlockTriangle, rates: list[tuple[float, float]], targets: Tensor
    ) -> tuple[Tensor, float]:
        """Return the scaled derivatives v of all rows, and the factor that L2 leaves of the weights."""
        precision = self._precision
        gram = message[: layout.elements].to(precision.recurrence)
        margins = message[layout.elements :].to(precision.recurrence)
        scaled = torch.zeros(layout.rows, dtype=precision.recurrence, device=message.device)
        kept = 1.0
        for block, (rate, factor) in enumerate(rates):
            start, end = layout.starts[block], layout.starts[block + 1]
            own = margins[start:end]
            if kept != 1.0:
                own *= kept
            if block:
                self._correct(own, layout.row(gram, block), scaled[:start], layout)
            derivative = self._loss.derivative(own.to(precision.residual), targets[start:end])
            if factor != 1.0:
                scaled[:start] *= factor
            scaled[start:end] = derivative * (rate / (end - start))
            kept *= factor
        self.batch_loss = float(self._loss.value(margins.to(precision.residual), targets).mean())
        if not torch.isfinite(margins).all():
            raise Diverged("margins are not finite: use a lower learning rate, or scale features and targets")
        return scaled, kept

    def _correct(self, own: Tensor, gram: Tensor, scaled: Tensor, layout: BlockTriangle) -> None:
        """Subtract from a block's margins what earlier iterations of the message have changed."""
        if own.dtype != torch.bfloat16:
            own.addmv_(gram, scaled, alpha=-1.0)
            return
        # Each of the sums of a recurrence in low precision is rounded.
        for start, end in zip(layout.starts, layout.starts[1:], strict=False):
            if end <= len(scaled):
                own -= torch.mv(gram[:, start:end], scaled[start:end])

    @torch.no_grad()
    def margins(self, features: Tensor | None = None) -> Tensor:
        """Return the margins of rows, by default of all training rows. All ranks must call this.

        `features`: this rank's columns of the rows.
        """
        own = torch.mv(
            (self._features if features is None else features).to(self._weights.dtype), self.weights
        )
        self.collectives.all_reduce(own)
        return own

    def loss(self) -> float:
        """Return the mean loss over all training rows, without L2, from the features as they are stored. All
        ranks must call this.
        """
        margins = self.margins().double()
        return float(self._loss.value(margins, self._targets[margins.device].double()).mean())

    def state_dict(self) -> dict[str, Any]:
        """Return the weights' state: the iterations that wait, and s."""
        state = super().state_dict()
        state["state"] = {
            0: {
                "s": self.s,
                "rows": torch.cat([rows for rows, _, _ in self._pending])
                if self._pending
                else torch.empty(0),
                "sizes": [len(rows) for rows, _, _ in self._pending],
                "rates": [(lr, l2) for _, lr, l2 in self._pending],
            }
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` has returned. The weights themselves are not in it."""
        own = state_dict["state"][0]
        super().load_state_dict({**state_dict, "state": {}})
        self.s = int(own["s"])
        rows = own["rows"].to(PROCESSOR, torch.long)
        batches = torch.split(rows, list(own["sizes"])) if own["sizes"] else ()
        self._pending = [(rows, *rates) for rows, rates in zip(batches, own["rates"], strict=True)]


def _fault(
    features: Tensor, targets: Tensor, weights: Tensor | None, options: CASGDOptions
) -> ValueError | None:
    """Return the reason for which this rank cannot train, or None."""
    accepts, wanted = LOSSES[options.loss].accepts, LOSSES[options.loss].targets
    if features.dim() != 2 or not features.shape[0] or not features.shape[1]:
        shape = list(features.shape)
        return GlmDataError(f"features: shape {shape} is not [rows, columns] with at least one each")
    if targets.shape != features.shape[:1]:
        return GlmDataError(f"targets: {list(targets.shape)} for {features.shape[0]} rows")
    if not torch.isfinite(features).all():
        return GlmDataError("features: a value is not finite")
    if not accepts(targets).all():
        row = int((~accepts(targets)).nonzero()[0])
        return GlmDataError(
            f"targets: {float(targets[row])} in row {row}, but the loss {options.loss} needs {wanted}"
        )
    kind = options.precision.weight
    if weights is not None and (weights.shape != features.shape[1:] or weights.dtype != kind):
        return ValueError(f"weights: {list(weights.shape)} of {weights.dtype} do not fit the features")
    return None
