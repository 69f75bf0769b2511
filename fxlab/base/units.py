"""Numbers with their units, for messages, tables and pictures; the page's own are in ``base/format.ts``."""

import math
from decimal import ROUND_HALF_UP, Context, Decimal

_SCIENTIFIC_FROM, _SCIENTIFIC_BELOW = 10_000, 0.01
_MULTIPLES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
}
"""A unit -> its multiples, the largest first."""
_COUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_ELEMENTS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))


def with_unit(value: float, unit: str = "") -> str:
    """Return a number with its unit, in the multiple that keeps it short: ``1.25 ms``, ``3 MiB``."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"  # noqa: RUF001
    if unit in _MULTIPLES and value == 0:
        return f"0 {unit}"
    multiples = _MULTIPLES.get(unit, _COUNTS if value == int(value) and value >= _SCIENTIFIC_FROM else ())
    if multiples:
        size, name = next((multiple for multiple in multiples if value >= multiple[0]), multiples[-1])
        return f"{_plain(value) if size == 1 and unit == 'B' else _plain(_rounded(value / size, 3))} {name}"
    is_plain = value == 0 or _SCIENTIFIC_BELOW <= abs(value) < _SCIENTIFIC_FROM
    return _plain(_rounded(value, 4)) if is_plain else f"{_rounded(value, 3):.2e}"


def percent(share: float) -> str:
    """Return a share of one in percent: ``12.3 %``."""
    tenths = Decimal(100 * float(share)).quantize(Decimal("0.1"), rounding=ROUND_HALF_UP)
    return f"{tenths} %"


def short_count(count: int) -> str:
    """Return a number of elements as parameters are counted: ``7.1M``, ``640``."""
    for limit, letter in _ELEMENTS:
        if count >= limit:
            value = count / limit
            return f"{value:.1f}{letter}" if value < 99.95 else f"{value:.0f}{letter}"
    return str(count)


def _rounded(value: float, digits: int) -> float:
    """Round to so many digits; of two that are as near, to the larger, as JavaScript does."""
    return float(Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(float(value)))


def _plain(value: float) -> str:
    return repr(value + 0.0).removesuffix(".0")
