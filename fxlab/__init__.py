"""See, switch and check ``torch.fx`` graph transformations.

Jupyter is not imported before :func:`inspect` is called, nor transformers before a model of its is traced.
"""

from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any

from fxlab._version import __version__ as __version__
from fxlab.first_use import found_in
from fxlab.other_names import OF_FXLAB, OF_SESSIONS, no_such_name, own_name, spelt_otherwise
from fxlab.public_calls import guided, of_session

if TYPE_CHECKING:
    # The same names as in the table below; type checkers cannot read that one.
    from fxlab import comparison as comparison
    from fxlab import compiler as compiler
    from fxlab import drawing as drawing
    from fxlab import notebook as notebook
    from fxlab import overlays as overlays
    from fxlab import rewriting as rewriting
    from fxlab import session as session
    from fxlab import tracing as tracing
    from fxlab import transformations as transformations
    from fxlab import validation as validation
    from fxlab.comparison.compare import assert_same as assert_same
    from fxlab.comparison.compare import compare as compare
    from fxlab.comparison.comparison import Comparison as Comparison
    from fxlab.comparison.recorded.compare_runs import compare_runs as compare_runs
    from fxlab.comparison.recorded.record_run import record_run as record_run
    from fxlab.comparison.weights_table import compare_weights as compare_weights
    from fxlab.compiler import *
    from fxlab.deployment.as_backend import as_backend as as_backend
    from fxlab.deployment.files import ExportError as ExportError
    from fxlab.deployment.files import export as export
    from fxlab.deployment.files import repro as repro
    from fxlab.drawing import draw as draw
    from fxlab.graphs.code_diff import code_diff as code_diff
    from fxlab.graphs.graph_diff import graph_diff as graph_diff
    from fxlab.graphs.nodes import nodes as nodes
    from fxlab.graphs.transformed_nodes import transformed_nodes as transformed_nodes
    from fxlab.html_report import *
    from fxlab.notebook import *
    from fxlab.session import *
    from fxlab.sources import trace as trace
    from fxlab.steps import trace_step as trace_step
    from fxlab.tracing import *
    from fxlab.transformations import Match as Match
    from fxlab.transformations import ReversibleTransformation as ReversibleTransformation
    from fxlab.transformations import Transformation as Transformation
    from fxlab.transformations import compose as compose
    from fxlab.transformations import either as either
    from fxlab.transformations import find_matches as find_matches
    from fxlab.transformations import from_callable as from_callable
    from fxlab.transformations import from_pattern as from_pattern
    from fxlab.transformations import pattern_of as pattern_of
    from fxlab.transformations import register as register
    from fxlab.transformations.passes import *
    from fxlab.validation import *

_EXPORTS = {
    "compiler": "CompileSession compile_session record_compile record_passes",
    "comparison": "Comparison assert_same compare compare_runs compare_weights record_run",
    "deployment.as_backend": "as_backend",
    "deployment.files": "export repro",
    "drawing": "draw",
    "graphs.code_diff": "code_diff",
    "graphs.graph_diff": "graph_diff",
    "graphs.nodes": "nodes",
    "graphs.transformed_nodes": "transformed_nodes",
    "html_report": "report",
    "notebook": "Inspector inspect",
    "session": "Session TransformationError expect expect_no_match load_session training_session",
    "sources": "trace",
    "steps": "trace_step",
    "tracing": "Capture TraceError TraceWarning capture example_inputs from_exported symbolic_trace",
    "transformations": """
        ReversibleTransformation Transformation compose either find_matches from_callable from_pattern
        pattern_of register
    """,
    "transformations.passes": """
        ActivationCheckpointing ChangeTrueDivToMulByInverse DeepCopy EliminateCommonSubexpressions
        FoldConstants FuseActivation FuseAttention FuseBatchNorm1dInLinear FuseBatchNorm2dInConv2d
        FuseBiasInLinear FuseLayerNorm FuseRMSNorm LintAndRecompile MergeLinears
        RemoveDeadCode RemoveIdentities RemoveRedundantViews RemoveRepeatedHeads
    """,
    "validation": """
        Verdict benchmark bisect collectives compare_nodes compare_outputs evaluate first_divergence
        memory node_values profile verdict
    """,
}
"""Package -> the names that it exports here. Read without importing anything."""

_MODULES = (
    "comparison", "compiler", "drawing", "notebook", "overlays", "rewriting", "session", "tracing",
    "transformations", "validation",
)  # fmt: skip
"""Modules that can be reached after ``import fxlab`` besides these names."""

_NAMES = {name: f"fxlab.{home}" for home, names in _EXPORTS.items() for name in names.split()}


def _guided(value: Any) -> Any:
    return guided(value) if isinstance(value, FunctionType) else value


_find = found_in("fxlab", _NAMES, _guided)
__all__ = ["__version__", *sorted(_NAMES)]
_ABSENT: dict[str, str] = {}
"""Names that there are not, and the words for it: pickle asks each module for each of torch's functions."""


if not TYPE_CHECKING:  # else every name would be known to type checkers

    def __getattr__(name: str) -> Any:
        if name in _NAMES:
            return _find(name)
        if name.startswith("_") or not name.isidentifier():
            raise AttributeError(name)
        if name in _ABSENT:
            raise AttributeError(_ABSENT[name], name="", obj=None)
        if (found := own_name(name, OF_FXLAB, dict.fromkeys(_NAMES, True))) is not None:
            module, _, own = found.rpartition(".")
            return _guided(getattr(import_module(f"fxlab.{module}"), own)) if module else __getattr__(own)
        if find_spec(f"fxlab.{name}") is not None:
            return import_module(f"fxlab.{name}")
        if name[:1].isupper() and name in (for_authors := import_module("fxlab.rewriting")).__all__:
            return getattr(for_authors, name)
        sessions = import_module("fxlab.session").Session
        own = own_name(name, OF_SESSIONS, sessions._known()) or name
        if callable(getattr(sessions, own, None)) or sessions.writes(name):
            return of_session(own)
        if (other := spelt_otherwise(name, [*_NAMES, *OF_FXLAB])) is not None:
            return __getattr__(other)
        error = no_such_name("fxlab", name, [*__dir__(), *dir(sessions)])
        _ABSENT[name] = str(error)
        raise error


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
