"""Names that other libraries have for a thing of fxlab: they work, and others are answered with the nearest.

A table has three kinds of rows: names that mean the same, which are taken as such; arguments that mean the
same; and names of things that fxlab has in another place, with a sentence that says where.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any


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
        "assert_same": "assert_same_function assert_equal assert_equivalent",
        "benchmark": "bench time_models",
        "capture": "backend",
        "compare_weights": "weight_diff",
        "draw": "plot visualize visualise render show_graph",
        "evaluate": "eval_model",
        "find_matches": "match match_pattern",
        "from_callable": "as_pass transformation from_function graph_pass function_pass make_pass pass_",
        "from_pattern": "pattern",
        "first_divergence": "first_difference divergence",
        "graph_diff": "diff",
        "inspect": "show view widget explore",
        "load_session": "load",
        "register": "register_pass add_pass",
        "nodes": "node_table",
        "profile": "cost costs",
        "record_run": "record",
        "trace": "trace_model to_graph",
        "trace_step": "training_step trace_training_step",
        "training_session": "train_session",
        "transformations.offered": "passes list_passes available_passes all_passes",
        "verdict": "verify check same is_same same_function equivalent check_equivalence",
    }
) | {name: f"{module}.{name}" for module, names in _IN_MODULES.items() for name in names.split()}
"""Name of a function or class elsewhere -> its name in fxlab. A name that the nearest answers needs none."""

OF_SESSIONS = _by_other_name(
    {
        "__call__": "run forward",
        "applied": "active active_passes enabled stack",
        "apply": "enable switch_on turn_on on",
        "code": "source",
        "draw": "plot visualize visualise render",
        "find_matches": "match find_pattern match_pattern",
        "graph_diff": "diff",
        "graph_module": "gm current transformed",
        "inspect": "show view widget explore",
        "is_on": "is_applied is_enabled is_active",
        "nodes": "table to_pandas to_dataframe df summary",
        "original": "reference",
        "passes": "available offered",
        "profile": "cost costs",
        "report": "to_html save_html",
        "revert": "disable switch_off turn_off off unapply",
        "revert_all": "reset clear",
        "verdict": "verify check judge",
    }
)
OF_RESULTS = _by_other_name(
    {
        "agrees": "ok passed same equal success is_same same_function equivalent is_equal matches",
        "as_dict": "to_dict",
        "close_group": "collapse",
        "first": "first_divergence first_difference divergence",
        "filter": "search find",
        "node": "name",
        "open_group": "expand",
        "pass_": "culprit",
        "reason": "message explanation",
        "same_bits": "identical bit_identical bitwise_equal bitwise",
        "table": "to_pandas to_dataframe to_frame df dataframe",
        "toggle": "switch",
    }
)

OF_ARGUMENTS = [
    group.split()
    for group in (
        "batches data dataset dataloader data_loader loader",
        "candidate transformed other other_model model_b",
        "inputs example_inputs sample_inputs dummy_inputs example_input sample_input dummy_input",
        "inputs example_args args input batches",
        "loss loss_fn criterion loss_function",
        "metrics metric",
        "optimizer optim opt",
        "passes transformations transforms",
        "path file filename output out output_path out_path",
        "reference original model session baseline model_a",
        "rounds repeats repeat n_runs runs iterations iters num_runs",
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
        "story() lists graph breaks and recompiles, of a compile session and of fxlab.record_compile().",
    ),
    (
        "training train loss_fn optimizer",
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
    ("rankdir", 'direction="right" draws from left to right.'),
    (
        "depth collapse collapsed level expand",
        "opened=[...] names the groups that are open; budget limits boxes.",
    ),
    ("color_by colour_by color colors cmap", "overlay=values colours by a Series or a mapping of nodes."),
    ("filename file output output_path", "path=... names the file to write."),
    ("to_dot dot", "fxlab.draw(model).source is the graph in the DOT language."),
    ("memory_timeline peak_memory", "fxlab.memory(model, inputs) has the bytes that are alive at each node."),
    ("tracer tracer_cls is_leaf", "leaf_modules says which modules stay one node."),
    (
        "cost costs flops macs",
        'fxlab.profile(model, inputs) has a row for each node, and the column "flops".',
    ),
    ("dynamic_shapes", "Sizes are symbols anyway; dynamic=False fixes them."),
    (
        "replace_pattern subgraph_rewriter",
        "fxlab.from_pattern(pattern, replacement) makes a pass, which is called with the graph module.",
    ),
    ("temporarily", "session.preview(pass_) returns the graph module with a pass, and switches nothing."),
)
"""Name or argument -> where fxlab has that, or why it has not."""


def no_such_name(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that there is not, with the nearest names and where else to look."""
    public = [other for other in known if not other.startswith("_")]
    near = difflib.get_close_matches(name, public, n=3, cutoff=0.75)
    words = {word for word in name.lower().split("_") if len(word) > 3}
    near += [other for other in public if words & {*other.lower().split("_")} and other not in near]
    text = f"{owner} has no attribute {name!r}.{_meant(near[:4])}{elsewhere(name)}"
    return AttributeError(text, name="", obj=None)  # else Python adds its own guess when it shows it


def elsewhere(*names: str) -> str:
    """Return where fxlab has things of these names, as sentences to end an error with."""
    return "".join(dict.fromkeys(f" {ELSEWHERE[name]}" for name in names if name in ELSEWHERE))


def _meant(names: list[str]) -> str:
    return f" Did you mean {' or '.join(names)}?" if names else ""


class OtherNames:
    """A result of which attributes are found by the names of other libraries, too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # IPython, copy and pickle ask for these
            raise AttributeError(name)
        own = OF_RESULTS.get(name, "")
        if own in dir(self):
            found = getattr(self, own)
            return (lambda: found) if name.startswith("to_") and not callable(found) else found
        raise no_such_name(f"{type(self).__name__!r} object", name, dir(self))


def guided(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes arguments by other names, and says what it takes if it is called wrongly.

    Examples
    --------
    >>> def measure(model, *, rounds=5):
    ...     return rounds
    >>> guided(measure)(None, repeats=3)
    3
    >>> guided(measure)(None, tolerance=3)
    Traceback (most recent call last):
        ...
    TypeError: measure() takes no argument 'tolerance'. It takes (model, *, rounds=5). No tolerance is ...
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            if _binds(function, args, kwargs):
                raise
        return function(*args, **own_arguments(function, args, kwargs))

    call.__module__ = "fxlab"  # where pickle finds it
    return call


def own_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments that do not fit by the names that the function has for them.

    Raises TypeError if they do not fit then either: which one, and what the function takes.
    """
    known = inspect.signature(function).parameters
    taken = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    own = {name if taken or name in known else _alike(name, known): value for name, value in kwargs.items()}
    if _binds(function, args, own):
        return own
    unknown = [name for name in own if name not in known and not taken]
    shown = [str(each.replace(annotation=each.empty)) for each in known.values() if each.name != "self"]
    if "*" not in "".join(shown) and any(each.kind is each.KEYWORD_ONLY for each in known.values()):
        shown.insert(sum(each.kind is not each.KEYWORD_ONLY for each in known.values()), "*")
    try:
        inspect.signature(function).bind(*args, **own)
        words = ""
    except TypeError as error:
        words = str(error)
    name = function.__name__
    head = f"{name}() takes no argument {unknown[0]!r}" if unknown else f"{name}(): {words}"
    near = difflib.get_close_matches(unknown[0], known, n=2) if unknown else []
    one = " All inputs are one argument: (a, b), or {name: value}."
    one = one if "inputs" in known and not unknown else ""
    raise TypeError(f"{head}.{_meant(near)} It takes ({', '.join(shown)}).{one}{elsewhere(*unknown)}")


def _alike(name: str, known: Iterable[str]) -> str:
    """Return the argument that means the same, or the name itself."""
    groups = (group for group in OF_ARGUMENTS if name in group)
    return next((other for group in groups for other in known if other in group), name)


def _binds(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
