"""``fxlab.from_callable``: any function of a graph module as a transformation.

The function runs on a copy, whose unchanged parts are replaced by the original objects (``adoption.py``). So
the difference of two snapshots is made of references, and to revert it is to restore references.
"""

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult
from torch.fx.subgraph_rewriter import Match, ReplacedPatterns

from fxlab.base.checks import require_bool, type_error
from fxlab.base.first_use import pd
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.graph_modules.graph_module import check_lints
from fxlab.transformations.base import Transformation, explanation
from fxlab.transformations.foreign.adoption import OF_TORCH, TENSORS, adopt, is_same
from fxlab.transformations.journal.journal import (
    KEY,
    Absent,
    AttributeChange,
    Journal,
    ModuleChange,
    NodeChange,
    Record,
)
from fxlab.transformations.journal.journaled import JournaledTransformation
from fxlab.transformations.journal.module_tree import (
    ModulePrint,
    attributes_of,
    find_module,
    join_path,
    parents_of,
)
from fxlab.transformations.journal.name_order import moved
from fxlab.transformations.journal.node_state import KeptMeta, NodeState
from fxlab.transformations.marks import add_mark
from fxlab.transformations.signature import digest
from fxlab.values.results_on_disk import results_on_disk

if TYPE_CHECKING:
    from fxlab.transformations.inductor_patterns import PatternAttempts


@dataclass(frozen=True)
class CallableTransformation(JournaledTransformation):
    """A function as a transformation; made by :func:`from_callable`.

    Its changes are found by comparison. It marks nodes that are new or do something else, and those that read
    another node that is not marked; if only the order changes, those that moved. Reversing restores the
    former nodes, modules and tensors.
    """

    function: Callable[..., Any]
    name: str
    preserves_computation: bool = False
    writes_tensors: bool = True

    explains_by_running = True

    @property
    def description(self) -> str:
        """The docstring of the function."""
        return self.function.__doc__ or ""

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Apply the function to a copy, and mark and record its changes."""
        journal = copy.copy(Journal.of(graph_module))
        journal.note_order_of_nodes(graph_module)
        snapshot, copies = Snapshot(graph_module), dict[int, Any]()
        with results_on_disk(graph_module):
            copied = share_tensors_copy(
                graph_module, own=lambda tensor: self.writes_tensors and tensor.is_leaf, memo=copies
            )
            result = self._checked(call_pass(self.function, copied), copied)
            result.graph.lint()
            adopt(graph_module, result, copies, is_copy=result is copied)
        record = snapshot.difference(self.signature)
        # The records of transformations inside the function are part of its change.
        journal.keep_in(graph_module)
        if record is None:
            return graph_module
        self._begin(graph_module, journal)
        children = snapshot.children
        for parent in {parent for change in record.modules for parent in parents_of(change.at)}:
            journal.child_order.setdefault(parent, children.get(parent, []))
        journal.records.append(record)
        journal.keep_in(graph_module)
        nodes: dict[str, Node] = {node.name: node for node in graph_module.graph.nodes}
        for name in record.marked:
            add_mark(nodes[name], record.signature)
        return graph_module

    def explain(self, graph_module: GraphModule) -> "pd.DataFrame":
        """Try the function on a copy: the changes, and near misses of Inductor's patterns."""
        known = len(Journal.of(graph_module).records)
        copied, tried = self._tried_on_copy(graph_module)
        words: dict[str, str] = {}
        for record in Journal.of(copied).records[known:]:
            words |= dict.fromkeys(record.marked, "would be changed")
            words |= {change.name: "would be removed" for change in record.nodes if change.after is None}
        names = [node.name for node in graph_module.graph.nodes if node.name in words]
        changed = [(name, True, words[name], "", number) for number, name in enumerate(names)]
        if not tried.attempts:
            return explanation(changed)
        from fxlab.transformations.inductor_patterns import near_misses, told

        there = {node.name for node in graph_module.graph.nodes}
        return explanation([*changed, *told(len(names), near_misses(tried, there, words))])

    def tried(self, graph_module: GraphModule) -> "PatternAttempts":
        """Return the patterns of Inductor that the function tries on a copy, and the outcome of each."""
        return self._tried_on_copy(graph_module)[1]

    def _tried_on_copy(self, graph_module: GraphModule) -> "tuple[GraphModule, PatternAttempts]":
        from fxlab.transformations.inductor_patterns.hooks import patterns_heard

        self._check_graph_module(graph_module)
        check_lints(graph_module, "graph_module")
        copied = share_tensors_copy(graph_module)
        with patterns_heard(self.name) as tried, self._signature_held():
            self.transform(copied)
        return copied, tried

    def _checked(self, result: Any, given: GraphModule) -> GraphModule:
        if isinstance(result, PassResult):
            result = result.graph_module
        if isinstance(result, GraphModule):
            if (calling := _calling_class(result)) is not _calling_class(given):
                raise TypeError(
                    f"{self.name} must return a torch.fx.GraphModule that runs its graph. A "
                    f"{calling.__name__} has a __call__ of its own, which no graph shows. Return what its "
                    "graph is after that has run, such as torch.fx.GraphModule(module, module.graph)."
                )
            return result
        if result is not None and not _is_report(result):
            raise TypeError(
                f"{self.name} must change the module that it is given, and return nothing, whether or how "
                "often it has changed something, or the matches that were replaced; or return a "
                f"torch.fx.GraphModule or a PassResult. It returned a {type(result).__name__}."
            )
        return given


def _calling_class(graph_module: GraphModule) -> type:
    """Return the class whose ``__call__`` runs: torch gives one to the class that each graph module has."""
    written = [cls for cls in type(graph_module).__mro__[1:] if not cls.__module__.startswith("fxlab.")]
    return next(cls for cls in written if "__call__" in vars(cls))


def _is_report(result: object) -> bool:
    """Tell whether the result of a function only reports its changes to the given module."""
    if isinstance(result, list):  # as torch.fx.replace_pattern
        return all(isinstance(item, Match | ReplacedPatterns) for item in result)
    return isinstance(result, int)  # as Graph.eliminate_dead_code, and passes that count


def from_callable(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    preserves_computation: bool = False,
    writes_tensors: bool = True,
) -> CallableTransformation:
    """Make a reversible transformation of any function of a graph module, such as another library's pass.

    The changes are found by comparing the module before and after. Nodes that are new or do something else
    are marked. Reversing restores the same parameters and modules, and nodes with the same names in the same
    order. If the function fails, the module is unchanged.

    Parameters
    ----------
    function
        Takes a ``torch.fx.GraphModule``. It changes that one and returns nothing, a bool or a count of
        changes, or the matches that it has replaced; or it returns a graph module (the given one then takes
        its content) or a ``PassResult``. Passes of other projects need no change: one with an argument
        ``example_inputs`` gets the inputs that the graph was made for, one whose first argument is annotated
        ``torch.fx.Graph``, or a ``CustomGraphPass`` of Inductor, gets the graph, one whose first argument is
        annotated ``torch.fx.Node`` is called with each node, and a ``PatternMatcherPass`` is applied. Where
        the patterns of one do not match, ``session.why_not`` says why.
    name
        A short name for people; that of the function if left out.
    preserves_computation
        Whether the function promises that the module computes the same, up to rounding.
    writes_tensors
        Whether the function may write into parameters and buffers in place. They are then copied before it
        runs, and a written copy becomes a new parameter. ``False`` saves the copy.

    Raises
    ------
    TypeError
        If ``function`` cannot be called, or is a transformation or a class already.

    Examples
    --------
    >>> import torch
    >>> def remove_dropout(graph_module):
    ...     for node in graph_module.graph.nodes:
    ...         if node.target == "1":
    ...             node.replace_all_uses_with(node.args[0])
    ...             graph_module.graph.erase_node(node)
    >>> layers = torch.nn.Linear(2, 2), torch.nn.Dropout(), torch.nn.ReLU()
    >>> traced = torch.fx.symbolic_trace(torch.nn.Sequential(*layers).eval())
    >>> transformation = from_callable(remove_dropout, preserves_computation=True)
    >>> [node.name for node in transformation(traced).graph.nodes]
    ['input_1', '_0', '_2', 'output']
    >>> transformation.get_transformed_nodes(traced)
    [_2]
    >>> [node.name for node in transformation(traced, reverse=True).graph.nodes]
    ['input_1', '_0', '_1', '_2', 'output']
    """
    if not is_pattern_matcher(function):
        check_callable(function, "function")
    check_promises(name, preserves_computation=preserves_computation, writes_tensors=writes_tensors)
    return CallableTransformation(function, name or name_of(function), preserves_computation, writes_tensors)


def check_promises(name: object, **flags: object) -> None:
    """Refuse names other than texts, and promises other than truth values."""
    if name is not None and not isinstance(name, str):
        raise type_error("name", "a string", name)
    for argument, value in flags.items():
        require_bool(value, argument)


def check_callable(given: object, argument: str) -> None:
    """Refuse values that cannot be called, and classes."""
    if isinstance(given, Transformation):
        raise TypeError(f"{argument}: expected a function, but {given.name} is a transformation already.")
    if isinstance(given, type) or not callable(given):
        what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
        raise TypeError(f"{argument}: expected a function, got {what}.")


def name_of(function: object) -> str:
    """Return a name for people, as transformations have: ``fuse_linears`` -> ``"fuse-linears"``."""
    name = getattr(function, "__name__", getattr(function, "pass_name", None)) or type(function).__name__
    return str(name).strip("<>_").replace("_", "-").lower()


_GRAPHS = (Graph, "Graph", "fx.Graph", "torch.fx.Graph")
_NODES = (Node, "Node", "fx.Node", "torch.fx.Node")
_INPUTS = ("example_inputs", "sample_inputs", "fake_inputs", "inputs")


def is_pattern_matcher(value: object) -> bool:
    """Tell whether a value is a set of Inductor's patterns, which is applied instead of called."""
    return _derives_from(value, "PatternMatcherPass")


def call_pass(function: Any, graph_module: GraphModule) -> Any:
    """Call a foreign pass with its arguments: a graph module, its graph, or example inputs as well.

    Example inputs are those that the graph was made for (``meta["val"]``), as compilers pass them. Raises
    ValueError if the function takes example inputs, and the graph does not have them.
    """
    if is_pattern_matcher(function):
        return function.apply(graph_module)
    parameters = _parameters(function)
    if (parameters and _takes_graph(function, parameters[0])) or _derives_from(function, "CustomGraphPass"):
        result = function(graph_module.graph)
        graph_module.recompile()
        return None if isinstance(result, Graph) else result
    if parameters and parameters[0].annotation in _NODES:
        for node in list(graph_module.graph.nodes):
            function(node)
        graph_module.recompile()
        return None
    inputs = next((each for each in parameters[1:] if each.name in _INPUTS), None)
    if inputs is None or inputs.default not in (inputs.empty, None):
        return function(graph_module)
    values = [node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder")]
    if not any(value is None for value in values):
        return function(graph_module, **{inputs.name: values})
    if inputs.default is inputs.empty:
        raise ValueError(
            f"The pass takes {inputs.name}, and the shapes of the graph are unknown. Trace the model with "
            "fxlab.symbolic_trace, or run FakeTensorProp."
        )
    return function(graph_module)


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return []
    return [each for each in parameters if each.kind is not each.POSITIONAL_ONLY]


def _takes_graph(function: Any, parameter: inspect.Parameter) -> bool:
    """Tell whether an argument is a graph: by its annotation, or its name if its nodes are read."""
    if parameter.annotation is not parameter.empty or parameter.name not in ("graph", "g", "fx_graph"):
        return parameter.annotation in _GRAPHS
    reads = getattr(getattr(function, "__code__", None), "co_names", ())
    return "nodes" in reads and "graph" not in reads  # which no graph module has


def _derives_from(value: object, name: str) -> bool:
    """Tell whether a value derives from a class of Inductor, without importing it."""
    classes = type(value).__mro__
    return any(each.__name__ == name and each.__module__.startswith("torch._inductor") for each in classes)


class Snapshot:
    """The nodes, modules and attributes of a graph module."""

    def __init__(self, graph_module: GraphModule) -> None:
        self._graph_module = graph_module
        self._nodes = {node.name: NodeState.of(node) for node in graph_module.graph.nodes}
        self._codegen = graph_module.graph._codegen
        self._modules = dict(graph_module.named_modules(remove_duplicate=False))
        self._attributes = {id(module): attributes_of(module) for module in self._modules.values()}

    def difference(self, signature: str) -> Record | None:
        """Return the changes since, in a form that can be reverted; ``None`` if there are none."""
        record = Record(signature, mode=self._graph_module.training, is_opaque=True)
        self._compare_root(record)
        self._compare_modules("", record)
        self._compare_nodes(record)
        return record if record.nodes or record.modules or record.attributes or record.order else None

    @property
    def children(self) -> dict[str, list[str]]:
        """The names of the children of each module, by its path, in order."""
        return {path: list(self._attributes[id(m)]["_modules"]) for path, m in self._modules.items()}

    def _compare_root(self, record: Record) -> None:
        root = self._graph_module
        before, now = self._attributes[id(root)], vars(root)
        for holder in ("", *TENSORS, "meta"):
            old, new = (attributes[holder] if holder else attributes for attributes in (before, now))
            left_out = {KEY} if holder else {*OF_TORCH, *TENSORS}
            names = [name for name in {**old, **new} if name not in left_out]
            kept = {name: KeptMeta({name: old[name]}) for name in old} if holder == "meta" else old
            record.attributes += [
                AttributeChange(holder, name, kept.get(name, Absent()), tuple(old) if holder else ())
                for name in names
                if name not in old or name not in new or not is_same(old[name], new[name])
            ]
        if digest(root.graph._codegen) != digest(self._codegen):
            record.attributes.append(AttributeChange("graph", "_codegen", self._codegen))

    def _compare_modules(self, path: str, record: Record) -> None:
        """Note the replaced modules below a path whose own module is still there."""
        module = self._modules[path]
        before, now = self._attributes[id(module)]["_modules"], module._modules
        for name in {**before, **now}:
            old, new, at = before.get(name), now.get(name), join_path(path, name)
            if old is new:
                if old is not None:
                    self._compare_modules(at, record)
                continue
            originals = {} if old is None else {at: old}
            record.modules.append(ModuleChange(originals, at, _print_of_what_is_new(new, old), ()))

    def _compare_nodes(self, record: Record) -> None:
        graph = self._graph_module.graph
        now = {node.name: NodeState.of(node) for node in graph.nodes}
        added = [NodeChange(name, None, state) for name, state in now.items() if name not in self._nodes]
        removed = [NodeChange(name, state, None) for name, state in self._nodes.items() if name not in now]
        pairs = [(self._nodes[name], state) for name, state in now.items() if name in self._nodes]
        replaced = [
            NodeChange(old.name, old, new, meta_keys=old.changed_meta(new))
            for old, new in pairs
            if not old.is_same(new)
        ]
        # Reverted last first: removed nodes come back in order, then their users change, then new nodes go.
        record.nodes = [*added, *replaced, *reversed(removed)]
        common = [name for name in self._nodes if name in now]
        if common != [name for name in now if name in self._nodes]:
            record.order = tuple(self._nodes)
        written = {old.name for old, new in pairs if not old.is_same_call(new)}
        changed = {path for change in record.modules for path in (*parents_of(change.at), change.at)}
        written |= {old.name for old, new in pairs if self._calls_something_else(new, changed)}
        written |= {change.name for change in added}
        rewired = {
            old.name
            for old, new in pairs
            if any(
                a != b and written.isdisjoint((a, b)) for a, b in zip(old.inputs, new.inputs, strict=False)
            )
        }
        marked = tuple(name for name in now if name in written or name in rewired)
        record.marked = marked or moved([*self._nodes], [*now])
        states = [*self._nodes.values(), *now.values()]
        callers = defaultdict[str, dict[str, None]](dict)
        for state in states:
            if isinstance(state.target, str):
                for path in (*parents_of(state.target), state.target):
                    callers[path][state.name] = None
        record.modules = [replace(change, callers=tuple(callers[change.at])) for change in record.modules]

    def _calls_something_else(self, state: NodeState, changed: set[str]) -> bool:
        """Tell whether an unchanged node calls or gets another object than before."""
        if state.op not in ("call_module", "get_attr"):
            return False
        if state.target in changed:
            return True
        path, _, name = str(state.target).rpartition(".")
        if path not in self._modules:
            return False
        before = self._attributes[id(self._modules[path])]
        module = find_module(self._graph_module, path)
        return module is not None and not is_same(_entry(before, name), _entry(vars(module), name))


def _entry(attributes: dict[str, Any], name: str) -> Any:
    for holder in ("_modules", *TENSORS):
        if name in attributes[holder]:
            return attributes[holder][name]
    return attributes.get(name)


def _print_of_what_is_new(module: nn.Module | None, original: nn.Module | None) -> ModulePrint:
    if module is None:
        return ModulePrint({}, {}, training=False)
    kept = set() if original is None else set(map(id, original.parameters()))
    names = [name for name, parameter in module.named_parameters() if id(parameter) not in kept]
    return ModulePrint.of(module, names)
