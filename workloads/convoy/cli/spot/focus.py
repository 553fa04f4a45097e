"""The cost of SpotPools in the columns of FOCUS, the FinOps Open Cost and Usage Specification.

Convoy knows neither invoices nor accounts: its costs are node-hours x the prices of the pool. So the export
leaves out the columns that only a provider can fill, and is no complete FOCUS dataset. An unknown value is
empty, which means null in CSV. Columns that begin with `x_` are Convoy's own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from convoy_crds.spotpool import SpotPool

COLUMNS = (
    "BilledCost",
    "EffectiveCost",
    "BillingCurrency",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ChargeCategory",
    "ChargeFrequency",
    "ChargeDescription",
    "PricingCategory",
    "ServiceCategory",
    "ServiceName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "SubAccountId",
    "SubAccountName",
    "x_Use",
)
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def rows(pool: SpotPool) -> list[dict[str, str]]:
    """Return one row for each namespace, one for unused time and one for time that Convoy did not observe.

    The costs of all rows add up to the cost of the pool. A pool without a cost has no rows.
    """
    cost, created = pool.status.cost, pool.metadata.creation_timestamp
    if cost.as_of is None or created is None:
        return []
    fixed = {
        "BillingCurrency": cost.currency,
        "ChargePeriodStart": _text(created),
        "ChargePeriodEnd": _text(cost.as_of),
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "PricingCategory": "Dynamic",
        "ServiceCategory": "Compute",
        "ServiceName": "Convoy",
        "ResourceId": pool.metadata.uid or "",
        "ResourceName": pool.metadata.name,
        "ResourceType": "SpotPool",
    }
    return [
        {
            "BilledCost": _amount(spend),
            "EffectiveCost": _amount(spend),
            **fixed,
            "ChargeDescription": text,
            "SubAccountId": namespace,
            "SubAccountName": namespace,
            "x_Use": use,
        }
        for namespace, use, spend, text in _parts(pool)
    ]


def without_currency(pools: Iterable[SpotPool]) -> list[str]:
    """Return the names of the pools in whose rows BillingCurrency, which FOCUS requires, is empty."""
    return [pool.metadata.name for pool in pools if rows(pool) and not pool.status.cost.currency]


def csv_text(pools: Iterable[SpotPool]) -> str:
    """Return the rows of all pools as CSV with a header."""
    written = io.StringIO()
    writer = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for pool in pools:
        writer.writerows(rows(pool))
    return written.getvalue()


def _parts(pool: SpotPool) -> Iterator[tuple[str, str, float, str]]:
    """Yield the namespace, the use, the cost and a description of each part of the cost."""
    name, cost = pool.metadata.name, pool.status.cost
    for one in cost.by_namespace:
        yield (
            one.namespace,
            "Used",
            one.spend,
            f"nodes of pool {name} while pods of {one.namespace} used them",
        )
    yield "", "Unused", cost.unused, f"nodes of pool {name} without pods"
    yield "", "Unobserved", cost.residual, f"nodes of pool {name} while no operator observed them"


def _amount(spend: float) -> str:
    """Return an amount of money. A rounding error below 0 is 0."""
    return f"{round(spend, 6) + 0.0:.6f}"


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(_TIME)
