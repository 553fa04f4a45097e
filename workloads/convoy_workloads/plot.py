"""A curve in plain text, for terminals and logs."""

from __future__ import annotations

from collections.abc import Sequence


def curve(points: Sequence[tuple[float, float]], title: str = "", width: int = 60, height: int = 12) -> str:
    """Draw the points (x, y), x ascending, in `height` lines of `width` columns beside the y axis.

    Points that share a column are averaged. Returns an empty text if no point is finite.
    """
    finite = [(x, y) for x, y in points if abs(x) < float("inf") and abs(y) < float("inf")]
    if not finite:
        return ""
    left, right = finite[0][0], finite[-1][0]
    columns: dict[int, list[float]] = {}
    for x, y in finite:
        place = round((x - left) / (right - left) * (width - 1)) if right > left else 0
        columns.setdefault(place, []).append(y)
    means = {place: sum(values) / len(values) for place, values in columns.items()}
    low, high = min(means.values()), max(means.values())
    grid = [[" "] * width for _ in range(height)]
    for place, mean in means.items():
        row = round((high - mean) / (high - low) * (height - 1)) if high > low else height - 1
        grid[row][place] = "*"
    lines = [title] if title else []
    for row, cells in enumerate(grid):
        label = {0: f"{high:.3g}", height - 1: f"{low:.3g}"}.get(row, "")
        lines.append(f"{label:>9} |{''.join(cells).rstrip()}")
    lines.append(" " * 10 + "+" + "-" * width)
    start, end = f"{left:g}", f"{right:g}"
    lines.append(" " * 11 + start + end.rjust(max(1, width - len(start))))
    return "\n".join(lines)
