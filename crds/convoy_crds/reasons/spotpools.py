"""Reasons about SpotPools, and about the jobs that use them."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class SpotPoolReasons:
    """Reasons about SpotPools, and about the jobs that use them."""

    POOL_READY = Reason("PoolReady", "{usable} of {nodes} spot nodes can get pods{remark}")
    POOL_EMPTY = Reason(
        "PoolEmpty",
        "spec.selector: no node has the labels {selector}. If an autoscaler creates the nodes, this is "
        "normal until a job wants pods; else correct the selector, or label the nodes",
    )
    POOL_OVERLAPS = Reason(
        "PoolOverlaps",
        "spec.selector: all {count} nodes that it selects belong to other SpotPools ({others}), whose names "
        "come first; correct one of the selectors",
        warning=True,
    )
    FALLBACK_OVERLAPS = Reason(
        "FallbackOverlaps",
        "spec.fallback.onDemandSelector: {count} nodes that it selects are spot nodes of other SpotPools "
        "({others}), which pay for them; let it select on-demand nodes only",
        warning=True,
    )
    PRICE_KNOWN = Reason("PriceKnown", "a spot node costs {price:g} per hour{remark}")
    PRICE_UNDATED = Reason(
        "PriceUndated",
        "{path} {fault}, so the age of the spot price is unknown. The on-demand price {price:g} counts; "
        "set it to the time at which the price was read",
        warning=True,
    )
    PRICE_STALE = Reason(
        "PriceStale",
        "spec.price.asOf: the spot price was read {hours} h ago, and spec.price.maxAge is {age}. The "
        "on-demand price {price:g} counts; update the price and asOf",
        warning=True,
    )
    PRICE_GAP = Reason(
        "PriceGap",
        "{path} has no price for the present time, so the on-demand price {price:g} counts; add a price",
        warning=True,
    )
    PRICE_TRACE_MISSING = Reason(
        "PriceTraceMissing",
        "spec.price.spot.trace: key {key!r} of ConfigMap {name!r} in the operator's namespace cannot be "
        "read: {why}. The on-demand price {price:g} counts",
        warning=True,
    )
    PRICE_TRACE_INVALID = Reason(
        "PriceTraceInvalid",
        "spec.price.spot.trace: key {key!r} of ConfigMap {name!r} is no price trace: {why}. The on-demand "
        "price {price:g} counts; correct the line",
        warning=True,
    )
    WITHIN_BUDGET = Reason("WithinBudget", "no budget of the pool is reached")
    POOL_BUDGET_SPENT = Reason(
        "PoolBudgetSpent",
        "the nodes have cost spec.budget.maxSpend, which is {limit}. The pool's pods are drained; "
        "raise the budget, or delete the nodes",
        warning=True,
    )
    NAMESPACE_BUDGET_SPENT = Reason(
        "NamespaceBudgetSpent",
        "namespace {namespace!r} has spent spec.budget.perNamespace.maxSpend, which is {limit}. Its "
        "pods are drained; raise the budget, or end its jobs",
        warning=True,
    )
    HOURLY_BUDGET_REACHED = Reason("HourlyBudgetReached", "{why}")
    SPOT_IN_USE = Reason("SpotInUse", "pods are placed on spot nodes; {ready} can get pods")
    AWAITING_SPOT_NODE = Reason(
        "AwaitingSpotNode", "no spot node can get pods, and jobs want {wanted}; they wait for a spot node"
    )
    NO_SPOT_NODE = Reason(
        "NoSpotNode",
        "no spot node could get pods for spec.fallback.after={after}, so pods are placed on on-demand nodes",
        warning=True,
    )
    TOO_FEW_SPOT_NODES = Reason(
        "TooFewSpotNodes",
        "for spec.fallback.after={after} only {ready} spot nodes could get pods, and {enough} are needed "
        "(spec.fallback.spotBelow={below}), so further pods are placed on on-demand nodes",
        warning=True,
    )
    INTERRUPTED_TOO_OFTEN = Reason(
        "InterruptedTooOften",
        "{count} preemptions within an hour, more than spec.fallback.maxInterruptionsPerHour={limit}; pods "
        "are placed on on-demand nodes",
        warning=True,
    )
    ON_DEMAND_STAY = Reason(
        "OnDemandStay",
        "pods are placed on on-demand nodes until spec.fallback.minimumStay={stay} is over and {enough} spot "
        "nodes are ready, or one has room; {ready} are ready",
    )
    NOTICES_RELIABLE = Reason("NoticesReliable", "no notice has proved wrong lately")
    SOURCE_NOT_POLLED = Reason(
        "SourceNotPolled",
        "spec.notice.metadata: the agents on {count} of {nodes} nodes do not read the notices of {source}, "
        "so these nodes may vanish without notice; node {node}: {why}",
        warning=True,
    )
    SPOT_NOTICE = Reason("SpotNotice", "{kind} of node {node} {until}, announced by {sources}", warning=True)
    SPOT_FALSE_NOTICE = Reason(
        "SpotFalseNotice",
        "node {node} is still ready a minute after the deadline of its notice, so it gets pods again; check "
        "the source of the notice: {sources}",
        warning=True,
    )
    SPOT_PREEMPTED = Reason("SpotPreempted", "node {node} was lost {how}", warning=True)

    POOL_GRANTED = Reason("PoolGranted", "{counts}")
    POOL_PENDING = Reason(
        "PoolPending", "SpotPool {pool!r} has not granted pods to roles[{index}] yet; they wait for the pool"
    )
    UNKNOWN_POOL = Reason(
        "UnknownPool",
        "spec.roles[{index}].spotPool: SpotPool {pool!r} does not exist; {known}",
        warning=True,
    )
    POOL_NOT_ALLOWED = Reason(
        "PoolNotAllowed",
        "SpotPool {pool!r} does not allow namespace {namespace!r}; add it to the pool's "
        "spec.allowedNamespaces, or use another pool",
        warning=True,
    )
    POOL_HOLDS_GROUP = Reason(
        "PoolHoldsGroup",
        "the job's process group runs on nodes of SpotPool {pool!r} ({nodes}), whose loss would restart it; "
        "keep the Member roles off these nodes with a nodeSelector, or correct the pool's spec.selector",
        warning=True,
    )
    POOL_FULL = Reason(
        "PoolFull",
        "SpotPool {pool!r} grants {pods} of {wanted} pods: its {field} allows {most} in all",
    )
    POOL_NAMESPACES = Reason(
        "PoolNamespaces",
        "SpotPool {pool!r} has served {limit} namespaces, the most that its status can list; use "
        "another pool",
        warning=True,
    )
