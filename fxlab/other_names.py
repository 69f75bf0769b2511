"""Names that other libraries have for a thing of fxlab: they work, and others are answered with the nearest.

A table has three kinds of rows: names that mean the same, which are taken as such; arguments that mean the
same; and names of things that fxlab has in another place, with a sentence that says where.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping


def _by_other_name(rows: Mapping[str, str]) -> dict[str, str]:
    """Return the own name for each other; ``(a|b)_c`` stands for ``a_c`` and ``b_c``."""
    return {other: name for name, others in rows.items() for each in others.split() for other in _all(each)}


def _all(text: str) -> Iterator[str]:
    parts = [part.split("|") for part in re.split(r"[()]", text)]
    return map("".join, itertools.product(*parts))


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
        Bisection Cost Divergence Evaluation MemoryUse NodeValues Reference Status Times Variants
        compare_stages input_variants model_cost
    """,
}
"""Module -> its public names that few need by their name, such as classes of results."""

_OF_BOTH = _by_other_name(
    {
        "assert_same": "assert_(|is_|all|models_)(same|equal|equivalent|close|agree|agrees|same_function)",
        "benchmark": "bench time_models timeit",
        "compare_nodes": "(node_|)errors",
        "compare_weights": "weight_diff diff_weights",
        "draw": "(plot|visuali(z|s)e|render)(|_graph) show_graph draw_graph save_(picture|image|svg) picture",
        "evaluate": "eval_model",
        "export": "(to_|as_|)exported_program to_program",
        "find_matches": "match match_pattern find_pattern",
        "first_divergence": "first_difference divergence",
        "graph_diff": "diff diff_graphs compare_graphs",
        "inspect": "show view widget explore display",
        "node_values": "(|node_)stats (|node_)statistics activations",
        "nodes": "node_table",
        "validation.model_cost": "(|model_|total_|count_)(cost|costs|flops|macs)",
        "report": "save_(html|report) html_report",
        "transformed_nodes": "(changed|modified|rewritten|affected|marked)_nodes",
        "verdict": "allclose verify validate check judge (is_|)same same_function (is_|)equivalent "
        "check_(equivalence|pass|model|correctness) verify_pass",
    }
)
"""Name of a function elsewhere -> its name in fxlab, which is a method of sessions as well."""
OF_FXLAB = (
    _OF_BOTH
    | _by_other_name(
        {
            "Session": "(make|create|new|trace|open)_session session_of",
            "Transformation": "Pass GraphPass",
            "TransformationError": "PassError PassFailed",
            "TraceError": "TracingError",
            "capture": "backend",
            "compile_session": "compile",
            "compose": "chain pipeline sequential pass_manager",
            "from_callable": "as_pass transformation from_function (graph|function|make|custom)_pass pass_",
            "from_pattern": "(pattern|rewrite)_pass ReplacePattern PatternPass Pattern pattern rewrite",
            "load_session": "load",
            "register": "register_pass add_pass",
            "record_run": "record",
            "trace": "trace_model to_graph",
            "trace_step": "trace_training_step",
            "training_session": "train_session training_step step_session",
            "transformations.offered": "passes (list|available|all|offered)_passes",
        }
    )
    | {name: f"{module}.{name}" for module, names in _IN_MODULES.items() for name in names.split()}
)
"""Name of a function or class elsewhere -> its name in fxlab. A name that the nearest answers needs none."""
OF_SESSIONS = _OF_BOTH | _by_other_name(
    {
        "__call__": "run forward",
        "applied": "active (active|enabled|applied)_passes enabled stack",
        "add": "(add|register)_(pass|transformation) register",
        "apply": "enable (switch|turn)_on on (apply|run|use)_pass(|es) transform",
        "apply_all": "optimi(z|s)e enable_all",
        "code": "source",
        "breaks": "graph_breaks",
        "compare_stages": "verdicts",
        "explain": "candidates",
        "graph_module": "gm current transformed after",
        "is_on": "is_(applied|enabled|active)",
        "nodes": "table to_(frame|pandas|dataframe) df",
        "original": "reference before",
        "passes": "available offered (list|available|all|offered)_passes",
        "why_not": "refusals refused",
        "revert": "disable (switch|turn)_off off unapply",
        "revert_all": "reset clear",
        "replace": "replace_pattern",
        "values": "activations node_outputs intermediate_values",
    }
)
"""Name of a member of a session elsewhere -> its name in fxlab."""
OF_PASSES = _by_other_name(
    {
        "__call__": "apply run call forward",
        "candidates": "find matches find_matches find_candidates",
        "exclude": "without skip",
    }
)
OF_PASS_NAMES = {
    other.replace("_", ""): name
    for other, name in _by_other_name(
        {
            "eliminate-common-subexpressions": "cse common_subexpression(s|)_elimination",
            "fold-constants": "const(ant|ants|)_fold(ing|) fold_const",
            "remove-dead-code": "dce dead_code_elimination eliminate_dead_code",
        }
    ).items()
}
"""Name of a pass elsewhere, without hyphens -> its name in fxlab."""
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
    "before": "baseline",
    "breaks": "graph_breaks",
    "recompiles": "recompilations",
    "agrees": """
        (is_|are_|)(ok|same|equal|equivalent|close|correct|valid) pass(es|ed) success same_function match(es|)
    """,
    "as_dict": "to_dict dict",
    "assert_same": "raise_(if|on)_(different|difference) assert_(|is_)(agree|agrees|ok|equal|close)",
    "candidate": "module module_path path where",
    "flops": "total_flops flop",
    "parameters": "params (num|n|total)_(params|parameters)",
    "time": "median seconds median_time latency duration elapsed",
    "max_abs_diff": "(max|maximum|largest)_(|abs_|absolute_)(diff|difference|err|error|deviation) max_abs",
    "node": "name node_name candidate candidate_node transformed transformed_node right",
    "original": "reference reference_node original_node expected_node left",
    "first": "first_divergence first_difference divergence where place",
    "divergence": "first",
    "pass_": "culprit transformation",
    "peak": "peak_bytes peak_memory max_memory",
    "reason": "message explanation why",
    "same_bits": "identical bit_identical bitwise_equal bitwise exact",
    "save": "write savefig render to_file to_png to_pdf",
    "status": "kind outcome state verdict",
    "source": "dot to_dot",
    "svg": "to_svg",
    "to_frame": "to_pandas to_dataframe",
    "sessions": "graphs",
    "table": "df dataframe details rows",
}
_ALIKE = "flops", "max_abs_diff", "parameters", "peak", "reason", "same_bits", "status", "time"
"""Attributes of results whose other names are those of columns, too."""
OF_COLUMNS = {
    "after": ["added"],
    "before": ["removed"],
    "module": ["module_path"],
    "module_path": ["module"],
    "name": ["node"],
    "node": ["name"],
    "type": ["op"],
} | {
    other: [own, "max_accumulated"] if own == "max_abs_diff" else [own]
    for own in _ALIKE
    for other in (own, *_by_other_name({own: _OF_RESULTS[own]}))
}
"""Name of a column elsewhere -> its names in fxlab."""
OF_RESULTS: dict[str, list[str]] = {}
"""Name of an attribute elsewhere -> its names in fxlab, of which a result has one."""
for _own, _others in _OF_RESULTS.items():
    for _other in _by_other_name({_own: _others}):
        OF_RESULTS.setdefault(_other, []).append(_own)

OF_ARGUMENTS = [
    group.split()
    for group in (
        "batches data dataset dataloader data_loader loader",
        "candidate transformed other other_model model_b port optimized optimised",
        "direction rankdir orientation",
        "inputs example_inputs sample_inputs dummy_inputs example_input sample_input dummy_input",
        "inputs example_args args input batches",
        "loss loss_fn criterion loss_function",
        "highlight highlighted mark marks",
        "metrics metric",
        "opened depth levels level expand expanded",
        "optimizer optim opt",
        "where match_filters match_filter filters condition conditions extra_check",
        "overlay color_by colour_by color colour colors colours node_colors",
        "passes transformations transforms",
        "path file filename output out output_path out_path",
        "reference original model session baseline model_a",
        "shapes show_shapes with_shapes",
        "warmup warm_up warmups warmup_runs warmup_rounds",
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
    ("num_nodes n_nodes node_count", "len(session.graph.nodes) counts them."),
    ("set_passes set_applied", 'session.applied = ["merge-linears"] switches these on alone.'),
    ("gradients grads", "session.run() of a training session returns the loss and the gradients by name."),
    ("mean mean_time", "time is the median of the rounds."),
    (
        "max_abs_diff max_diff max_error max_rel_diff max_relative_error",
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
        "clip max_norm max_grad_norm clip_grad_norm clip_gradients gradient_clipping",
        "Gradients are clipped in step() of a subclass of the optimizer, over those of self.param_groups.",
    ),
    (
        "compile compiled_model",
        "model.compile(backend=fxlab.as_backend(session)); fxlab.compile_session shows Inductor's passes.",
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
    (
        "collapse collapsed expand_nested",
        "opened=[...] names the groups that are open, opened=2 two levels; budget limits boxes.",
    ),
    ("format", "path=... names the file to write, whose suffix is the format."),
    ("macs mac", "flops counts a multiplication and an addition as two, so that they are twice the macs."),
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


_VERBS = "get", "list", "compute", "calculate", "run"
_OBJECTS = (
    "table",
    "list",
    "model",
    "models",
    "graph",
    "graphs",
    "pass",
    "passes",
    "session",
    "result",
    "results",
)


def own_name(name: str, others: Mapping[str, str], known: Mapping[str, bool]) -> str | None:
    """Return the own name that is meant, or None: another name, or one with a word that adds nothing.

    Those words are a verb before it (``get_verdict``) and, of callables, the object behind it
    (``inspect_model``). ``known``: the own names, and whether each is callable.
    """
    words = name.split("_")
    verbless = [words[1:]] if words[0] in _VERBS else []
    objectless = [each[:-1] for each in (words, *verbless) if each and each[-1] in _OBJECTS]
    for each in (words, *verbless, *objectless):
        if (text := "_".join(each)) in others:
            return others[text]
        for own in (f"{text}s", text) if text and each is not words else ():
            if own in known and (known[own] or each in verbless):
                return own
    return None


def spelt_otherwise(name: str, known: Iterable[str]) -> str | None:
    """Return the one name that differs in capitals and underscores alone: ``TrainingSession`` is one."""
    wanted = bare(name)
    found = [other for other in known if bare(other) == wanted]
    return found[0] if len(found) == 1 else None


def bare(name: str) -> str:
    """Return a name without the differences of spellings: capitals, spaces, hyphens, underscores."""
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


def nearest(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return a question that names the nearest of some names, or nothing."""
    return meant([*map(repr, difflib.get_close_matches(name, dict.fromkeys(known), most))])


def meant(names: list[str]) -> str:
    """Return a question that names the nearest, or nothing."""
    return f" Did you mean {' or '.join(names)}?" if names else ""


class NoInputError(TypeError):
    """An argument that is no input of the model: a misspelt option, or one of another library."""

    def __init__(self, name: str, inputs: Iterable[str]) -> None:
        self.name = name
        self.words = f"{name}: expected an option, or an input of the model ({', '.join(inputs) or 'none'})."
        super().__init__(self.words + elsewhere(name))
