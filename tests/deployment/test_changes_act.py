"""Whatever is changed between two calls, a model on graphs computes what the model itself computes."""

import contextvars
import dataclasses
import enum
import functools
import os
import random
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxlab.deployment import Switched, as_model

SCALE, TABLE = 1.0, {"a": 1.0}
CONTEXT = contextvars.ContextVar("scale", default=1.0)
LOCAL = threading.local()
LOCAL.scale = 1.0
HERE = globals()


def first(x):
    return torch.relu(x)


def second(x):
    return torch.tanh(x)


def with_default(x, scale=1.0):
    return x * scale


def with_keyword(x, *, scale=1.0):
    return x * scale


@functools.lru_cache
def cached(number):
    return number * 2.0


def closure():
    scale = 1.0

    def multiply(x):
        return x * scale

    def change(value):
        nonlocal scale
        scale = value

    return multiply, change


class Plain:
    def apply(self, x):
        return x * 2.0


@dataclasses.dataclass
class Fields:
    value: float = 1.0
    inner: object = None


class Way(enum.Enum):
    A, B = 1, 2


class Attributes(nn.Module):
    of_class = 1.0

    def __init__(self):
        super().__init__()
        self.dict, self.list, self.set = {"a": 1.0, "inner": {"b": 1.0}}, [1.0], {1, 2}
        self.float, self.int, self.fields, self.way = 1.5, 3, Fields(), Way.A

    def forward(self, x):
        x = x * self.dict["a"] * self.dict["inner"]["b"] * self.list[0] * self.float * self.int
        x = x * self.of_class * self.fields.value * (2 if self.fields.inner else 1)
        x = x * (3 if 1 in self.set else 1) + (self.way is Way.A)
        for key in self.dict:
            x = x * 2 + len(key)
        return x


class Absent(nn.Module):
    def __init__(self):
        super().__init__()
        self.dict, self.object = {}, Plain()

    def forward(self, x):
        try:
            late = self.dict["caught"]
        except KeyError:
            late = 1.0
        late *= self.dict.get("got", 1.0) * getattr(self.object, "late", 1.0)
        return x * late * (2 if hasattr(self, "late") else 1)


class TakesOptions(nn.Module):
    def __init__(self):
        super().__init__()
        self.options = {"popped": 1.0}

    def forward(self, x):
        options = self.options
        popped = options.pop("popped", 1.0)
        scale = options.get("late", 2.0)
        options["popped"] = popped
        return x * popped * scale


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.function, self.default, self.keyword = first, with_default, with_keyword
        self.closure, self.change = closure()
        self.object = Plain()

    def forward(self, x):
        return self.object.apply(self.default(self.keyword(self.closure(self.function(x)))))


class Globals(nn.Module):
    def forward(self, x):
        return first(x) * SCALE * TABLE["a"] + cached(2) + F.gelu(x)


class Outside(nn.Module):
    def forward(self, x):
        return x * CONTEXT.get() * LOCAL.scale * float(os.environ.get("FXLAB_SCALE", "1"))


class Arrays(nn.Module):
    def __init__(self):
        super().__init__()
        self.array = np.array([1.0])

    def forward(self, x):
        return x * float(self.array[0]) + torch.from_numpy(self.array).float()


class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.random = torch.Generator().manual_seed(0), random.Random(0)

    def forward(self, x):
        x = F.dropout(x, 0.5) + torch.rand(4) + torch.rand(4, generator=self.generator)
        return x * random.random() * np.random.rand() * self.random.random()


class Settings(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) + torch.full((4,), 0.3) + torch.is_grad_enabled()


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def scale(self):
        return 1.0

    @property
    def offset(self):
        return 1.0

    def forward(self, x):
        return self.linear(x) * self.scale() + self.offset


class Inherits(Part):
    """Has all of its methods from its base."""


class Modules(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.heir, self.linear = Part(), Inherits(), nn.Linear(4, 4)
        self.dropout, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(4)
        self.list = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.register_buffer("buffer", torch.ones(4))
        self.tensor = torch.ones(4)

    def last(self, x):
        return x

    def forward(self, x):
        x = self.linear(self.heir(self.part(x)))
        for layer in self.list:
            x = layer(x)
        return self.last(self.dropout(self.norm(x)) * self.buffer * self.tensor)


def weight(*sizes):
    return nn.Parameter(torch.randn(sizes, generator=torch.Generator().manual_seed(1)))


def linear():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Linear(4, 4)


def pruned(m):
    import torch.nn.utils.prune as prune

    prune.l1_unstructured(m.linear, "weight", 0.5)


def hooked_everywhere(patch):
    hooks = {0: lambda module, args, output: output * 2 if isinstance(module, nn.Linear) else None}
    patch.setattr(torch.nn.modules.module, "_global_forward_hooks", hooks)


CHANGES = {
    Attributes: {
        "an item of a dict": lambda m, _: m.dict.update(a=2.0),
        "an item of a dict in a dict": lambda m, _: m.dict["inner"].update(b=2.0),
        "the order of keys": lambda m, _: m.dict.update(a=m.dict.pop("a")),
        "an item of a list": lambda m, _: m.list.__setitem__(0, 2.0),
        "a set": lambda m, _: m.set.discard(1),
        "a float": lambda m, _: setattr(m, "float", 2.5),
        "an integer": lambda m, _: setattr(m, "int", 5),
        "an integer that becomes a float": lambda m, _: setattr(m, "int", 5.5),
        "a member of an enum": lambda m, _: setattr(m, "way", Way.B),
        "an object where there was none": lambda m, _: setattr(m.fields, "inner", Plain()),
        "a field": lambda m, _: setattr(m.fields, "value", 3.0),
        "an attribute of the class": lambda _, patch: patch.setattr(Attributes, "of_class", 3.0),
        "an attribute over that of the class": lambda m, _: setattr(m, "of_class", 7.0),
    },
    Absent: {
        "a key whose absence was caught": lambda m, _: m.dict.update(caught=3.0),
        "a key with a default": lambda m, _: m.dict.update(got=3.0),
        "an attribute with a default": lambda m, _: setattr(m.object, "late", 3.0),
        "an attribute that is asked for": lambda m, _: setattr(m, "late", 3.0),
    },
    TakesOptions: {
        "a key beside one that is popped": lambda m, _: m.options.update(late=5.0),
        "a key that is popped": lambda m, _: m.options.pop("popped"),
    },
    Functions: {
        "a function": lambda m, _: setattr(m, "function", second),
        "a variable of a closure": lambda m, _: m.change(3.0),
        "defaults": lambda _, patch: patch.setattr(with_default, "__defaults__", (5.0,)),
        "keyword defaults": lambda _, patch: patch.setattr(with_keyword, "__kwdefaults__", {"scale": 6.0}),
        "a method of an object's class": lambda _, patch: patch.setattr(Plain, "apply", lambda s, x: x * 3),
        "the code of a function": lambda _, patch: patch.setattr(first, "__code__", second.__code__),
    },
    Globals: {
        "a global number": lambda _, patch: patch.setitem(HERE, "SCALE", 2.0),
        "an item of a global dict": lambda _, patch: patch.setitem(TABLE, "a", 2.0),
        "a function that is cached": lambda _, patch: patch.setitem(HERE, "cached", lambda n: n * 5.0),
        "a function of torch": lambda _, patch: patch.setattr(F, "gelu", lambda x: x * 3),
    },
    Outside: {
        "a context variable": lambda *_: CONTEXT.set(3.0),
        "a variable of the thread": lambda _, patch: patch.setattr(LOCAL, "scale", 3.0),
        "a variable of the environment": lambda _, patch: patch.setenv("FXLAB_SCALE", "4"),
    },
    Arrays: {
        "an element of an array": lambda m, _: m.array.__setitem__(0, 4.0),
    },
    Draws: {"nothing": lambda *_: None},
    Settings: {
        "gradients": lambda *_: torch.set_grad_enabled(True),
        "the default dtype": lambda *_: torch.set_default_dtype(torch.float64),
        "autocast": lambda *_: torch.autocast("cpu", torch.bfloat16).__enter__(),
    },
    Modules: {
        "a hook": lambda m, _: m.part.register_forward_hook(lambda module, args, out: out + 1),
        "a hook before": lambda m, _: m.linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
        "a hook on all modules": lambda _, patch: hooked_everywhere(patch),
        "forward of a submodule": lambda m, _: setattr(m.part, "forward", lambda x: x * 3),
        "forward of a class": lambda _, patch: patch.setattr(Part, "forward", lambda s, x: x * 4),
        "a method of a class": lambda _, patch: patch.setattr(Part, "scale", lambda s: 5.0),
        "a method that a class gets": lambda _, patch: patch.setattr(
            Inherits, "scale", lambda s: 5.0, raising=False
        ),
        "a property": lambda _, patch: patch.setattr(Part, "offset", property(lambda s: 5.0)),
        "a method of the model's class": lambda _, patch: patch.setattr(Modules, "last", lambda s, x: x * 7),
        "the call of all modules": lambda _, patch: patch.setattr(
            nn.Module, "__call__", lambda s, *args: args[0] if isinstance(s, Part) else s.forward(*args)
        ),
        "the class of a submodule": lambda m, _: setattr(
            m.part, "__class__", type("Other", (Part,), {"scale": lambda s: 9.0})
        ),
        "one more layer": lambda m, _: m.list.append(linear()),
        "another parameter": lambda m, _: setattr(m.linear, "weight", weight(4, 4)),
        "a parameter that is frozen": lambda m, _: m.linear.weight.requires_grad_(False),
        "the data of a parameter": lambda m, _: setattr(m.linear.weight, "data", weight(4, 4).data),
        "a parameter in place": lambda m, _: m.linear.weight.data.mul_(2),
        "a buffer in place": lambda m, _: m.buffer.mul_(3),
        "another tensor": lambda m, _: setattr(m, "tensor", torch.full((4,), 6.0)),
        "a state dict": lambda m, _: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
        "a norm that trains": lambda m, _: m.norm.train(),
        "training": lambda m, _: m.train(),
        "weight norm": lambda m, _: nn.utils.parametrizations.weight_norm(m.linear),
        "pruning": lambda m, _: pruned(m),
        "a hook of the backward": lambda m, _: m.list[0].register_full_backward_hook(
            lambda module, inner, outer: (outer[0] * 5,)
        ),
        "a hook of a gradient": lambda m, _: m.linear.weight.register_hook(lambda gradient: gradient * 3),
    },
}
KINDS = [
    pytest.param(
        cls,
        change,
        id=f"{cls.__name__}: {name}",
        marks=pytest.mark.weekly if place % 3 and len(changes) > 9 else (),
    )
    for cls, changes in CHANGES.items()
    for place, (name, change) in enumerate(changes.items())
]
"""Of a class with many changes, each third is tried in every run: guards of Dynamo see all of them."""
NO_PASSES = Switched(lambda: (), lambda: None)


@pytest.fixture(autouse=True)
def settings_of_torch():
    gradients, dtype, scale = torch.is_grad_enabled(), torch.get_default_dtype(), CONTEXT.set(1.0)
    autocast = torch.is_autocast_enabled("cpu")
    yield
    torch.set_grad_enabled(gradients)
    torch.set_default_dtype(dtype)
    torch.set_autocast_enabled("cpu", autocast)
    CONTEXT.reset(scale)


def outcome(module, x):
    """Return all that a call computes and leaves behind."""
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    if isinstance(module, Draws):
        module.generator.manual_seed(0)
        module.random.seed(0)
    module.zero_grad()
    output = module(x)
    if output.requires_grad:
        output.sum().backward()
    gradients = {f"gradient of {name}": p.grad for name, p in module.named_parameters()}
    return {"output": output, **module.state_dict(), **gradients}


def assert_equal(fast, model):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(2)).to(torch.float32)
    actual, expected = outcome(fast, x), outcome(model, x)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        other = actual[name]
        if value is None:
            assert other is None, name
        else:
            assert (other.dtype, other.requires_grad) == (value.dtype, value.requires_grad), name
            assert torch.equal(other, value), name


@pytest.mark.filterwarnings("ignore:.*run eagerly:RuntimeWarning", "ignore:.*lru_cache:UserWarning")
@pytest.mark.parametrize(("cls", "change"), KINDS)
def test_a_change_acts_on_the_next_call(cls, change, monkeypatch):
    def made():
        torch.manual_seed(0)
        return cls().eval()

    model, followed = made(), made()
    fast = as_model(followed, NO_PASSES, check=True)
    torch.set_grad_enabled(cls is Modules)
    for _ in range(2):
        assert_equal(fast, model)
    for module in (followed, model):
        change(module, monkeypatch)
    for _ in range(2):
        assert_equal(fast, model)
