"""Answers to names that fxlab or a session does not have: where the thing is, else the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from fxlab.base.first_use import stub_homes

MOVED = {
    # Names of fxlab that are elsewhere, or went; those of its public modules are found there.
    "validation": "Its functions are at the top level: fxlab.verdict, fxlab.compare_stages and others.",
    "Inspector": "fxlab.inspect(session) returns one; its class is fxlab.notebook.Inspector.",
    "as_model": "Write model.compile(backend=fxlab.as_backend(session)).",
    "capture": "Write capture = fxlab.Capture(), and torch.compile(model, backend=capture).",
    "trace": "Write fxlab.symbolic_trace(model, inputs), or fxlab.from_exported(program).",
    "training_session": "Write fxlab.Session(fxlab.trace_step(model, batch, loss=loss)).",
    # Members of sessions that went.
    "apply_all": "Write session.apply(*session.passes).",
    "code": "Write session.graph_module.code.",
    "excluded": "session.rewrites(pass_) has the rewrites of a pass, and those that are excluded.",
    "find": "Write session.passes[name], or fxlab.nodes(session, where).",
    "graph": "Write session.graph_module.graph.",
    "is_on": "Write name in session.applied.",
    "reload": "Write session.apply(pass_) with the new definition: it replaces the one of its name.",
    "replace": "Write session.apply(fxlab.from_pattern(pattern, replacement, name=...)).",
    "revert_all": "Write session.revert().",
    "toggle": "Write session.apply(pass_) or session.revert(pass_).",
    "values": "Write fxlab.node_values(session, node).",
    "diff": "Write session.changes(), or fxlab.code_diff(a, b).",
    "forward": "Write session.graph_module(*inputs).",
    "gm": "Write session.graph_module.",
    "reset": "Write session.revert(), which switches all passes off.",
    "show": "Write fxlab.inspect(session), or fxlab.draw(session) for a picture alone.",
    "table": "Write session.changes(), session.explain(pass_) or fxlab.nodes(session).",
    "to": "Write fxlab.Session(model.to(device), inputs).",
    # Names that others have for what fxlab does.
    "allclose": "Write fxlab.compare(reference, candidate, inputs).",
    "check": "Write session.apply(pass_) and session.verdict(); fxlab check is a command.",
    # Names of optimum, transformers, torch.fx and torch.export.
    "Dim": "torch.export's Dim has no counterpart: sizes are symbols unless dynamic=False.",
    "ExportedProgram": "Write fxlab.Session(program), or fxlab.from_exported(program).",
    "FxGraphDrawer": "torch.fx's FxGraphDrawer is fxlab.draw(graph_module).",
    "Graph": "Write torch.fx.Graph: fxlab takes torch's own.",
    "GraphModule": "Write torch.fx.GraphModule: fxlab takes torch's own.",
    "HFTracer": "transformers' HFTracer is fxlab.symbolic_trace(model, inputs).",
    "Interpreter": "Write torch.fx.Interpreter, or fxlab.node_values(graph_module, node, inputs).",
    "PassBase": "torch.fx's PassBase is fxlab.Transformation.",
    "PassManager": "torch.fx's PassManager is fxlab.compose(*passes).",
    "ShapeProp": "torch.fx's ShapeProp is fxlab.nodes(graph_module): node.meta['val'] has shapes.",
    "Tracer": "torch.fx's Tracer is fxlab.symbolic_trace(model, inputs, leaf_modules=...).",
    "load": "Write fxlab.load_session(path, model), or fxlab.load_model(path) for an exported program.",
    "replace_pattern": "torch.fx's replace_pattern is fxlab.from_pattern(pattern, replacement, name=...).",
    "save": "Write session.save(path), or fxlab.export(session, path).",
    "subgraph_rewriter": "torch.fx's subgraph_rewriter is fxlab.from_pattern and fxlab.rewriting.",
    "wrap": "torch.fx's wrap is not needed; leaf_modules=... keeps modules as one node.",
}
"""Name -> what to write instead. At most 60: other names are answered with the nearest one."""
OF_SESSIONS = (
    *("add", "applied", "apply", "apply_up_to", "changes", "copy", "exclude", "explain", "graph_module"),
    *("history", "include", "model", "move", "on_change", "original", "passes", "preview", "redo", "refresh"),
    *("remove", "revert", "rewrites", "save", "stages", "to_python", "undo", "why_not"),
)
"""Members of sessions that are no functions of fxlab."""
NOT_IN_FXLAB = {
    name: f"A session has it: fxlab.Session(model, inputs).{name}." for name in OF_SESSIONS
} | MOVED
"""The same for names that are asked of fxlab itself."""
WITH_A_FILE = {"report": ', "report.html"', "export": ', "model.pt2"'}
"""Functions of a session that are asked for a file."""


def no_such_name(
    owner: str, name: str, known: Iterable[str], moved: Mapping[str, str] = MOVED
) -> AttributeError:
    """Return the error for a name that is not there, with what to write instead."""
    text = f"{owner} has no attribute {name!r}. {moved.get(name, '')}".rstrip()
    if name not in moved:
        names = [each for each in known if each[:1] != "_"]
        text += nearest(name, names, 3) or f" Its names: {', '.join(n for n in names if n.islower())}."
    return AttributeError(text, name="", obj=None)  # else Python adds its own guess when it shows it


def nearest(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return a question that names the nearest of some names, or nothing."""
    near = difflib.get_close_matches(name, dict.fromkeys(known), most)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def no_such_member(cls: type, name: str) -> AttributeError:
    """Return the error for a member of sessions that is not there: functions of fxlab take a session."""
    owner = f"{cls.__name__!r} object"
    if name in {*stub_homes("fxlab")} and name[:1].islower():
        text = f"{owner} has no attribute {name!r}. Write fxlab.{name}(session{WITH_A_FILE.get(name, '')})."
        return AttributeError(text, name="", obj=None)
    return no_such_name(owner, name, dir(cls))
