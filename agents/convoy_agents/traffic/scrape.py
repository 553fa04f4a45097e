"""Reads the totals of a serving pod from the Prometheus metrics of its program. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from convoy_agents.traffic.totals import MAX_BOUNDS, MAX_COUNT, MAX_SECONDS, ascending
from convoy_agents.wire import hub_pb2

PREFIXES = ("convoy_", "vllm:")
"""Prefixes of the metrics that are read. Names and meanings are those of vLLM."""
_PREFIX = rf"(?:{'|'.join(map(re.escape, PREFIXES))})"
_WANTED = re.compile(
    rf"{_PREFIX}(num_requests_waiting|num_requests_running|request_success_total|requests_refused_total"
    r"|generation_tokens_total|inference_compute_seconds_total|e2e_request_latency_seconds_bucket"
    r"|time_to_first_token_seconds_bucket)(?=[ {])|process_cpu_seconds_total(?= )"
)
_FAILED = frozenset({"error", "deadline"})
"""Values of the label `finished_reason` for requests that ended without a complete result."""


class ScrapeError(ValueError):
    """The metrics cannot be read. The message says why."""


def read(text: str, uid: str, incarnation: int) -> hub_pb2.PodTraffic:
    """Return the totals in a text of Prometheus' format. Series of several models or engines add up. Raises
    ScrapeError for an invalid line, or if none of the metrics exists.
    """
    # The parser is slow, so it gets only the lines that matter.
    lines = "\n".join(line for line in text.splitlines() if _WANTED.match(line))
    try:
        samples = [one for family in text_string_to_metric_families(lines + "\n") for one in family.samples]
    except Exception as error:  # The parser raises several kinds of errors for malformed lines.
        raise ScrapeError(f"invalid metrics: {error}") from error
    found: dict[str, list[Sample]] = defaultdict(list)
    for one in samples:
        found[_short(one.name)].append(one)
    if not found.keys() - {"process_cpu_seconds_total"}:
        known = " nor ".join(f"{prefix}*" for prefix in PREFIXES)
        raise ScrapeError(f"the program exports neither {known} metrics of requests")
    ended = found["request_success_total"]
    failed = [one for one in ended if one.labels.get("finished_reason") in _FAILED]
    totals = hub_pb2.PodTraffic(
        pod_uid=uid,
        incarnation=incarnation,
        queue=_count(found["num_requests_waiting"]),
        in_flight=_count(found["num_requests_running"]),
        requests=_count(ended),
        errors=_count(failed),
        refused=_count(found["requests_refused_total"]),
        tokens=_count(found["generation_tokens_total"]),
        compute_seconds=min(MAX_SECONDS, _sum(found["inference_compute_seconds_total"])),
        cpu_seconds=min(MAX_SECONDS, _sum(found["process_cpu_seconds_total"])),
    )
    _fill(totals.latency, found["e2e_request_latency_seconds_bucket"])
    _fill(totals.first_token, found["time_to_first_token_seconds_bucket"])
    return totals


def _short(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _sum(samples: Iterable[Sample]) -> float:
    return sum(min(one.value, MAX_COUNT) for one in samples if math.isfinite(one.value) and one.value > 0)


def _count(samples: Iterable[Sample]) -> int:
    return min(MAX_COUNT, round(_sum(samples)))


def _fill(histogram: hub_pb2.Latencies, samples: Sequence[Sample]) -> None:
    """Fill a histogram with the sum of all series' buckets, which count cumulatively. A histogram with too
    many buckets stays empty.
    """
    cumulative: dict[float, list[Sample]] = defaultdict(list)
    for one in samples:
        cumulative[_bound(one.labels)].append(one)
    bounds = sorted(bound for bound in cumulative if math.isfinite(bound))
    if not 0 < len(bounds) <= MAX_BOUNDS or math.inf not in cumulative or not ascending(bounds):
        return
    counts = [_count(cumulative[bound]) for bound in (*bounds, math.inf)]
    histogram.bounds.extend(bounds)
    histogram.counts.append(counts[0])
    histogram.counts.extend(max(0, high - low) for low, high in itertools.pairwise(counts))


def _bound(labels: Mapping[str, str]) -> float:
    try:
        return float(labels.get("le", ""))
    except ValueError:
        return math.nan
