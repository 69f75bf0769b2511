"""All that a comparison asks of one graph on one input: as it is and in float64, each run made once."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, TypeVar

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from fxlab.base.exchanged import PROCESS_LOCK, cached_property
from fxlab.models.running.arguments import Inputs, given_arguments, named_arguments
from fxlab.models.running.call_record import DRAWS_OTHERWISE
from fxlab.models.running.running import needs_gradients
from fxlab.models.state.settings import NumericSettings
from fxlab.operators import describes, operator_of, returns_number
from fxlab.operators.node_info import attribute_at
from fxlab.validation.outputs.compare_outputs import Counterparts
from fxlab.validation.outputs.computed_tensors import GRADIENT, Observed, observed
from fxlab.validation.verdicts import float64_run
from fxlab.validation.verdicts.decisions import Decisions
from fxlab.validation.verdicts.draws import Draw, Draws, given_draws
from fxlab.validation.verdicts.gradients import Gradients, gradients_in_float64, gradients_of
from fxlab.validation.verdicts.own_run import OwnRun
from fxlab.values.tensors import dense, is_floating, tensors_by_path, to_float64

T = TypeVar("T")


class Runs:
    """The runs of a graph.

    ``name``: its name in errors: ``original`` or ``transformed``. ``parameters``: names of the parameters
    whose gradients are asked for, with those of inputs, and their names in the result. Left out, no gradients
    are. ``beside``: the graph that it is compared with: both run with gradients if one of them needs these.
    ``names``: names of the model that it is compared with, for its inputs and tensors. Left out, its own.
    ``given``: the random numbers that its operators receive. Left out, they draw some.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        inputs: Inputs,
        parameters: Mapping[str, str] | None = None,
        beside: GraphModule | None = None,
        names: Counterparts | None = None,
        given: Sequence[Draw] | None = None,
    ) -> None:
        self.graph_module, self._name, self.inputs, self._beside = graph_module, name, inputs, beside
        self.settings = NumericSettings.now()
        """The settings of torch that all runs have in common."""
        self.names = names or Counterparts.of(graph_module, graph_module, inputs)
        self._parameters = parameters
        self._given = self._replayed = given
        self._own = OwnRun(graph_module, inputs, beside, given)
        self._decisions = Decisions()
        self.visit: float64_run.Visit | None = None
        """Shown each node and its result in the float64 run, before that is asked for anything."""

    def beside(self, other: GraphModule) -> "Runs":
        """Return the runs for a comparison with another graph: others, if only one needs gradients."""
        if needs_gradients(other) == needs_gradients(self.graph_module):
            return self
        own = self._name, self.inputs, self._parameters
        return Runs(self.graph_module, *own, other, self.names)

    def named(self, names: Counterparts) -> "Runs":
        """Return the runs with other names for inputs, tensors and outputs; it is not run again as it is."""
        other = copy(self)
        other.names = names
        vars(other).pop("observed", None)
        return other

    def visited(self, visit: float64_run.Visit, widen: float64_run.Widen) -> dict[str, torch.Tensor]:
        """Run it in float64 with other weights, show each node's result, and return outputs by own paths."""
        decisions = Decisions(given=self._decisions.given)
        options = {"own": self._own, "drawn": self._draws_in_float64, "visit": visit, "widen": widen}
        return self._named(float64_run.run_in_float64, decisions=decisions, **options).returned

    def replay(self, drawn: Sequence[Draw]) -> None:
        """Give its operators these random numbers in float64, and not those that it draws itself."""
        self._replayed = drawn

    def given(self, drawn: Sequence[Draw]) -> "Runs":
        """Return the runs of the same graph with given random numbers for its operators."""
        own = self._name, self.inputs, self._parameters, self._beside, self.names
        return Runs(self.graph_module, *own, drawn)

    @property
    def draws(self) -> Draws:
        """The random numbers that its operators draw or receive."""
        is_known = self._given is None and not self._observed.record.draws
        return Draws() if is_known else self._own.noted.draws

    @property
    def _draws_in_float64(self) -> Sequence[Draw]:
        return self.draws.drawn if self._replayed is None else self._replayed

    @cached_property
    def observed(self) -> Observed:
        """The results in its own dtypes, the tensors it writes and the record of the call."""
        return self.names.named(self._observed)

    @cached_property
    def _observed(self) -> Observed:
        options = self._name, self.inputs, self._beside
        found = observed(self.graph_module, *options, under=lambda: given_draws(self._given))
        self._own.needs_gradients = found.runs_with_gradients
        return found

    def observe_again(self) -> None:
        """Forget the observed run, as something else may have drawn random numbers meanwhile."""
        for name in ("observed", "_observed"):
            vars(self).pop(name, None)

    @cached_property
    def gradients_would_flow(self) -> dict[str, bool]:
        """The outputs of which the graph tells whether gradients would flow from them, by path."""
        given = named_arguments(self.graph_module, *given_arguments(self.inputs))
        return gradients_flow(self.graph_module, given)

    @property
    def is_generated(self) -> bool:
        """Whether it is, or calls, compiled code, of which there is no float64 run."""
        return bool(self._generated)

    @cached_property
    def _generated(self) -> tuple[str, ...]:
        nodes = self.graph_module.graph.nodes
        if self._observed.runs_compiled_code:
            return tuple(node.name for node in nodes if node.op.startswith("call"))
        return tuple(node.name for node in nodes if getattr(node.target, "is_generated_code", False))

    @property
    def own_rounding_without_compiling(self) -> dict[str, torch.Tensor]:
        """The differences of its results from those in float64 where nothing in it is compiled."""
        own = self._name, self.inputs, self._parameters, self._beside, self.names, self._given
        with PROCESS_LOCK, torch.compiler.set_stance("force_eager"):
            eager = Runs(self.graph_module, *own)
            if eager.is_generated:
                return {}
            found, exact = eager.observed.everything | eager.gradients, eager.exact
            return {
                path: dense(tensor) - exact[path]
                for path, tensor in found.items()
                if path in exact and is_floating(tensor)
            }

    @property
    def has_own_code(self) -> bool:
        """Whether it is code that Inductor has generated for a graph of a compile session."""
        return self.is_generated and not self._observed.runs_compiled_code

    @property
    def draws_as_torch(self) -> bool:
        """Whether random numbers are drawn by torch's own operators, and not in Inductor's way."""
        return not self.graph_module.meta.get(DRAWS_OTHERWISE)

    @cached_property
    def code_differs(self) -> bool:
        """Whether the code of the graph, which a call runs, computes something else than its nodes.

        Torch writes some nodes otherwise; and a graph may be changed without being compiled again.
        """
        if self.is_generated:
            return False
        try:
            by_node = self.names.picked(self._own.noted.returned)
        except Exception:  # its nodes do not run one by one
            return False
        called = self.observed.returned
        return any(
            path in by_node and not _is_near(dense(tensor), dense(by_node[path]))
            for path, tensor in called.items()
            if is_floating(tensor)
        )

    @property
    def has_gradients(self) -> bool:
        """Whether gradients are asked for."""
        return self._parameters is not None

    @property
    def asked_for(self) -> Mapping[str, str]:
        """The parameters whose gradients are asked for, and their names in the result."""
        return self._parameters or {}

    @property
    def gradients(self) -> dict[str, torch.Tensor]:
        """Its gradients as it is, if they are asked for."""
        return self._own_gradients.found

    @property
    def gradients_flow_from(self) -> frozenset[str]:
        """The outputs that gradients flow from, if gradients are asked for."""
        return self._own_gradients.flow_from

    @cached_property
    def _own_gradients(self) -> Gradients:
        if self._parameters is None:
            return Gradients({}, frozenset())
        try:
            own = gradients_of(self.graph_module, self.inputs, self._parameters, self._given)
            return own._replace(found=self._gradient_rows(own.found))
        except Exception as error:  # a backward pass may raise anything
            why = str(error)
            if needs_gradients(self.graph_module) and "second time" in why:
                why = "it computes them itself: they are among its outputs, which are compared"
            raise ValueError(f"{self._name}: its gradients cannot be computed: {why}") from error

    @property
    def exact(self) -> dict[str, torch.Tensor]:
        """The results and written tensors in float64, and the gradients that are asked for.

        With its own decisions, if the shapes of outputs depend on them.
        """
        return self._with_own_decisions[0] if self._takes_own_decisions else self._exact

    @property
    def in_own_dtype(self) -> tuple[str, ...]:
        """The nodes that have no float64."""
        return self._generated or self._in_float64.in_own_dtype

    @property
    def targets_in_own_dtype(self) -> Counter[str | int]:
        """The targets of these nodes, modules by their ``id``, and their number."""
        called = set(self.in_own_dtype)
        nodes = (node for node in self.graph_module.graph.nodes if node.name in called)
        return Counter(
            id(self.graph_module.get_submodule(node.target)) if node.op == "call_module" else str(node.target)
            for node in nodes
        )

    @cached_property
    def moved_by_decisions(self) -> dict[str, torch.Tensor]:
        """The distance by which its own decisions move the results in float64, where they are other ones."""
        exact, with_own = self.exact, self._with_own_decisions[0]
        return {
            path: torch.where(with_own[path] == tensor, 0.0, with_own[path] - tensor)
            for path, tensor in exact.items()
            if with_own is not exact and is_floating(tensor)
        }

    @property
    def decides_otherwise(self) -> int:
        """The number of its decisions that differ from those of float64 in the same place."""
        return self._with_own_decisions[1].otherwise

    @property
    def unknown_decisions(self) -> dict[str, str]:
        """The nodes whose own decisions a float64 run could not take, and why."""
        return self._with_own_decisions[1].not_given

    def exact_with(self, widen: float64_run.Widen) -> dict[str, torch.Tensor]:
        """Return its results in float64 with other values of the module's tensors."""
        given = self._own.noted.decisions if self._takes_own_decisions else None
        return self._tensors(given=given, widen=widen)

    def exact_moved(self, move: float64_run.Widen, *, everywhere: bool) -> dict[str, torch.Tensor]:
        """Return the changes of its results in float64, with the same decisions, where float64 is not exact.

        ``move``: returns the values to use for tensors that are computed in their own dtype and, if that is
        float64, held. ``everywhere``: whether it is used for inputs and for all results as well.
        """
        exact = self.exact  # whose decisions are noted now
        given = self._own.noted.decisions if self._takes_own_decisions else self._decisions

        def widen(tensor: torch.Tensor) -> torch.Tensor:
            return move(tensor) if tensor.dtype == torch.float64 else to_float64(tensor)

        found = self._tensors(given=given, widen=widen, move=move, everywhere=everywhere)
        return {path: tensor - exact[path] for path, tensor in found.items() if is_floating(tensor)}

    @cached_property
    def _in_float64(self) -> float64_run.Float64Result:
        try:
            return self._run(decisions=self._decisions, visit=self.visit)
        except float64_run.DrawsRandomNumbersError:
            raise
        except ValueError:
            own = self._own.noted.decisions
            if not own.taken:
                raise
            # The graph may run with its own decisions only, as it was recorded with them.
            self._decisions = Decisions(given=own)
            return self._run(decisions=self._decisions, visit=self.visit)

    @cached_property
    def _exact(self) -> dict[str, torch.Tensor]:
        if self.is_generated:
            return self.observed.everything | self.gradients
        rows = self._rows(self._in_float64)
        return rows | self._gradients(given=self._decisions.given)

    @cached_property
    def _takes_own_decisions(self) -> bool:
        """Whether it runs in float64 with its own decisions alone, or its outputs have their shapes."""
        exact = self._exact
        return self._decisions.given is not None or any(
            path not in exact or exact[path].shape != tensor.shape
            for path, tensor in self.observed.returned.items()
        )

    @cached_property
    def _with_own_decisions(self) -> tuple[dict[str, torch.Tensor], Decisions]:
        """Return its results in float64 with its own decisions, and those decisions."""
        exact = self._exact
        own = self._own.noted.decisions if self._decisions.taken else self._decisions
        if not own.differ_from(self._decisions):
            return exact, Decisions()
        decisions = Decisions(given=own)
        return self._tensors(decisions, given=own), decisions

    def _tensors(
        self, decisions: Decisions | None = None, *, given: Decisions | None = None, **options: Any
    ) -> dict[str, torch.Tensor]:
        result = self._run(decisions=decisions or Decisions(given=given), **options)
        return self._rows(result) | self._gradients(given=given, **options)

    def _run(self, **options: Any) -> float64_run.Float64Result:
        written = self._observed.written
        options |= {"own": self._own, "written": written, "drawn": self._draws_in_float64}
        return self._named(float64_run.run_in_float64, **options)

    @property
    def returned_in_float64(self) -> dict[str, torch.Tensor]:
        """The outputs in float64 by their own paths; of compiled code as they are."""
        return self._observed.returned if self.is_generated else self._in_float64.returned

    def _rows(self, result: float64_run.Float64Result) -> dict[str, torch.Tensor]:
        """Return the results and writes of a run, by path, with all elements of sparse tensors."""
        found = self.names.picked(result.returned) | self.names.rows(result.written)
        return {path: dense(tensor) for path, tensor in found.items()}

    def _gradients(self, *, given: Decisions | None = None, **options: Any) -> dict[str, torch.Tensor]:
        if self._parameters is None:
            return {}
        options |= {"parameters": self._parameters, "decisions": Decisions(given=given)}
        options["drawn"] = self._draws_in_float64
        return self._gradient_rows(self._named(gradients_in_float64, own=self._own, **options))

    def _gradient_rows(self, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return gradients in the names of the other model; those of parameters have them already."""
        parameters = {GRADIENT + label for label in (self._parameters or {}).values()}
        return {path if path in parameters else self.names.row(path): g for path, g in gradients.items()}

    def _named(self, run: Callable[..., T], **options: Any) -> T:
        try:
            return run(self.graph_module, self.inputs, **options)
        except float64_run.DrawsRandomNumbersError as error:
            error.args = (f"{self._name}: {error}",)
            raise
        except ValueError as error:
            raise float64_run.NoFloat64Error(f"{self._name}: {error}") from error


def _is_near(called: torch.Tensor, by_node: torch.Tensor) -> bool:
    """Tell whether two tensors are as near as half of their digits, which no other order of sums explains."""
    if called.shape != by_node.shape:
        return False
    a, b = to_float64(called), to_float64(by_node)
    size = b.abs().nan_to_num(posinf=0.0).max() if b.numel() else 0.0
    same = (a == b) | (a.isnan() & b.isnan())
    return bool((same | ((a - b).abs() <= math.sqrt(torch.finfo(called.dtype).eps) * size)).all())


_CUTS = ("detach", "detach_", "detach_copy")
_SWITCHES = ("_set_grad_enabled", "set_grad_enabled")


def gradients_flow(graph_module: GraphModule, arguments: Mapping[str, Any]) -> dict[str, bool]:
    """Tell from which outputs gradients would flow, by path, without those of which it is not known."""
    flows: dict[Node, bool | None] = {}
    is_on = True
    for node in graph_module.graph.nodes:
        if node.op == "output":
            # In place of each node, a vector with the answer; other returned values are no tensors.
            told: Any = map_arg(node.args[0], lambda value: torch.tensor(_TOLD[flows[value]], device="cpu"))
            found = {path: vector.tolist() for path, vector in tensors_by_path(told).items() if vector.dim()}
            return {path: bool(*vector) for path, vector in found.items() if vector}
        if getattr(node.target, "__name__", "") in _SWITCHES:
            is_on = bool(node.args[0])
        is_cut = not is_on and node.op in ("call_function", "call_method", "call_module")
        flows[node] = False if is_cut else _flows(node, graph_module, arguments, flows)
    return {}


_TOLD: dict[bool | None, list[bool]] = {False: [False], True: [True], None: []}


def _flows(
    node: Node, graph_module: GraphModule, arguments: Mapping[str, Any], flows: Mapping[Node, bool | None]
) -> bool | None:
    """Tell whether gradients flow from the value of a node, ``None`` if that is not known."""
    if node.op == "placeholder":
        return _asks(arguments.get(str(node.target).lstrip("*")))
    if node.op == "get_attr":
        return _asks(attribute_at(graph_module, str(node.target), None))
    read = [flows[value] for value in node.all_input_nodes]
    if node.op == "call_module":
        module = graph_module.get_submodule(str(node.target))
        if not type(module).__module__.startswith("torch.nn.modules."):
            return None
        read.append(any(parameter.requires_grad for parameter in module.parameters()))
    else:
        operator = operator_of(node)
        if operator is None:
            return None
        takes_data = node.target is getattr and node.args[1:2] == ("data",)
        if operator.name in _CUTS or takes_data or describes(node) or returns_number(node):
            return False
    return True if True in read else None if None in read else False


def _asks(value: Any) -> bool:
    return any(tensor.requires_grad for tensor in tensors_by_path(value).values())
