"""Python of another file, which a model reads through its functions."""

SCALE = 2.0


class Rates:
    rate = 2.0


def scaled(x):
    return x * SCALE * Rates.rate
