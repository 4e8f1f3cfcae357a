"""The colour scale of attention relative to uniform weights: page.css has the colours."""

from __future__ import annotations

import math

SHADES = 9  # from a quarter of uniform weights or less to four times or more


def shade_of(weight: float, uniform: float) -> int:
    """0 to 8: 2 log2(weight / uniform), rounded; 4 is uniform."""
    times = max(weight / uniform, 1e-9)
    return min(SHADES - 1, max(0, round(SHADES // 2 + 2 * math.log2(times))))
