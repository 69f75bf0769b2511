"""Torch's own databases of operators, modules, optimizers and cases of export, traced and run beside eager.

``python -m benchmarks.databases`` traces a share of the entries and calls model and graph with equal
random numbers, on the inputs of the trace, on their numbers in another order, and on other samples that fit:
outputs, what is written into inputs, and gradients have to have the same bits. Optimizers train three steps.
It writes a row of ``docs/measured.md``. Entries of which two runs of eager differ are not counted.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import itertools
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
from torch import nn
from torch._export.db.examples import all_examples
from torch.nn.modules.lazy import LazyModuleMixin
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.utils import _pytree as pytree

import fxlab
from benchmarks import measured

EQUAL, REFUSED, WRONG, SKIPPED = "equal", "refused", "wrong", "not comparable"
OTHERS, STEPS, SECONDS = 3, 3, 60
"""Other samples that the graph of an operator is called with, steps, and a limit."""
COMPRESSED = torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc
DTYPES = torch.float32, torch.int64, torch.bool, torch.complex64


class Call(nn.Module):
    """A call of an operator: tensors are its inputs, and the other arguments are fixed."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.function, self.leaves, self.spec = function, leaves, spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the operator."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)

    def fits(self, other: Call) -> bool:
        """Tell whether another call differs from this one in its tensors alone."""
        return self.spec == other.spec and all(
            isinstance(two, torch.Tensor) and one.dtype == two.dtype and one.dim() == two.dim()
            if isinstance(one, torch.Tensor)
            else type(one) is type(two) and one == two
            for one, two in zip(self.leaves, other.leaves, strict=True)
        )

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The inputs."""
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor))


def copied(*values: Any) -> Any:
    """Return deep copies, also of tensors in compressed layouts, which cannot be copied deeply."""
    held = pytree.tree_leaves([values, [vars(v)["leaves"] for v in values if isinstance(v, Call)]])
    alone = [t for t in held if isinstance(t, torch.Tensor) and t.layout in COMPRESSED]
    return copy.deepcopy(values, {id(t): t.detach().clone().requires_grad_(t.requires_grad) for t in alone})


def outcome(function: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return outputs, inputs and state after a call of a copy, and gradients; or the class of its error."""
    own, given, named = copied(function, args, kwargs)
    torch.manual_seed(0)
    try:
        output = own(*given, **named)
    except Exception as error:
        return {"error": type(error)}
    inputs = dict(enumerate(pytree.tree_leaves((given, named))))
    parameters, state = dict(own.named_parameters()), own.state_dict()
    before = function.state_dict()
    found = {
        "structure": pytree.tree_structure(output),
        **{f"output {place}": leaf for place, leaf in enumerate(pytree.tree_leaves(output))},
        **{f"input {place}": leaf for place, leaf in inputs.items()},
        **{f"state {name}": now for name, now in state.items() if not are_alike(now, before.get(name, now))},
    }
    losses = [each.sum() for each in pytree.tree_leaves(output) if getattr(each, "requires_grad", False)]
    reached = {n: t for n, t in {**inputs, **parameters}.items() if getattr(t, "requires_grad", False)}
    if losses and reached:
        real = [loss.real if loss.is_complex() else loss for loss in losses]
        try:
            gradients = torch.autograd.grad(real, [*reached.values()], allow_unused=True)
        except Exception as error:
            return found | {"gradients": type(error)}
        pairs = zip(reached, gradients, strict=True)
        found |= {f"gradient {name}": gradient for name, gradient in pairs if gradient is not None}
    return found


def are_alike(a: Any, b: Any) -> bool:
    """Tell whether two values have the same bits, and are trained alike."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and bool(a == b or a != a)
    if (a.shape, a.dtype, a.layout, a.requires_grad) != (b.shape, b.dtype, b.layout, b.requires_grad):
        return False
    a, b = (each.to_dense() if each.layout is not torch.strided else each for each in (a, b))
    return bool(((a == b) | ((a != a) & (b != b))).all())


def different(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the parts in which two outcomes differ."""
    return [key for key in {**one, **other} if not are_alike(one.get(key), other.get(key))]


def reordered(values: Any) -> Any:
    """Return nested inputs with the elements of each tensor in another order."""

    def one(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            return tensor
        order = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(0))
        other = tensor.detach().flatten()[order].view(tensor.shape)
        return other.requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, one, values)


def judged(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], others: Iterable[Any] = ()
) -> tuple[str, str]:
    """Return how the graph of a model compares with it, and why."""
    if any(isinstance(each, LazyModuleMixin) for each in model.modules()):
        model(*args, **kwargs)
    expected = outcome(model, args, kwargs)
    if "error" in expected or different(expected, outcome(model, args, kwargs)):
        return SKIPPED, str(expected.get("error", "two runs of eager differ"))
    inputs: Any = copied(args, kwargs)
    if kwargs:
        inputs = inspect.signature(model.forward).bind(*inputs[0], **inputs[1]).arguments
        inputs |= inputs.pop("mykwargs", {})
    else:
        inputs = inputs[0]
    try:
        traced = fxlab.symbolic_trace(*copied(model), inputs)
    except fxlab.TraceError as error:
        return REFUSED, str(error)
    given = [(args, kwargs), reordered((args, kwargs)), *((other, {}) for other in others)]
    for place, (each, named) in enumerate(given):
        wanted = outcome(model, each, named)
        if "error" in wanted or different(wanted, outcome(model, each, named)):
            continue
        found = outcome(traced, each, named)
        if "error" in found and place:
            continue  # a refusal of other inputs, which is allowed
        if parts := different(wanted, found):
            one = parts[0]
            return WRONG, f"inputs {place}: {parts}: {found.get(one)} where eager has {wanted.get(one)}"
    return EQUAL, ""


def operators() -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Yield a trial for the middle sample of each operator."""
    for operator in op_db:

        def trial(operator: Any = operator) -> tuple[str, str]:
            dtype = next(each for each in DTYPES if each in operator.dtypes)
            gradients = operator.supports_autograd and dtype is torch.float32
            torch.manual_seed(0)
            samples = itertools.islice(operator.sample_inputs("cpu", dtype, requires_grad=gradients), 40)
            calls = [
                Call(operator.op, *pytree.tree_flatten(((each.input, *each.args), each.kwargs)))
                for each in samples
            ]
            call = calls[len(calls) // 2]
            others = [each.tensors for each in calls if each is not call and call.fits(each)]
            return judged(call, call.tensors, {}, others[:OTHERS])

        if not operator.dtypes.isdisjoint(DTYPES):  # type: ignore[attr-defined]
            yield operator.formatted_name, trial


def modules() -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Yield a trial for each module in both modes, with its first or last arguments."""
    for info in module_db:
        for is_training in (False, True):

            def trial(info: Any = info, is_training: bool = is_training) -> tuple[str, str]:
                torch.manual_seed(0)
                dtype = next(each for each in DTYPES if each in info.supported_dtypes("cpu"))
                samples = info.module_inputs_func(
                    info, device="cpu", dtype=dtype, requires_grad=False, training=is_training
                )
                samples = [each for each in samples if each.forward_input is not None]
                if not samples:
                    return SKIPPED, "no inputs"
                sample = samples[-1 if is_training else 0]
                made, given = sample.constructor_input, sample.forward_input
                model = info.module_cls(*made.args, **made.kwargs).to(dtype).train(is_training)
                return judged(model, tuple(given.args), dict(given.kwargs))

            yield f"{info.name}{' training' * is_training}", trial


def optimizers() -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Yield a trial for each setting of each optimizer."""
    for info in optim_db:
        for setting in info.optim_inputs_func(device="cpu"):

            def trial(info: Any = info, setting: Any = setting) -> tuple[str, str]:
                given = info.optim_cls, setting.kwargs
                is_sparse = info.only_supports_sparse_grads
                try:
                    found = _trained(*given, as_graph=True, is_sparse=is_sparse)
                except (fxlab.TraceError, ValueError, TypeError) as error:
                    return REFUSED, str(error)
                parts = different(found, _trained(*given, as_graph=False, is_sparse=is_sparse))
                return (WRONG, f"other weights: {parts}") if parts else (EQUAL, "")

            yield f"{info.optim_cls.__name__} {setting.desc}", trial  # type: ignore[attr-defined]


def _trained(
    optimizer_class: Any, settings: dict[str, Any], *, as_graph: bool, is_sparse: bool
) -> dict[str, Any]:
    """Return the weights after a few steps."""
    torch.manual_seed(0)
    first: nn.Module = nn.EmbeddingBag(7, 4, sparse=True) if is_sparse else nn.Linear(3, 4, bias=False)
    model = (
        nn.Sequential(first) if is_sparse else nn.Sequential(first, nn.Tanh(), nn.Linear(4, 4, bias=False))
    )
    x = torch.randint(7, (5, 3)) if is_sparse else torch.randn(5, 3)
    y = torch.randn(5, 4)
    optimizer = optimizer_class(model.parameters(), **copy.deepcopy(settings))
    loss = nn.functional.mse_loss

    def eager(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        found = loss(model(x), y)
        found.backward()
        optimizer.step()
        return found

    step: Callable[..., Any] = eager
    if as_graph:
        graph = fxlab.trace_step(model, (x, y), loss=loss, optimizer=optimizer)
        step = fxlab.steps.as_step(fxlab.Session(graph))
    for _ in range(STEPS):
        step(x, y)
    return dict(model.state_dict())


def exports() -> Iterator[tuple[str, Callable[[], tuple[str, str]]]]:
    """Yield a trial for each case of the database of ``torch.export``."""
    for name, case in all_examples().items():

        def trial(case: Any = case) -> tuple[str, str]:
            return judged(case.model, tuple(case.example_args), dict(case.example_kwargs))

        yield name, trial


ROOT = Path(__file__).parents[1]
SHARE = {"operators": 5, "modules": 3, "optimizers": 2, "export": 1}
"""Of how many entries one is tried, so that all take some minutes."""
DATABASES = {"operators": operators, "modules": modules, "optimizers": optimizers, "export": exports}


def rows(names: Iterable[str], share: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """Yield a row for each trial of some databases, of which one in some is made."""

    def too_long(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    def unseeded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)  # each run is seeded here; a model that seeds is refused

    previous = signal.signal(signal.SIGALRM, too_long)
    patched = patch.object(common_methods_invocations, "wrapper_set_seed", unseeded)
    try:
        patched.start()
        for name in names:
            for entry, trial in itertools.islice(DATABASES[name](), 0, None, share.get(name, 1)):
                signal.alarm(SECONDS)
                with warnings.catch_warnings(action="ignore"):
                    try:
                        found, why = trial()
                    except Exception as error:  # neither a graph nor a refusal
                        found, why = WRONG, f"{type(error).__name__}: {error}"
                signal.alarm(0)
                torch._dynamo.reset()
                why = " ".join(why.replace(f"{ROOT}/", "").split())[:200]
                yield {"database": name, "entry": entry, "outcome": found, "why": why}
    finally:
        patched.stop()
        signal.signal(signal.SIGALRM, previous)


def main() -> None:
    """Run, print what is not equal, and write the row of the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "databases",
        nargs="*",
        help="some of them, with all entries; without any, a share of all writes the row",
    )
    chosen = parser.parse_args().databases
    found = []
    for row in rows(chosen or DATABASES, {} if chosen else SHARE):
        found.append(row)
        if row["outcome"] != EQUAL:
            print(*row.values(), sep=" | ", flush=True)
    table = pd.DataFrame(found)
    counts = table.groupby(["database", "outcome"]).size().unstack(fill_value=0)
    print(counts)
    if chosen:
        return
    numbers = Counter(table["outcome"])
    compared = len(table) - numbers[SKIPPED]
    figure = (
        f"of {compared} traces of {len({*table['entry'].str.split().str[0]})} entries {numbers[EQUAL]} give "
        f"eager's own bits, {numbers[REFUSED]} are refused, {numbers[WRONG]} are wrong"
    )
    listed = table[table["outcome"] != EQUAL]
    measured.write("python -m benchmarks.databases", figure, {"databases": listed})


if __name__ == "__main__":
    main()
