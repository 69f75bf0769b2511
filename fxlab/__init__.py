"""See, switch and check ``torch.fx`` graph transformations.

The public names, and nothing else. They are imported on first use, so that ``import fxlab`` costs nothing:
Jupyter is not imported before :func:`inspect` is called, nor transformers before a model of its is traced.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fxlab._version import __version__

if TYPE_CHECKING:
    from fxlab.drawing import Drawing, draw
    from fxlab.html_report import report
    from fxlab.notebook import inspect
    from fxlab.session import Session, TransformationError
    from fxlab.tracing import TraceError, TraceWarning, example_inputs, from_exported, symbolic_trace
    from fxlab.transformations import (
        ChangeTrueDivToMulByInverse,
        DeepCopy,
        EliminateCommonSubexpressions,
        FoldConstants,
        FuseAttention,
        FuseBatchNorm1dInConv1d,
        FuseBatchNorm1dInLinear,
        FuseBatchNorm2dInConv2d,
        FuseBatchNorm3dInConv3d,
        FuseBatchNormBeforeConv,
        FuseBatchNormInConvTranspose,
        FuseBiasInLinear,
        LintAndRecompile,
        MergeLinears,
        RemoveDeadCode,
        RemoveIdentities,
        ReversibleTransformation,
        Transformation,
        compose,
        from_callable,
        from_pattern,
    )
    from fxlab.validation import (
        benchmark,
        bisect,
        compare_nodes,
        compare_on_variants,
        compare_outputs,
        compare_stages,
        first_divergence,
        graph_diff,
        input_variants,
        nodes_by_stage,
        plot_benchmark,
        plot_node_differences,
        profile,
        transformed_nodes,
        unmarked_changes,
        verdict,
    )
    from fxlab.view_model import find_nodes

_HOME = {
    "Drawing": "fxlab.drawing",
    "draw": "fxlab.drawing",
    "inspect": "fxlab.notebook",
    "find_nodes": "fxlab.view_model",
    "report": "fxlab.html_report",
    "Session": "fxlab.session",
    "TransformationError": "fxlab.session",
    "TraceError": "fxlab.tracing",
    "TraceWarning": "fxlab.tracing",
    "example_inputs": "fxlab.tracing",
    "from_exported": "fxlab.tracing",
    "symbolic_trace": "fxlab.tracing",
    "ChangeTrueDivToMulByInverse": "fxlab.transformations",
    "DeepCopy": "fxlab.transformations",
    "FuseBatchNorm1dInConv1d": "fxlab.transformations",
    "FuseBatchNorm1dInLinear": "fxlab.transformations",
    "FuseBatchNorm2dInConv2d": "fxlab.transformations",
    "FuseBatchNorm3dInConv3d": "fxlab.transformations",
    "FuseBatchNormBeforeConv": "fxlab.transformations",
    "FuseBatchNormInConvTranspose": "fxlab.transformations",
    "FuseBiasInLinear": "fxlab.transformations",
    "LintAndRecompile": "fxlab.transformations",
    "MergeLinears": "fxlab.transformations",
    "ReversibleTransformation": "fxlab.transformations",
    "RemoveIdentities": "fxlab.transformations",
    "RemoveDeadCode": "fxlab.transformations",
    "EliminateCommonSubexpressions": "fxlab.transformations",
    "FoldConstants": "fxlab.transformations",
    "FuseAttention": "fxlab.transformations",
    "Transformation": "fxlab.transformations",
    "compose": "fxlab.transformations",
    "from_callable": "fxlab.transformations",
    "from_pattern": "fxlab.transformations",
    "benchmark": "fxlab.validation",
    "bisect": "fxlab.validation",
    "compare_nodes": "fxlab.validation",
    "compare_on_variants": "fxlab.validation",
    "compare_outputs": "fxlab.validation",
    "compare_stages": "fxlab.validation",
    "first_divergence": "fxlab.validation",
    "graph_diff": "fxlab.validation",
    "input_variants": "fxlab.validation",
    "nodes_by_stage": "fxlab.validation",
    "plot_benchmark": "fxlab.validation",
    "plot_node_differences": "fxlab.validation",
    "profile": "fxlab.validation",
    "transformed_nodes": "fxlab.validation",
    "unmarked_changes": "fxlab.validation",
    "verdict": "fxlab.validation",
}

__all__ = [
    "ChangeTrueDivToMulByInverse",
    "DeepCopy",
    "Drawing",
    "EliminateCommonSubexpressions",
    "FoldConstants",
    "FuseAttention",
    "FuseBatchNorm1dInConv1d",
    "FuseBatchNorm1dInLinear",
    "FuseBatchNorm2dInConv2d",
    "FuseBatchNorm3dInConv3d",
    "FuseBatchNormBeforeConv",
    "FuseBatchNormInConvTranspose",
    "FuseBiasInLinear",
    "LintAndRecompile",
    "MergeLinears",
    "RemoveDeadCode",
    "RemoveIdentities",
    "ReversibleTransformation",
    "Session",
    "TraceError",
    "TraceWarning",
    "Transformation",
    "TransformationError",
    "__version__",
    "benchmark",
    "bisect",
    "compare_nodes",
    "compare_on_variants",
    "compare_outputs",
    "compare_stages",
    "compose",
    "draw",
    "example_inputs",
    "find_nodes",
    "first_divergence",
    "from_callable",
    "from_exported",
    "from_pattern",
    "graph_diff",
    "input_variants",
    "inspect",
    "nodes_by_stage",
    "plot_benchmark",
    "plot_node_differences",
    "profile",
    "report",
    "symbolic_trace",
    "transformed_nodes",
    "unmarked_changes",
    "verdict",
]


_PACKAGES = ("drawing", "notebook", "overlays", "tracing", "transformations", "validation")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"fxlab.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'fxlab' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
