"""A record of compiles as a folder of texts, to be read, searched and compared by ``diff``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from torch.fx import GraphModule, Node

from fxlab.node_info import module_path, shape_and_dtype, target_text

if TYPE_CHECKING:
    from fxlab.compiler.sessions.compile_session import CompileSession


def write_texts(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    remarks: Iterable[str],
    sessions: Mapping[str, CompileSession],
) -> None:
    """Write tables of a record, and for each stack a folder with its stages and the differences of each."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_tables(tables, folder)
    (folder / "remarks.txt").write_text("".join(f"{words}\n" for words in remarks), "utf-8")
    for name, session in sessions.items():
        _write_stages(session, folder / _file_name(name))


def _write_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=isinstance(table.index.name, str))


def _write_stages(session: CompileSession, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    before: list[str] = []
    rows = []
    for number, stage in enumerate(session.stages):
        pass_ = session.applied[number - 1] if number else None
        title = "before all passes" if pass_ is None else str(pass_.name)
        name = f"{number:02} {_file_name(title)}"
        lines = list(stage_text(stage))
        _write_lines(folder / f"{name}.txt", lines)
        if pass_ is not None:
            _write_lines(
                folder / f"{name}.diff", difflib.unified_diff(before, lines, "before", title, lineterm="")
            )
            rows.append((title, str(session.changes(pass_)), len(before), len(lines)))
        before = lines
    passes = pd.DataFrame(rows, columns=["pass", "changes", "lines_before", "lines_after"])
    _write_tables({"passes": passes, "patterns": session.patterns()}, folder)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def stage_text(graph_module: GraphModule) -> Iterator[str]:
    """Yield a line for each node of a graph, under lines for the modules that it is in."""
    inside: list[str] = []
    for node in graph_module.graph.nodes:
        path = module_path(node).split(".") if module_path(node) else inside * (node.op == "get_attr")
        same = next((i for i, (a, b) in enumerate(zip(inside, path, strict=False)) if a != b), None)
        same = min(len(inside), len(path)) if same is None else same
        for depth, name in enumerate(path[same:], same):
            yield f"{'  ' * depth}{name}:"
        inside = path
        yield "  " * len(path) + _line(node)


def _line(node: Node) -> str:
    if node.op == "output":
        return f"return {node.args[0]}"
    shape, dtype = shape_and_dtype(node)
    result = f"  # {dtype}{list(shape)}" if shape is not None else ""
    if node.op == "placeholder":
        return f"{node.name} = input{result}"
    given = [*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())]
    call = target_text(node) if node.op == "get_attr" else f"{target_text(node)}({', '.join(given)})"
    return f"{node.name} = {call}{result}"


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", text).strip("-")
