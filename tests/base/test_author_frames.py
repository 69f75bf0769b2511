"""A pass that raises leads to the line of its author, and to nothing of fxlab's."""

from __future__ import annotations

import inspect
import json
import traceback

import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab import TransformationError
from fxlab.base.author_frames import author_line, is_author_code, stretches


def _raising(graph_module):
    raise LookupError("no such layer")


def raises_below(graph_module: fx.GraphModule) -> None:
    """Fail in a function that the pass calls."""
    _raising(graph_module)


def raises_in_torch(graph_module: fx.GraphModule) -> None:
    """Fail in torch, which refuses to erase a node that is read."""
    graph_module.graph.erase_node(next(iter(graph_module.graph.nodes)))


def raises_in_python(graph_module: fx.GraphModule) -> None:
    """Fail in the standard library."""
    json.loads("{")


def raises_from_another(graph_module: fx.GraphModule) -> None:
    """Fail while another error is handled."""
    try:
        _raising(graph_module)
    except LookupError as error:
        raise RuntimeError("wrapped") from error


class RaisesInMatch(fxlab.Transformation):
    def transform(self, graph_module):
        _raising(graph_module)


def session_of(pass_) -> fxlab.Session:
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    return fxlab.Session(traced, torch.ones(1, 2), passes=[pass_])


def failure(pass_, act="apply") -> TransformationError:
    with pytest.raises(TransformationError) as raised:
        getattr(session_of(pass_), act)(pass_)
    return raised.value


@pytest.mark.parametrize("act", ["apply", "preview"])
@pytest.mark.parametrize(
    ("pass_", "code"),
    [
        (fxlab.from_callable(raises_below), 'raise LookupError("no such layer")'),
        (RaisesInMatch(), 'raise LookupError("no such layer")'),
        (fxlab.from_callable(raises_in_torch), "graph_module.graph.erase_node("),
        (fxlab.from_callable(raises_in_python), 'json.loads("{")'),
        (fxlab.from_callable(raises_from_another), 'raise RuntimeError("wrapped") from error'),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_error_names_the_line_of_the_pass_and_no_frame_of_fxlab_stands_before_it(pass_, code, act):
    error = failure(pass_, act)
    assert error.line.file == __file__
    assert error.line.code.startswith(code)
    assert str(error).endswith(f"(test_author_frames.py:{error.line.line})")
    assert traceback.extract_tb(error.__cause__.__traceback__)[0].filename == __file__
    # Of the session only the method that was called, or what it is called by.
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "fxlab" in frame.filename]
    assert len(own) <= 2


def test_each_exception_is_printed_once():
    text = "".join(traceback.format_exception(failure(fxlab.from_callable(raises_from_another))))
    assert "During handling" not in text
    lines = text.splitlines()
    assert sum(line == "LookupError: no such layer" for line in lines) == 1
    assert sum(line == "RuntimeError: wrapped" for line in lines) == 1


def test_a_pass_of_fxlab_that_fails_by_itself_has_no_line_of_an_author():
    class Broken(fxlab.RemoveDeadCode):
        transform = None

    error = failure(Broken())
    assert error.line is None
    assert str(error).endswith("TypeError: 'NoneType' object is not callable")


def test_stretches_hide_the_frames_of_others_and_show_the_author_s():
    error = failure(fxlab.from_callable(raises_in_torch)).__cause__
    shown, hidden, words = stretches(error)
    assert (shown.is_author, hidden.is_author) == (True, False)
    assert "in raises_in_torch" in shown.text
    assert hidden.frames >= 1
    assert "in erase_node" in hidden.text
    assert words.text.startswith("RuntimeError: Tried to erase Node")


def test_stretches_of_a_chain_tell_each_exception_once_and_how_they_are_tied():
    texts = [part.text for part in stretches(failure(fxlab.from_callable(raises_from_another)).__cause__)]
    assert texts.index("LookupError: no such layer") < texts.index("RuntimeError: wrapped")
    assert "The exception above was the direct cause of this one:" in texts


def test_a_recursion_of_thousands_of_frames_is_told_in_short():
    def endless(graph_module):
        endless(graph_module)

    error = failure(fxlab.from_callable(endless)).__cause__
    assert sum(len(part.text) for part in stretches(error)) < 10_000
    assert max(part.frames for part in stretches(error)) > 100


def test_an_error_raised_in_the_caller_has_no_line_inside_of_fxlab():
    with pytest.raises(LookupError) as raised:
        _raising(None)
    assert author_line(raised.value) is None


@pytest.mark.parametrize(
    ("file", "is_author"),
    [
        (__file__, True),
        (fxlab.__file__, False),
        (fx.__file__, False),
        (inspect.getfile(json), False),
        ("<eval_with_key>.12", False),
        ("/somewhere/site-packages/optimum/fx/pass.py", True),
        ("/tmp/ipykernel_12/345.py", True),
    ],
)
def test_whose_code_a_file_is(file, is_author):
    assert is_author_code(file) is is_author


def test_cells_of_notebooks_are_called_so():
    namespace: dict = {}
    exec(compile("def cell(gm):\n    raise KeyError('x')", "/tmp/ipykernel_12/345.py", "exec"), namespace)
    error = failure(fxlab.from_callable(namespace["cell"]))
    assert str(error).endswith("KeyError: 'x' (line 2 of a notebook cell)")


@pytest.mark.parametrize("make", [fxlab.symbolic_trace, fxlab.Session])
def test_a_warning_names_the_line_that_called_fxlab(make):
    def whole(x):
        return x * len(x) if x.sum() > 0 else x

    with pytest.warns(fxlab.TraceWarning) as heard:
        make(whole, torch.ones(3))
    assert {warning.filename for warning in heard} == {__file__}
