"""``fxlab trace``: the graph of a model, as a report, a table of nodes, code, or a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fxlab.command_line.answer import Answer, ExitCode, ends_with
from fxlab.command_line.model_source import loaded, traced

if TYPE_CHECKING:
    import pandas as pd
    from torch.fx import GraphModule


def trace(options: argparse.Namespace) -> tuple[Answer | str, ExitCode]:
    """Trace a model; return its report, its nodes or its code."""
    source = loaded(options)
    graph_module, _ = traced(source, options)
    if options.output:
        import torch

        kinds, hint = (OSError, RuntimeError), f"(-o {options.output})"
        with ends_with(ExitCode.BAD_USAGE, *kinds, hint=hint):
            torch.save(graph_module, options.output)
    if options.code and not options.json:
        return graph_module.code.strip() + "\n", ExitCode.DONE
    report = graph_module.meta.get("trace")
    facts = {
        "model": source.words,
        "traced_on": None if report is None else report.rung,
        "nodes": len(graph_module.graph.nodes),
        "not_traced_on": [] if report is None else list(report.steps_down),
        "saved": options.output,
    }
    if options.code:
        return Answer({**facts, "code": graph_module.code.strip()}), ExitCode.DONE
    if options.nodes or report is None:
        return Answer(facts, {"graph": _node_table(graph_module)}), ExitCode.DONE
    return Answer(facts, {"findings": report.table}), ExitCode.DONE


def _node_table(graph_module: GraphModule) -> pd.DataFrame:
    from fxlab.graphs.nodes import nodes

    table = nodes(graph_module).rename_axis("node").reset_index()
    table["inputs"] = table["inputs"].map(", ".join)
    table["shape"] = table["shape"].map(lambda shape: str(shape or ""))
    table["dtype"] = table["dtype"].fillna("")
    return table[["node", "op", "target", "inputs", "shape", "dtype", "module"]]
