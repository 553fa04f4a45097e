"""Groups of samples under a token budget.

A group becomes one padded batch: each sample is padded to the group's longest. So a group of n samples costs
n x longest tokens, and this product must not exceed the budget. Groups are lists of indices of `lengths`,
the longest sample first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

Group = list[int]


def padded_tokens(group: Sequence[int], lengths: Sequence[int]) -> int:
    """Return the number of tokens of a group after padding."""
    return len(group) * max((lengths[one] for one in group), default=0)


def padding_ratio(groups: Iterable[Sequence[int]], lengths: Sequence[int]) -> float:
    """Return the share of padding in all tokens; 0 if there are no tokens."""
    listed = list(groups)
    padded = sum(padded_tokens(group, lengths) for group in listed)
    return 1 - sum(lengths[one] for group in listed for one in group) / padded if padded else 0.0


def group_greedily(lengths: Sequence[int], budget: int) -> list[Group]:
    """Group the samples from the longest to the shortest. A group ends when one more sample would exceed
    the budget.

    Raises ValueError if a sample alone exceeds the budget.
    """
    order = _longest_first(lengths, budget)
    groups: list[Group] = []
    for one in order:
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def group_by_cost(lengths: Sequence[int], budget: int, overhead: int) -> list[Group]:
    """Group the samples so that the padded tokens plus `overhead` tokens for each group are the fewest.

    Groups of neighbours in the sorted order suffice for the optimum, so dynamic programming finds it: the
    best end of the groups so far, for each number of samples. `overhead` is the fixed cost of a batch over
    the cost of a token (`StepCost.overhead_tokens`).

    Raises ValueError if a sample alone exceeds the budget.
    """
    order = _longest_first(lengths, budget)
    best, starts = [0.0], [0]
    for end in range(1, len(order) + 1):
        found, found_start = float("inf"), end - 1
        # Groups that end before sample `end`, from one sample to the most that the budget allows.
        for start in range(end - 1, -1, -1):
            padded = (end - start) * lengths[order[start]]
            if padded > budget:
                break
            if (cost := best[start] + padded + overhead) < found:
                found, found_start = cost, start
        best.append(found)
        starts.append(found_start)
    groups: list[Group] = []
    end = len(order)
    while end:
        groups.append(order[starts[end] : end])
        end = starts[end]
    return groups[::-1]


def split_to(groups: Sequence[Group], lengths: Sequence[int], count: int) -> list[Group]:
    """Split groups until there are `count`. Each split divides the group with the most padded tokens, where
    the two parts have the fewest padded tokens together. A split never adds padding.

    Return the groups, those with the most padded tokens first. Raises ValueError if there are fewer samples
    than `count`.
    """
    if sum(map(len, groups)) < count:
        raise ValueError(f"{sum(map(len, groups))} samples cannot form {count} groups")
    # A heap of groups that can be split, and a list of those that cannot. The number breaks ties.
    divisible = [(-padded_tokens(one, lengths), number, one) for number, one in enumerate(groups)]
    single = [entry for entry in divisible if len(entry[2]) == 1]
    divisible = [entry for entry in divisible if len(entry[2]) > 1]
    heapq.heapify(divisible)
    number = len(groups)
    while len(divisible) + len(single) < count:
        _, _, largest = heapq.heappop(divisible)
        middle = _best_split(largest, lengths)
        for part in (largest[:middle], largest[middle:]):
            entry = (-padded_tokens(part, lengths), number, part)
            number += 1
            if len(part) > 1:
                heapq.heappush(divisible, entry)
            else:
                single.append(entry)
    return [group for _, _, group in sorted(divisible + single)]


def _best_split(group: Sequence[int], lengths: Sequence[int]) -> int:
    count, longest = len(group), lengths[group[0]]

    def cost(start: int) -> tuple[int, int]:
        return start * longest + (count - start) * lengths[group[start]], abs(2 * start - count)

    return min(range(1, count), key=cost)


def _longest_first(lengths: Sequence[int], budget: int) -> Group:
    order = sorted(range(len(lengths)), key=lambda one: (-lengths[one], one))
    if order and lengths[order[0]] > budget:
        raise ValueError(f"a sample of {lengths[order[0]]} tokens exceeds the budget of {budget}")
    return order
