import contextlib
import gc
import logging
import os
import re
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

# When it is first imported it loads a profile of hypothesis (50 examples on CI, else 10): here, before ours.
import torch.testing._internal.common_utils  # noqa: F401
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from laws import EXAMPLES

from fxlab.base.garbage import making_what_stays

# Files for mypy, of which one half is wrong.
collect_ignore = ["typing/right_uses.py", "typing/wrong_uses.py"]

# A process of tests holds a million objects that stay, and Python would look through all some hundred times.
gc.set_threshold(10_000, 10, 50)

# CI tries the same examples each time; ``make fuzz`` tries others with every seed.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}
settings.register_profile("default", max_examples=10, derandomize=True, **_COMMON)
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
            with contextlib.suppress(Exception):  # of a page that is gone
                page.screenshot(path=folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', item.name)}-{number}.png")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage: a fifth of the time, as what is loaded stays."""
    with making_what_stays():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave instances of `each_value` and `often` to `make weekly`."""
    marked = {"each_value": defaultdict(list), "often": defaultdict(list)}
    for item in items:
        for name, tests in marked.items():
            if item.get_closest_marker(name) and not item.get_closest_marker("weekly"):
                tests[item.originalname, item.path].append(item)
    left = [item for instances in marked["each_value"].values() for item in _without_a_turn(instances)]
    for instances in marked["often"].values():
        (count,) = instances[0].get_closest_marker("often").args
        chosen = {len(instances) * number // count for number in range(count)}
        left += [item for number, item in enumerate(instances) if number not in chosen]
    for item in left:
        item.add_marker(pytest.mark.weekly)


def _without_a_turn(instances):
    """Return the instances that are left when those with new values have gone one by one."""
    left = {item: _values(item) for item in instances}
    turns = Counter()
    while left:
        best = min(left, key=lambda item: sum(turns[value] or -1e9 for value in left[item]))
        if all(turns[value] for value in left[best]):
            break
        turns.update(left.pop(best))
    return left


def _values(item):
    """Return what each parametrization of a test gives it."""
    marks = [mark.args[0] for mark in item.iter_markers("parametrize")]
    named = [[each.strip() for each in (m.split(",") if isinstance(m, str) else m)] for m in marks]
    return [(*names, *(id(item.callspec.params[name]) for name in names)) for names in named]


def pytest_runtest_setup():
    if time.time() > float(os.environ.get("FXLAB_TESTS_UNTIL", "inf")):
        pytest.skip("The time of `make quick` is over: left to `make test`.")


@pytest.fixture
def young():
    """Put aside the objects from before a test, so that looking for its garbage takes no second."""
    gc.freeze()
    yield
    gc.unfreeze()


def pytest_unconfigure():
    """Look for no garbage any more: pytest and Python would four times, among millions of objects."""
    gc.freeze()


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
