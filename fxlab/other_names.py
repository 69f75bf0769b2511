"""Names that other libraries have for a thing of fxlab: they work, and others are answered with the nearest.

A table has three kinds of rows: names that mean the same, which are taken as such; arguments that mean the
same; and names of things that fxlab has in another place, with a sentence that says where.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping


def _by_other_name(rows: Mapping[str, str]) -> dict[str, str]:
    return {other: name for name, others in rows.items() for other in others.split()}


_IN_MODULES = {
    "comparison": "RecordedRun",
    "compiler": "CompileRecord PassRecord",
    "deployment.files": "ExportError ExportedFile",
    "drawing": "Drawing",
    "graphs.changes_made": "Changes",
    "graphs.code_diff": "CodeDiff",
    "overlays": "Overlay",
    "tracing": "CapturedGraph TraceReport",
    "transformations": """
        FuseBatchNorm1dInConv1d FuseBatchNorm3dInConv3d FuseBatchNormInConvTranspose Match
    """,
    "validation": """
        Bisection Divergence Evaluation MemoryUse NodeValues Reference Status Variants compare_stages
        input_variants
    """,
}
"""Module -> its public names that few need by their name, such as classes of results."""

OF_FXLAB = _by_other_name(
    {
        "Transformation": "Pass GraphPass",
        "assert_same": "assert_same_function assert_equal assert_equivalent assert_close assert_allclose",
        "benchmark": "bench time_models",
        "capture": "backend",
        "compile_session": "compile",
        "compare_weights": "weight_diff diff_weights",
        "compose": "chain pipeline sequential pass_manager",
        "draw": "plot visualize visualise render show_graph draw_graph",
        "evaluate": "eval_model",
        "find_matches": "match match_pattern",
        "from_callable": "as_pass transformation from_function graph_pass function_pass make_pass pass_",
        "from_pattern": "pattern Pattern pattern_pass ReplacePattern PatternPass",
        "first_divergence": "first_difference divergence",
        "graph_diff": "diff diff_graphs compare_graphs",
        "inspect": "show view widget explore",
        "load_session": "load",
        "register": "register_pass add_pass",
        "node_values": "stats node_stats statistics activations",
        "nodes": "node_table list_nodes",
        "profile": "cost costs flops macs count_flops",
        "record_run": "record",
        "trace": "trace_model to_graph",
        "trace_step": "trace_training_step",
        "training_session": "train_session training_step",
        "transformations.offered": "passes list_passes available_passes all_passes",
        "verdict": "allclose verify check same is_same same_function equivalent check_equivalence",
    }
) | {name: f"{module}.{name}" for module, names in _IN_MODULES.items() for name in names.split()}
"""Name of a function or class elsewhere -> its name in fxlab. A name that the nearest answers needs none."""

OF_SESSIONS = _by_other_name(
    {
        "__call__": "run forward",
        "applied": "active active_passes enabled stack",
        "add": "add_pass add_transformation",
        "apply": "enable switch_on turn_on on apply_pass apply_passes transform",
        "apply_all": "optimize optimise enable_all",
        "code": "source",
        "breaks": "graph_breaks",
        "as_model": "to_model to_module module",
        "compare_nodes": "errors node_errors",
        "compare_stages": "verdicts",
        "explain": "candidates",
        "draw": "plot visualize visualise render save_picture save_image save_svg picture",
        "find_matches": "match find_pattern match_pattern",
        "graph_diff": "diff",
        "graph_module": "gm current transformed after",
        "inspect": "show view widget explore",
        "is_on": "is_applied is_enabled is_active",
        "node_values": "stats statistics node_stats",
        "nodes": "table to_frame to_pandas to_dataframe df summary",
        "original": "reference before",
        "passes": "available offered available_passes list_passes all_passes",
        "profile": "cost costs flops macs",
        "report": "save_html",
        "why_not": "refusals refused",
        "revert": "disable switch_off turn_off off unapply",
        "revert_all": "reset clear",
        "replace": "replace_pattern",
        "values": "activations node_outputs intermediate_values",
        "verdict": "verify check judge",
    }
)
OF_PASSES = _by_other_name(
    {
        "__call__": "apply run call forward",
        "candidates": "find matches find_matches find_candidates",
        "exclude": "without skip",
    }
)
OF_INSPECTORS = _by_other_name(
    {
        "close_group": "collapse",
        "filter": "search find_nodes highlight",
        "select": "focus go_to",
        "open_group": "expand",
        "selected": "selection selected_node",
        "toggle": "switch",
    }
)
_OF_RESULTS = {
    "breaks": "graph_breaks",
    "recompiles": "recompilations",
    "agrees": "equal ok passed same equal success is_same same_function equivalent is_equal matches",
    "as_dict": "to_dict dict",
    "max_abs_diff": """
        max_diff max_error max_abs_error max_difference max_abs_difference max_absolute_error
        max_absolute_difference largest_difference
    """,
    "node": "name node_name candidate candidate_node transformed transformed_node right",
    "original": "reference reference_node original_node expected_node left",
    "first": "first_divergence first_difference divergence",
    "divergence": "first",
    "pass_": "culprit transformation",
    "peak": "peak_bytes peak_memory max_memory",
    "reason": "message explanation why",
    "same_bits": "identical bit_identical bitwise_equal bitwise exact",
    "save": "write savefig render to_file to_png to_pdf",
    "status": "kind outcome state",
    "source": "dot to_dot",
    "svg": "to_svg",
    "to_frame": "to_pandas to_dataframe",
    "table": "df dataframe",
}
OF_COLUMNS = {
    "macs": ["flops"],
    "module": ["module_path"],
    "module_path": ["module"],
    "name": ["node"],
    "node": ["name"],
    "parameters": ["params"],
    "params": ["parameters"],
    "type": ["op"],
}
"""Name of a column elsewhere -> its names in fxlab."""
OF_RESULTS: dict[str, list[str]] = {}
"""Name of an attribute elsewhere -> its names in fxlab, of which a result has one."""
for _own, _others in _OF_RESULTS.items():
    for _other in _others.split():
        OF_RESULTS.setdefault(_other, []).append(_own)

OF_ARGUMENTS = [
    group.split()
    for group in (
        "batches data dataset dataloader data_loader loader",
        "candidate transformed other other_model model_b",
        "direction rankdir orientation",
        "inputs example_inputs sample_inputs dummy_inputs example_input sample_input dummy_input",
        "inputs example_args args input batches",
        "loss loss_fn criterion loss_function",
        "highlight highlighted mark marks",
        "metrics metric",
        "opened depth levels level expand expanded",
        "optimizer optim opt",
        "overlay color_by colour_by color colour colors colours node_colors",
        "passes transformations transforms",
        "path file filename output out output_path out_path",
        "reference original model session baseline model_a",
        "shapes show_shapes with_shapes",
        "rounds n n_iter repeats repeat n_runs runs iterations iters num_runs",
    )
]
"""Names of arguments that mean the same, of which a function has one at most."""


def _rows(*rows: tuple[str, str]) -> dict[str, str]:
    return {name: sentence for names, sentence in rows for name in names.split()}


ELSEWHERE = _rows(
    (
        "atol rtol tolerance tol",
        "No tolerance is chosen: the model's own rounding is measured. fxlab.compare_outputs takes both.",
    ),
    (
        "max_abs_diff max_diff max_error",
        "fxlab.compare_outputs(reference, candidate, inputs) has the columns max_abs_diff and max_rel_diff.",
    ),
    (
        "breaks recompiles graph_breaks",
        "fxlab.compile_session(model, inputs) and fxlab.record_compile() have breaks and recompiles.",
    ),
    (
        "training train backward loss_fn optimizer",
        "fxlab.training_session(model, inputs, labels, loss, optimizer=optimizer) traces a training step.",
    ),
    (
        "compile compiled_model",
        "session.as_model() runs the graphs; fxlab.compile_session(model, inputs) shows Inductor's passes.",
    ),
    (
        "mode method backend",
        "Programs of torch.export and graphs of make_fx are taken as they are: fxlab.Session(program).",
    ),
    ("save_html to_html", "session.report(path) writes what an inspector shows."),
    (
        "input_shape input_size shape",
        "Inputs are tensors: torch.randn(2, 3, 224, 224) in their place.",
    ),
    ("warmup warm_up", "Each model is called before it is timed, and rounds=... says how often it is timed."),
    (
        "collapse collapsed expand_nested",
        "opened=[...] names the groups that are open, opened=2 two levels; budget limits boxes.",
    ),
    ("format", "path=... names the file to write, whose suffix is the format."),
    ("to_dot dot", "fxlab.draw(model).source is the graph in the DOT language."),
    ("memory_timeline peak_memory", "fxlab.memory(model, inputs) has the bytes that are alive at each node."),
    ("tracer tracer_cls is_leaf", "leaf_modules says which modules stay one node."),
    ("dynamic_shapes", "Sizes are symbols anyway; dynamic=False fixes them."),
    (
        "replace_pattern subgraph_rewriter",
        "fxlab.from_pattern(pattern, replacement) makes a pass, which is called with the graph module.",
    ),
    ("temporarily", "session.preview(pass_) returns the graph module with a pass, and switches nothing."),
)
"""Name or argument -> where fxlab has that, or why it has not."""


def spelt_otherwise(name: str, known: Iterable[str]) -> str | None:
    """Return the one name that differs in capitals and underscores alone: ``TrainingSession`` is one."""
    wanted = bare(name)
    found = [other for other in known if bare(other) == wanted]
    return found[0] if len(found) == 1 else None


def bare(name: str) -> str:
    """Return a name without what differs between spellings: capitals, spaces, hyphens, underscores."""
    return re.sub(r"[\W_]+", "", name).lower()


def spelt_alike(name: str, other: str) -> bool:
    """Tell whether two spellings are of one name: capitals, spaces, hyphens and underscores do not matter."""
    return bare(name) == bare(other) != ""


def no_such_name(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that there is not, with the nearest names and where else to look."""
    public = [other for other in known if not other.startswith("_")]
    near = difflib.get_close_matches(name, public, n=3, cutoff=0.75)
    words = {word for word in name.lower().split("_") if len(word) > 3}
    near += [other for other in public if words & {*other.lower().split("_")} and other not in near]
    text = f"{owner} has no attribute {name!r}.{meant(near[:4])}{elsewhere(name)}"
    return AttributeError(text, name="", obj=None)  # else Python adds its own guess when it shows it


def elsewhere(*names: str) -> str:
    """Return where fxlab has things of these names, as sentences to end an error with."""
    return "".join(dict.fromkeys(f" {ELSEWHERE[name]}" for name in names if name in ELSEWHERE))


def meant(names: list[str]) -> str:
    """Return a question that names the nearest, or nothing."""
    return f" Did you mean {' or '.join(names)}?" if names else ""
