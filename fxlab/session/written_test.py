"""Tests of a place that a pass rewrites or refuses, and new passes, as Python that runs by itself."""

from __future__ import annotations

import math
import re
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.models.bodies import graphs_of
from fxlab.models.graph_module import changed_copy
from fxlab.node_info import attribute_at, known_result
from fxlab.operators import operator_called
from fxlab.session.code import CannotBeWrittenError, Imports, constructed
from fxlab.session.definitions import functions_in
from fxlab.session.expecting import expect, expect_no_match
from fxlab.session.near_misses import attempts
from fxlab.session.session import Session
from fxlab.transformations import CandidatePass, Transformation
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import is_guard
from fxlab.transformations.patterns.canonical_text import canonical_lines, canonical_text
from fxlab.transformations.patterns.example import source_of
from fxlab.transformations.patterns.source import Choices, Source, compiled, with_imports
from fxlab.transformations.signature import arguments_of
from fxlab.values.tensors import known_number

_MOST_NODES = 60
_MOST_LINES = 40
_MOST_ELEMENTS = 1 << 24
_FEW_ELEMENTS = 8
"""The most elements of a constant that is written out."""
_WIDER = 2
"""How many times the surrounding nodes are added."""
_OWN_NAMES = "Model", "computed", "case"


@dataclass(frozen=True)
class _Case:
    """A model of a few nodes, with its inputs, as Python."""

    source: str
    model: str
    inputs: str
    expected: str = ""


def written_test(pass_: Transformation, below: GraphModule, node: str) -> str:
    """Return a test of a pass at a node of the stage below it.

    Raises ValueError if the pass says nothing of the node.
    """
    found = attempts(pass_, below, node)
    attempt = next((each for each in found if each.matched), next(iter(found), None))
    if attempt is None:
        advice = f"session.explain({pass_.name!r}) lists the nodes that it takes there."
        raise ValueError(f"{pass_.name} says nothing of {node} in the stage below it. {advice}")
    names = [*attempt.fits, *attempt.passed, *attempt.misfits, attempt.begins_at, attempt.at]
    imports = Imports(_OWN_NAMES)
    notes: list[str] = []
    try:
        made = constructed(pass_, imports)
    except CannotBeWrittenError as error:
        made, imports = "pass_", Imports(_OWN_NAMES)
        notes.append(f"pass_: {error}. {_defined_at(pass_)}")
    notes += [f"Define or import {each.__qualname__}. {_place_of(each)}" for each in imports.of_notebook]
    code = None if attempt.matched else attempt.code
    parts = _test(pass_, made, below, names, code, node, notes)
    return with_imports(*imports.definitions.values(), *parts, more=imports.of_others)


def written_pass(graph_module: GraphModule, nodes: Sequence[str], choices: Choices | None = None) -> str:
    """Return a pass for some nodes, with its test: it changes nothing until its author fills it in.

    Raises ValueError if the nodes make no pattern.
    """
    source = source_of(graph_module, nodes, choices)
    pattern = source.written("pattern")
    first = source.nodes[0]
    called = operator_called(first, graph_module)
    if len(source.nodes) == 1 and called is not None:
        name = re.sub(r"\W|_", " ", called.computes).title().replace(" ", "")
        text, made = _CLASS.format(name=f"Change{name}", operator=called.computes), f"Change{name}()"
        more = ["from fxlab.rewriting import RewritePass, operator_called"]
    else:
        replacement = _documented(pattern.replace("def pattern(", "def replacement(", 1))
        text, made, more = f"{pattern}\n\n{replacement}\n\n{_NEW_PASS}", "new_pass", []
    new: Transformation = compiled(with_imports(text, f"case = {made}", more=more), "case")
    names = [node.name for node in source.nodes]
    return with_imports(text, *_test(new, made, graph_module, names, None, names[0], []), more=more)


_CLASS = '''\
class {name}(RewritePass[torch.fx.Node]):
    """Change {operator}: say here what becomes of it."""

    def match(self, facts):
        for node in list(facts.graph_module.graph.nodes):
            called = operator_called(node, facts.graph_module)
            if called is not None and called.computes == "{operator}":
                yield node

    def rewrite(self, node, edit):
        edit.change(node, target=node.target)  # the same call: put another one here
        return node
'''
_NEW_PASS = 'new_pass = fxlab.from_pattern(pattern, replacement, name="new-pass", preserves_computation=True)'


def _documented(source: str) -> str:
    head, _, body = source.partition("\n")
    return f'{head}\n    """Compute the same as the pattern: put other calls here."""\n{body}'


def _test(
    pass_: Transformation,
    made: str,
    below: GraphModule,
    names: Iterable[str],
    code: str | None,
    node: str,
    notes: list[str],
) -> list[str]:
    """Return a test and its model. ``made``: Python that makes the pass. ``code``: why it does not apply."""
    needed = [made] if made == "pass_" else []
    try:
        case = _alone(pass_, below, {*names}, code)
    except ValueError as error:
        lines = "" if code is not None else _lines_at(pass_, below, node)
        case = _Case("", "model", "inputs", lines)
        notes = [f"model, inputs: the stage below, as the nodes do not do alone ({error})", *notes]
        needed += ["model", "inputs"]
    what = re.sub(r"\W+", "_", str(pass_.name))
    about = "".join(f"    # {line}\n" for note in notes for line in _wrapped(note))
    given = f"{made}, {case.model}, {case.inputs}"
    if code is None:
        text = textwrap.indent(case.expected.replace("\\", r"\\").replace('"""', r"\"\"\""), " " * 8)
        call = f'    fxlab.testing.expect({given}, """\n{text}\n    """)\n'
    else:
        reason = f', code="{code}"' if code else ""
        call = f"    fxlab.testing.expect_no_match({given}{reason})\n"
    return [case.source, f"def test_{what}({', '.join(needed)}):\n{about}{call}"]


def _alone(pass_: Transformation, below: GraphModule, names: set[str], code: str | None) -> _Case:
    """Return a model of some nodes, or also of surrounding ones, on which the pass does the same.

    Raises ValueError if there is none.
    """
    graphs = graphs_of(below)
    prefix = max((each for each in graphs if all(n.startswith(each) for n in names if n)), key=len)
    graph_module = graphs[prefix]
    own = [node for node in graph_module.graph.nodes if f"{prefix}{node.name}" in names]
    nodes, why = {each for each in own if each.op.startswith("call_")}, "it computes nothing"
    for _ in range(_WIDER + 1):
        if not 0 < len(nodes) <= _MOST_NODES:
            break
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _tried(pass_, _case(graph_module, nodes), code)
        except Exception as error:  # nodes and foreign passes may raise anything
            why = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        around = {other for each in nodes for other in (*each.all_input_nodes, *each.users)}
        nodes = nodes | {each for each in around if each.op.startswith("call_")}
    raise ValueError(why)


def _tried(pass_: Transformation, case: _Case, code: str | None) -> _Case:
    """Return a model on which a pass behaves as expected."""
    model, inputs = compiled(with_imports(case.source, f"case = {case.model}, {case.inputs}"), "case")
    if code is not None:
        expect_no_match(pass_, model, inputs, code=code or None)
        return case
    session = Session(model, inputs, passes=[pass_])
    session.apply(pass_)
    if isinstance(pass_, CandidatePass) and (count := len(session.rewrites(pass_))) != 1:
        raise ValueError(f"{count} places are rewritten there")
    text = canonical_text(session.graph_module)
    if text == canonical_text(session.original) and not session._internals.transformed_nodes().size:
        raise ValueError("it changes nothing there")
    expect(pass_, model, inputs, text)
    return _Case(case.source, case.model, case.inputs, text)


def _case(graph_module: GraphModule, nodes: set[Node]) -> _Case:
    """Write a model of some nodes; values that they read become its inputs and weights."""
    ordered = [node for node in graph_module.graph.nodes if node in nodes and not is_guard(node)]
    source = Source(GraphFacts(graph_module), ordered)
    function = source.written("computed")
    given, held, inputs = dict[str, str](), list[str](), dict[str, str]()
    total = 0
    for name, key in source.stands_for.items():
        value = known_result(key) if isinstance(key, Node) else attribute_at(graph_module, key[1])
        if hasattr(value, "shape"):
            total += math.prod(int(known_number(size)) for size in value.shape)
        if not isinstance(key, Node):
            given[name], text = f"self.{name}", _weight(value)
            is_parameter = isinstance(value, torch.nn.Parameter)
            held.append(
                f"self.{name} = {text}" if is_parameter else f'self.register_buffer("{name}", {text})'
            )
        elif isinstance(value, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
            given[name] = repr(known_number(value))
        else:
            given[name], inputs[name] = name, _value(value, name)
    if total > _MOST_ELEMENTS:
        raise ValueError(f"they read {total:,} elements")
    values = [*inputs.values()]
    written = values[0] if len(values) == 1 else f"({', '.join(values)})"
    if len(inputs) == len(given):
        return _Case(function, "computed", written)
    init = textwrap.indent("\n".join(["super().__init__()", *held]), " " * 8)
    head = f"class Model(torch.nn.Module):\n    def __init__(self):\n{init}\n\n"
    forward = f"    def forward({', '.join(['self', *inputs])}):\n"
    body = f"        return computed({', '.join(given.values())})\n"
    mode = "" if graph_module.training else ".eval()"
    return _Case(f"{function}\n\n{head}{forward}{body}", f"Model(){mode}", written)


def _weight(value: torch.Tensor) -> str:
    """Write a parameter or buffer of positive numbers; a constant of few numbers literally."""
    is_parameter, is_real = isinstance(value, torch.nn.Parameter), value.dtype.is_floating_point
    if type(value) is torch.Tensor and value.device.type == "cpu" and value.numel() <= _FEW_ELEMENTS:
        numbers = value.tolist()
        if not is_real or value.isfinite().all():
            return f"torch.tensor({numbers!r}, dtype={value.dtype})"
    text = _tensor("rand" if is_real else "randint", value)
    if not is_parameter:
        return text
    return f"torch.nn.Parameter({text}{'' if value.requires_grad else ', requires_grad=False'})"


def _value(value: Any, name: str) -> str:
    """Write an input of a shape and dtype."""
    if isinstance(value, tuple | list) and not hasattr(value, "dtype"):
        inner = ", ".join(_value(each, name) for each in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"the shape of {name} is unknown")
    return _tensor("randn" if dtype.is_floating_point or dtype.is_complex else "randint", value)


def _tensor(function: str, value: Any) -> str:
    shape = tuple(known_number(size) for size in value.shape)
    if value.dtype == torch.bool:
        return f"torch.rand({shape}) > 0.5"
    usual = torch.int64 if function == "randint" else torch.float32
    given = f"0, 2, {shape}" if function == "randint" else f"{shape}"
    return f"torch.{function}({given}{'' if value.dtype == usual else f', dtype={value.dtype}'})"


def _lines_at(pass_: Transformation, below: GraphModule, node: str) -> str:
    """Return the lines of a pass's result at a node, with captured names; all lines if it marks none."""
    made = changed_copy(below, pass_)
    lines = canonical_lines(made)
    records = pass_.rewrites(made) if isinstance(pass_, CandidatePass) else []
    marked = {name for each in records if node in each.candidate for name in each.marked}
    chosen = [line for name, line in lines.items() if name in marked] or [*lines.values()]
    if len(chosen) > _MOST_LINES:
        raise ValueError(f"{pass_.name} marks no nodes, and {len(chosen)} lines are no test of one place.")
    known: set[str] = set()

    def captured(match: re.Match[str]) -> str:
        name = f"V{match[1]}"
        text = f"[[{name}]]" if name in known else f"[[{name}:%[0-9]+]]"
        known.add(name)
        return text

    return "\n".join(f"CHECK: {re.sub(r'%([0-9]+)', captured, line)}" for line in chosen)


def _wrapped(note: str) -> list[str]:
    return textwrap.wrap(note, 100, break_long_words=False, break_on_hyphens=False)


def _defined_at(pass_: Transformation) -> str:
    functions = functions_in([*arguments_of(pass_).values()])
    return " ".join(map(_place_of, functions)) or _place_of(type(pass_))


def _place_of(value: Any) -> str:
    """Tell where a function or class is defined."""
    if isinstance(value, type):
        found = [each for each in vars(value).values() if hasattr(each, "__code__")]
        value = found[0] if found else value
    code = getattr(value, "__code__", None)
    place = "" if code is None else f"line {code.co_firstlineno} of {code.co_filename}"
    return f"It is defined in {place or value.__module__}."
