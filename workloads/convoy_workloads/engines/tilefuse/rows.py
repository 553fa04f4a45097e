"""The rows of tilefuse in docs/bench/kernels.json: products, the loss of a trained model, and serving."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

from convoy_workloads.bench.comparison import compare, median_interval
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.gpt import data
from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.gpt.params import Params
from convoy_workloads.engines.gpt.schedule import learning_rate
from convoy_workloads.engines.tilefuse import bench, generation, memory
from convoy_workloads.engines.tilefuse.kernel_timing import Problem, differing_threads, largest_error, times
from convoy_workloads.engines.tilefuse.packed_linear import KERNELS
from convoy_workloads.engines.tilefuse.quantise import Request
from convoy_workloads.kernels import dispatch
from convoy_workloads.kernels.dispatch import TWIN
from convoy_workloads.kernels.threads import available_threads
from convoy_workloads.tensors.safetensors import write_tensors

MATRICES = ((4096, 4096), (2048, 7168), (11008, 4096))
MANY_ROWS = 32
BF16, INT8, INT4 = "torch bf16", "torch int8", "torch int4"
BETTER, FASTEST = "the better of torch int4 and int8", "the fastest of torch"
VECTOR_TARGETS = {
    ("w4a16", BF16): 2.6,
    ("w4a16", BETTER): 1.0,
    ("w8a16", BF16): 1.6,
}
"""Ratios with a target for one row, by kernel and baseline."""
ERROR_SHAPES = (
    Problem(4096, 4096, 1),
    Problem(2048, 7168, 5),
    Problem(1000, 1056, 33),
    Problem(64, 32_768, 3),
    Problem(32_768, 128, 2),
)
"""Shapes whose errors are measured: large, ragged, and with 32K inputs or outputs."""
QUALITY_STEPS = 2000
SEEDS = (0, 1, 2)


def kernel_figures(matrices: Sequence[tuple[int, int]] = MATRICES) -> Figures:
    """Measure products with one row and with MANY_ROWS rows."""
    found = Figures()
    sets = {scheme: dispatch.select(kernel).instruction_set for scheme, kernel in KERNELS.items()}
    threads = available_threads()
    for outputs, inputs in matrices:
        for rows in (1, MANY_ROWS):
            problem = Problem(outputs, inputs, rows)
            if TWIN in sets.values():
                metric = Metric(f"tilefuse, {problem}: times faster than {BF16}, w4a16", "times")
                found.add_unmeasured(metric, "no kernel for this processor, or no compiler")
                continue
            add_times(found, problem, times(problem, threads), sets)
    _add_exactness(found, sets, threads)
    for name, value in (("matrix-matrix product", 2.216), ("matrix-vector product", 3.81)):
        claim = Metric(f"tilefuse, paper: {name} on an NPU, times faster than full precision", "times",
                       kind="paper claim")  # fmt: skip
        found.add(claim, value)
    return found


def add_times(
    found: Figures, problem: Problem, measured: Mapping[str, Sequence[float]], sets: Mapping[str, str]
) -> None:
    """Add the rows of one product: milliseconds of each contender, and ratios with the instruction set."""
    for name, seconds in measured.items():
        used = f" ({sets[name]})" if name in sets else ""
        for one in seconds:
            found.add(Metric(f"tilefuse, {problem}: {name}{used}", "ms"), 1e3 * one)
    better = min((INT4, INT8), key=lambda name: statistics.median(measured[name]))
    fastest = min((BF16, INT4, INT8), key=lambda name: statistics.median(measured[name]))
    baselines = {BF16: BF16, BETTER: better}
    if problem.rows > 1:
        baselines[FASTEST] = fastest
    for scheme, instruction_set in sets.items():
        for title, baseline in baselines.items():
            target = VECTOR_TARGETS.get((scheme, title)) if problem.rows == 1 else None
            if (scheme, title) == ("w4a16", FASTEST):
                target = 1.0
            ours, theirs = measured[scheme], measured[baseline]
            ratios = [other / one for one, other in zip(ours, theirs, strict=True)]
            low, high, level = median_interval(ratios)
            mine, other = (1e3 * statistics.median(one) for one in (ours, theirs))
            both = f"{instruction_set}: {mine:.2f} ms, {baseline} {other:.2f} ms"
            metric = Metric(
                f"tilefuse, {problem}: {scheme}, times faster than {title}",
                "times",
                target,
                higher_is_better=True,
                spread=f"{both}; {level:.0%}: {low:.2f} to {high:.2f}, {len(ratios)} rounds",
            )
            found.add(metric, statistics.median(ratios))


def _add_exactness(found: Figures, sets: Mapping[str, str], threads: int) -> None:
    for scheme, instruction_set in sets.items():
        spread = f"{instruction_set}, {len(ERROR_SHAPES)} shapes"
        metric = Metric(
            f"tilefuse, {scheme}: largest error beside dequantised weights", "ratio", 1e-6, spread=spread
        )
        found.add(metric, max(largest_error(scheme, problem) for problem in ERROR_SHAPES))
        counts = sorted({1, 2, 3, threads})
        metric = Metric(
            f"equality: tilefuse, {scheme}: numbers of threads with other bits", "", 0,
            spread=f"{', '.join(map(str, counts))} threads",
        )  # fmt: skip
        found.add(metric, sum(differing_threads(scheme, problem, counts) for problem in ERROR_SHAPES))


def quality_figures(steps: int = QUALITY_STEPS, seeds: Sequence[int] = SEEDS) -> Figures:
    """Train models of gpt, quantise them, and measure the loss on held-out text."""
    found = Figures()
    for seed in seeds:
        _add_quality(found, steps, seed)
    return found


def _add_quality(found: Figures, steps: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = _train(Path(folder) / "model", steps, seed)
        for number, (name, wanted) in enumerate(_requests().items()):
            report = generation.make(source, Path(folder) / str(number), wanted, lambda _: None)
            title = f"tilefuse, gpt after {steps} steps"
            if number == 0:
                found.add(Metric(f"{title}: held-out loss in float32", "nats"), report.loss_before)
            found.add(Metric(f"{title}: held-out loss, {name}", "nats"), report.loss_after)
            target = 0.005 if wanted.samples and wanted.clip else None
            metric = Metric(f"{title}: relative change of the loss, {name}", "ratio", target)
            found.add(metric, report.loss_change)
            size = Metric(f"{title}: times smaller than in float32, {name}", "times", higher_is_better=True)
            found.add(size, report.bytes_before / report.bytes_after)


def _requests() -> dict[str, Request]:
    return {
        "w4a16": Request("w4a16", 128, 32, True, torch.bfloat16),
        "w4a16 in groups of 64": Request("w4a16", 64, 32, True, torch.bfloat16),
        "w4a16 without clipping": Request("w4a16", 128, 32, False, torch.bfloat16),
        "w4a16 to the nearest codes": Request("w4a16", 128, 0, False, torch.bfloat16),
        "w8a16": Request("w8a16", 128, 32, True, torch.bfloat16),
    }


def _train(folder: Path, steps: int, seed: int) -> Path:
    """Train a model with the defaults of gpt, and save it."""
    params = Params(steps=steps, seed=seed)
    torch.set_num_threads(available_threads())
    torch.manual_seed(params.seed)
    corpus = data.load(int(params.data_megabytes * 1e6))
    model = GPT(params.context, params.layers, params.width, params.heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate, betas=(0.9, 0.95))
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, params)
        inputs, targets = data.batch(corpus.train, params.seed, step, 0, params.batch, params.context)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    folder.mkdir()
    state = {name: one for name, one in model.state_dict().items() if name != "head.weight"}
    write_tensors(folder / "model.safetensors", state, {})
    (folder / "config.json").write_text(f'{{"heads": {params.heads}}}')
    return folder


def memory_figures() -> Figures:
    """Measure the growth of resident memory by a packed model, over the model's size."""
    found = Figures()
    for scheme in KERNELS:
        params = {**bench.MODEL, "quant": {"scheme": scheme}}
        metric = Metric(
            f"tilefuse, {scheme}: resident memory beyond the size of the packed model", "ratio", 0.01
        )
        found.add(metric, memory.growth(params))
    return found


def serving_figures() -> Figures:
    """Compare tilefuse with lm in bfloat16 on the same server."""
    return compare(bench.BENCH, "full")
