import logging
import os

from hypothesis import HealthCheck, Phase, settings
from laws import EXAMPLES

# CI tries the same examples each time; ``make fuzz`` tries others with every seed.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}
settings.register_profile("default", max_examples=30, derandomize=True, **_COMMON)
settings.register_profile(
    "fuzz",
    max_examples=1000,
    database=None,
    print_blob=True,
    phases=(Phase.generate, Phase.shrink),
    **_COMMON,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

logging.getLogger("torch.__trace").addFilter(lambda record: False)  # it logs every run of an Interpreter


def pytest_terminal_summary(terminalreporter):
    if EXAMPLES:
        terminalreporter.write_line(f"{EXAMPLES.total():,} random examples of {len(EXAMPLES)} laws held")
