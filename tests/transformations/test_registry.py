"""The registry: fxlab's own passes have a line in the stub, and one in the order if they are offered."""

import inspect
import pkgutil
from importlib import import_module

from fxlab import Transformation
from fxlab.transformations import passes


def test_each_pass_has_a_line_in_the_stub_and_each_row_of_the_order_is_a_pass():
    files = pkgutil.walk_packages(passes.__path__, f"{passes.__name__}.")
    values = (value for file in files for value in vars(import_module(file.name)).values())
    classes = {each for each in values if inspect.isclass(each) and issubclass(each, Transformation)}
    own = {cls for cls in classes if cls.__module__.startswith(passes.__name__)}
    own = {cls.__name__ for cls in own if own.isdisjoint(cls.__subclasses__())}
    assert own == {*passes.__all__}, (
        "each pass needs `from its.file import Pass as Pass` in fxlab/__init__.pyi"
    )
    assert passes.ORDER.keys() <= own
