"""Confidence intervals of shares and means, at 95%."""

import math
from collections.abc import Sequence
from statistics import NormalDist

_Z = NormalDist().inv_cdf(0.975)


def wilson(successes: float, count: float) -> tuple[float, float]:
    """Return the interval of a share after Wilson; of nothing counted, all of 0 to 1.

    It holds near 0 and 1 too: if all of ``n`` agree, up to ``z² / (n + z²)`` of others may not. It takes
    the decisions for independent; those of one text or image are not quite. Source: E. B. Wilson, "Probable
    inference, the law of succession, and statistical inference", JASA 22 (1927), 209-212.

    Examples
    --------
    >>> [round(end, 4) for end in wilson(100, 100)], [round(end, 4) for end in wilson(5, 10)]
    ([0.963, 1.0], [0.2366, 0.7634])
    >>> wilson(0, 20)[0], wilson(20, 20)[1]
    (0.0, 1.0)
    """
    if not count:
        return 0.0, 1.0
    share, spread = successes / count, _Z**2 / count
    middle = share + spread / 2
    half = _Z * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    low = (middle - half) / (1 + spread) if successes else 0.0
    return low, (middle + half) / (1 + spread) if successes < count else 1.0


def normal(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float, float]:
    """Return a weighted mean and its normal interval, which is NaN for fewer than two values.

    The mean is a ratio of sums over batches, and so is its variance: W. G. Cochran, "Sampling techniques"
    (3rd edition, 1977), section 6.4.

    Examples
    --------
    >>> [round(number, 3) for number in normal([1.0, 2.0, 3.0], [1, 1, 1])]
    [2.0, 0.868, 3.132]
    """
    total = math.fsum(weights)
    if not total:
        return math.nan, math.nan, math.nan
    mean = math.fsum(w * x for w, x in zip(weights, values, strict=True)) / total
    count = len(values)
    if count < 2:
        return mean, math.nan, math.nan
    squares = math.fsum((w * (x - mean)) ** 2 for w, x in zip(weights, values, strict=True))
    half = _Z * math.sqrt(squares * count / (count - 1)) / total
    return mean, mean - half, mean + half
