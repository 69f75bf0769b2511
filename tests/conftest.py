import logging
import os
import re
import time
from collections import Counter
from pathlib import Path

import pytest

# When it is first imported it loads a profile of hypothesis (50 examples on CI, else 10): here, before ours.
import torch.testing._internal.common_utils  # noqa: F401
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from laws import EXAMPLES

# Files for mypy, of which one half is wrong.
collect_ignore = ["typing/right_uses.py", "typing/wrong_uses.py"]

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
settings.register_profile("pass", max_examples=3, derandomize=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Constants of all imported files are examples too: to parse them takes longer than most tests, and a test
# would draw others alone than after others.
if hasattr(providers, "_local_constants"):
    providers.HypothesisProvider._local_constants = providers._local_constants

# pytest listens to each logger that passes nothing on, and for a listener torch records all it runs, with
# stacks.
_OF_TORCH = logging.getLogger("torch.__trace")
_OF_TORCH.handlers.clear()
_OF_TORCH.addHandler = lambda handler: None


BROWSER = pytest.StashKey()


@pytest.fixture(scope="session")
def browser(request):
    """One for all tests of a process, as no two can run in a thread."""
    from headless_chromium import launched

    with launched() as browser:
        request.session.stash[BROWSER] = browser
        yield browser


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Keep a picture of each page that is open where a test fails."""
    report = yield
    if report.failed and item.get_closest_marker("browser") and BROWSER in item.session.stash:
        folder = Path(__file__).parent / "browser" / "artifacts"
        contexts = item.session.stash[BROWSER].contexts
        for number, page in enumerate(page for context in contexts for page in context.pages):
            page.screenshot(path=folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', item.name)}-{number}.png")
    return report


def pytest_runtest_setup():
    if time.time() > float(os.environ.get("FXLAB_TESTS_UNTIL", "inf")):
        pytest.skip("The time of `make quick` is over: left to `make test`.")


def pytest_terminal_summary(terminalreporter, config):
    if hasattr(config, "cache"):
        seconds = Counter()
        for report in (*terminalreporter.getreports(""), *terminalreporter.getreports("passed")):
            if "slow" not in report.keywords:
                seconds[report.nodeid.partition("::")[0]] += report.duration
        # The larger ones, as some of a file's tests may have run.
        config.cache.set("fxlab/seconds", seconds | Counter(config.cache.get("fxlab/seconds", {})))
    if EXAMPLES:
        terminalreporter.write_line(f"{EXAMPLES.total():,} random examples of {len(EXAMPLES)} laws held")
