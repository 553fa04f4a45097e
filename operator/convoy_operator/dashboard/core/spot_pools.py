"""The tables of SpotPools: the pools themselves, their notices, grants, costs and conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import CapacityMode, NodeNotice, NoticeState
from convoy_crds.summaries import NOT_RECONCILED, WARNING_REASONS, age
from convoy_operator.dashboard.core import conditions
from convoy_operator.dashboard.core.attention import Concern
from convoy_operator.dashboard.core.formatting import ago, clock, job_link, node_link, spot_link
from convoy_operator.dashboard.core.job import Fact
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

NEW = "New"
READY = "Ready"
WAITING = "Waiting"
FALLBACK = "OnDemand"
PROBLEM = "Problem"
UNREADABLE = "Unreadable"
TONES = {
    READY: Tone.GOOD,
    WAITING: Tone.BUSY,
    FALLBACK: Tone.WARN,
    PROBLEM: Tone.BAD,
    NEW: Tone.WARN,
    UNREADABLE: Tone.BAD,
}
"""The states of a SpotPool that pages show, in the order of their counts, with their tones."""
COLUMNS = (
    Column("SpotPool", link=True),
    Column("State", badge=True),
    Column("Ready", number=True),
    Column("Noticed", number=True),
    Column("Preemptions", number=True),
    Column("Price per hour", number=True),
    Column("Cost per hour", number=True),
    Column("Cost", number=True),
    Column("Why", wide=True, brief=True),
)
NOTICES = (
    Column("Node", link=True),
    Column("Kind"),
    Column("State", badge=True),
    Column("Deadline", number=True),
    Column("Since", number=True),
    Column("Sources", wide=True),
)
GRANTS = (
    Column("Job", link=True),
    Column("Role"),
    Column("Pods", number=True),
    Column("Capacity"),
    Column("Why not more", wide=True),
)
COSTS = (Column("Use"), Column("Cost", number=True), Column("Share", number=True))
_NOTICE_TONES = {
    NoticeState.NOTICED: Tone.WARN,
    NoticeState.DRAINING: Tone.BAD,
    NoticeState.GONE: Tone.QUIET,
    NoticeState.FALSE_ALARM: Tone.WARN,
    NoticeState.WITHDRAWN: Tone.QUIET,
}


def state(pool: SpotPool) -> str:
    """Return the state that pages show for a pool."""
    status = pool.status
    if not status.conditions:
        return NEW
    if any(one.status == "False" and one.reason in WARNING_REASONS for one in status.conditions):
        return FALLBACK if status.mode is CapacityMode.ON_DEMAND and not _faults(pool) else PROBLEM
    if status.mode is CapacityMode.ON_DEMAND:
        return FALLBACK
    return READY if status.nodes.ready else WAITING


def _faults(pool: SpotPool) -> list[str]:
    """Return the reasons of the false conditions, except for the fall-back."""
    return [
        one.reason
        for one in pool.status.conditions
        if one.status == "False" and one.reason in WARNING_REASONS and one.type != "SpotAvailable"
    ]


def why(pool: SpotPool) -> str:
    """Describe the state of a pool in one line."""
    if not pool.status.conditions:
        return NOT_RECONCILED
    wrong = [one for one in pool.status.conditions if one.status == "False"]
    wrong.sort(key=lambda one: one.reason not in WARNING_REASONS)
    return f"{wrong[0].reason}: {wrong[0].message}" if wrong else "-"


def row(parsed: ParsedObject[SpotPool]) -> Row:
    """Return the table row of a pool."""
    name, pool = Cell(parsed.name, href=spot_link(parsed.name)), parsed.model
    if pool is None:
        rest = (Cell("-"),) * (len(COLUMNS) - 3)
        return Row(
            parsed.name, (name, Cell(UNREADABLE, Tone.BAD), *rest, Cell(parsed.parse_error)), UNREADABLE
        )
    status, shown = pool.status, state(pool)
    noticed = status.nodes.noticed + status.nodes.draining
    currency = pool.spec.price.currency or ""
    cells = (
        name,
        Cell(shown, TONES[shown]),
        _number(status.nodes.ready),
        _number(noticed, Tone.WARN if noticed else Tone.PLAIN),
        _number(status.preemptions.total),
        _money(status.price.per_hour, currency, Tone.PLAIN if status.price.known else Tone.WARN),
        _money(status.cost.per_hour, currency),
        _money(status.cost.spot + status.cost.on_demand, currency),
        Cell(why(pool)),
    )
    return Row(parsed.name, cells, shown)


def rows(pools: Iterable[ParsedObject[SpotPool]]) -> list[Row]:
    """Return the table rows of pools, by name."""
    return [row(parsed) for parsed in sorted(pools, key=lambda one: one.name)]


def counts(found: Iterable[Row]) -> dict[str, int]:
    """Return the number of pools in each state, without empty states."""
    numbers = Counter(one.group for one in found)
    return {name: numbers[name] for name in TONES if numbers[name]}


def concerns(pools: Iterable[ParsedObject[SpotPool]]) -> Iterator[Concern]:
    """Yield the problems of pools that a person should look at."""
    for parsed in pools:
        link, key = spot_link(parsed.name), f"spotpool/{parsed.name}"
        where = f"SpotPool {parsed.name}"
        if parsed.model is None:
            advice = "correct the manifest and apply it again"
            what = "SpotPool unreadable"
            yield Concern(key, what, Tone.BAD, where, link, None, parsed.parse_error, advice)
            continue
        for one in parsed.model.status.conditions:
            if one.status == "False" and one.reason in WARNING_REASONS:
                advice, since = f"run: convoy spot pools {parsed.name}", one.last_transition_time
                text = f"{one.reason}: {one.message}"
                what = "Spot pool held up"
                yield Concern(f"{key}/{one.type}", what, Tone.WARN, where, link, since, text, advice)


def facts(pool: SpotPool, now: datetime) -> list[Fact]:
    """Return the facts about a pool."""
    status, spec = pool.status, pool.spec
    nodes, preempted, cost = status.nodes, status.preemptions, status.cost
    total = cost.spot + cost.on_demand
    idle = f", {cost.unused / total:.0%} of it unused" if total else ""
    budget = f" of {spec.budget.max_spend:g}" if spec.budget.max_spend is not None else ""
    currency = f" {cost.currency}" if cost.currency else ""
    price = f"{status.price.per_hour:g}{currency}" + ("" if status.price.known else " (on-demand price)")
    since = f", since {age(status.mode_since, now)}" if status.mode_since else ""
    found = [
        Fact("Capacity", f"{status.mode}{since}"),
        Fact("Spot nodes", f"{nodes.ready} ready, {nodes.noticed} noticed, {nodes.draining} draining"),
        Fact("On-demand nodes", str(nodes.on_demand)),
        Fact("Price per hour", price, Tone.PLAIN if status.price.known else Tone.WARN),
        Fact("Price read", ago(status.price.as_of, now)),
        Fact("Cost", f"{total:.2f}{budget}{currency}{idle}"),
        Fact("Cost per hour", f"{cost.per_hour:.2f}{currency}"),
        Fact("Preemptions", f"{preempted.with_notice} with, {preempted.without_notice} without notice"),
    ]
    if status.notice_seconds is not None:
        lead = status.notice_seconds
        found.append(Fact("Notice", f"median {lead.p50:.0f} s, shortest {lead.min:.0f} s"))
    return found


def notice_rows(pool: SpotPool, now: datetime) -> list[Row]:
    """Return the notices as table rows."""
    return [_notice(one, now) for one in pool.status.notices]


def _notice(one: NodeNotice, now: datetime) -> Row:
    repeats = f" ({one.repeats} repeats)" if one.repeats else ""
    left = one.deadline.timestamp() if one.deadline is not None else None
    cells = (
        Cell(one.node, href=node_link(one.node)),
        Cell(one.kind),
        Cell(one.state, _NOTICE_TONES[one.state]),
        Cell(clock(one.deadline) if one.deadline is not None else "-", order=left),
        Cell(ago(one.at, now), order=-one.at.timestamp()),
        Cell(", ".join(one.sources) + repeats),
    )
    return Row(f"{one.node_uid}/{one.boot_id}", cells)


def grant_rows(pool: SpotPool, allowed: frozenset[str]) -> list[Row]:
    """Return the grants to jobs of the namespaces in `allowed` as table rows."""
    return [
        Row(
            f"{one.namespace}/{one.job}/{one.role}",
            (
                Cell(f"{one.namespace}/{one.job}", href=job_link(one.namespace, one.job)),
                Cell(one.role),
                _number(one.pods, Tone.WARN if one.reason else Tone.PLAIN),
                Cell(one.mode),
                Cell(f"{one.reason}: {one.message}" if one.reason else "-"),
            ),
        )
        for one in pool.status.grants
        if one.namespace in allowed
    ]


def cost_rows(pool: SpotPool, allowed: frozenset[str]) -> list[Row]:
    """Return the parts of the cost as table rows. The namespaces that are not in `allowed` are one part."""
    cost = pool.status.cost
    total = cost.spot + cost.on_demand
    parts = {f"namespace {one.namespace}": one.spend for one in cost.by_namespace if one.namespace in allowed}
    hidden = sum(one.spend for one in cost.by_namespace if one.namespace not in allowed)
    parts |= {"other namespaces": hidden} if hidden else {}
    parts |= {"unused": cost.unused, "not observed": cost.residual}
    return [
        Row(
            use,
            (
                Cell(use),
                _money(spend, cost.currency),
                Cell(f"{spend / total:.0%}", order=spend, share=spend / total),
            ),
        )
        for use, spend in parts.items()
        if total
    ]


def condition_rows(pool: SpotPool, now: datetime) -> list[Row]:
    """Return the conditions as table rows."""
    return conditions.rows(pool.status.conditions, now, conditions.good_if_true)


def _number(value: int, tone: Tone = Tone.PLAIN) -> Cell:
    return Cell(str(value), tone, order=float(value))


def _money(value: float, currency: str, tone: Tone = Tone.PLAIN) -> Cell:
    return Cell(f"{value:.2f} {currency}".rstrip(), tone, order=value)
