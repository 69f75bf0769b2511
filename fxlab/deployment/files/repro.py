"""A script of one graph that needs only torch, for an upstream issue."""

import base64
import inspect
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.checks import file_to_write
from fxlab.front_desk.sources import Model, graph_of, inputs_of, inputs_or_examples, is_session, resolved
from fxlab.models.graph_modules.graph_module import share_tensors_copy
from fxlab.models.running.running import Inputs, call_arguments
from fxlab.operators.node_info import attribute_at
from fxlab.validation.arguments import check_runs

_MOST_INSIDE = 200_000
"""The most bytes of weights and inputs in the script itself; more go to a file beside it."""
_SCRIPT = '''\
"""One graph, run as it is and compiled: python {name} (torch {version})."""

import base64
import io
import pathlib

{imports}

{code}

DATA = {data}
held, args, kwargs = torch.load(io.BytesIO(DATA), weights_only=False)

if __name__ == "__main__":
    torch.manual_seed(0)
    expected = forward(held, *args, **kwargs)
    held, args, kwargs = torch.load(io.BytesIO(DATA), weights_only=False)
    torch.manual_seed(0)
    compiled = torch.compile(forward{options})(held, *args, **kwargs)
    leaves = (torch.utils._pytree.tree_leaves(result) for result in (expected, compiled))
    for number, (one, other) in enumerate(zip(*leaves, strict=True)):
        if isinstance(one, torch.Tensor):
            same = (one == other) | ((one != one) & (other != other))
            wide = torch.complex128 if one.is_complex() else torch.float64
            difference = (one.to(wide) - other.to(wide)).abs().masked_fill(same, 0.0)
            most = difference.max().item() if one.numel() else 0.0
            print(f"output {{number}}: {{tuple(one.shape)}} {{one.dtype}}, largest difference {{most:.3g}}")
'''


def repro(model: Model, path: str | os.PathLike[str], *, inputs: Inputs | None = None) -> Path:
    """Write a script that runs one graph, eager and compiled, and needs only torch.

    It has the generated code of the graph, its weights and inputs; large ones go to a file beside it, with
    the suffix ``.pt``. The guards that fxlab has added are left out.

    Parameters
    ----------
    model
        A session, of which the present stage is written (such as one of
        :func:`fxlab.compiler.compile_session`, with passes off), or of ``compiled code`` the stage that it
        was generated for, as the script generates code itself; or a graph module.
    path
        The script, ending in ``.py``.
    inputs
        The inputs of the graph. Left out, those of the session.

    Returns
    -------
    pathlib.Path
        The script.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, the model has no weights, or the graph calls a function that cannot be
        imported by name.
    OSError
        If the script cannot be written.

    Examples
    --------
    >>> import runpy, tempfile, fxlab
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval()
    >>> session = fxlab.compiler.compile_session(model, torch.ones(2, 4))
    >>> script = fxlab.testing.repro(session, f"{tempfile.mkdtemp()}/repro.py")
    >>> "aten.addmm" in script.read_text()
    True
    >>> sorted(runpy.run_path(str(script))["kwargs"])
    ['input_1']
    """
    script = file_to_write(path, "path", ".py")
    found = resolved(model, "model")
    given = inputs_of(found, inputs)
    graph_module = graph_of(found, "model", given)
    if is_session(model):
        graph_module = next(stage for stage in reversed(model.stages) if not _is_generated(stage))
    check_runs(graph_module, "model")
    plain = _without_guards(graph_module)
    code = plain.graph.python_code("self")
    args, kwargs = call_arguments(inputs_or_examples(given, graph_module))
    buffer = io.BytesIO()
    torch.save((_held(plain), args, kwargs), buffer)
    data = f'base64.b64decode("{base64.b64encode(buffer.getvalue()).decode()}")'
    if len(data) > _MOST_INSIDE:
        script.with_suffix(".pt").write_bytes(buffer.getvalue())
        data = 'pathlib.Path(__file__).with_suffix(".pt").read_bytes()'
    # By default Inductor draws other numbers than eager code; the option refuses graphs with its own seeds.
    text = _SCRIPT.format(
        name=script.name,
        version=torch.__version__,
        imports="\n".join(_imports(code.globals, code.src)),
        code=code.src.strip(),
        options="" if "prims.inductor_seed" in code.src else ', options={"fallback_random": True}',
        data=data,
    )
    script.write_text(text, "utf-8")
    return script


def _is_generated(graph_module: GraphModule) -> bool:
    return any(getattr(node.target, "is_generated_code", False) for node in graph_module.graph.nodes)


def _without_guards(graph_module: GraphModule) -> GraphModule:
    """Return a copy without fxlab's own calls, and without the nodes that only they read."""
    copy = share_tensors_copy(graph_module)
    read = set[Node]()
    for node in reversed(copy.graph.nodes):
        home = str(getattr(node.target, "__module__", ""))
        is_guard = node.target is torch._assert or home.startswith("fxlab.")
        if node.op == "call_function" and not node.users and (is_guard or node in read):
            read.update(node.all_input_nodes)
            copy.graph.erase_node(node)
    return copy


def _held(graph_module: GraphModule) -> nn.Module:
    """Return modules with only the parts that the graph reads, under its names."""
    root = nn.Module()
    for node in graph_module.graph.nodes:
        if node.op not in ("get_attr", "call_module"):
            continue
        *parents, name = str(node.target).split(".")
        place = root
        for part in parents:
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = getattr(place, part)
        if not hasattr(place, name):
            setattr(place, name, attribute_at(graph_module, str(node.target)))
    return root


def _imports(names: Mapping[str, Any], code: str) -> Iterator[str]:
    """Yield lines that define the names of generated code in a script."""
    yield "import torch"
    # The import registers these operators.
    if "torch.ops.prims.inductor" in code:
        yield "import torch._inductor.inductor_prims"
    for name, value in sorted(names.items()):
        if not re.search(rf"\b{name}\b", code):
            continue
        if inspect.ismodule(value):
            if name != "torch":
                yield f"import {value.__name__} as {name}"
        elif isinstance(value, float):
            yield f'{name} = float("{value}")'
        elif name == "NoneType":
            yield "NoneType = type(None)"
        elif name == "device":
            yield "from torch import device"
        else:
            home, called = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
            if not home or home in ("__main__", "builtins") or not called.isidentifier():
                raise ValueError(
                    f"model: its code reads {name} ({value!r:.80}), which no package has under a name, so "
                    "that a script cannot import it."
                )
            yield f"from {home} import {called} as {name}"
