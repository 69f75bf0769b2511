"""A saved session is made again: the same stack, exclusions and graph, also in another process."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from fresh_python import run
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fxlab
from fxlab import Session, load_session


class Blocks(nn.Module):
    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, size) for _ in range(4))
        self.dropout = nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.a(x) + self.b(x)) / 4 + self.c(x * 2) * self.d(x * 2)


MODEL, INPUTS = Blocks().eval(), torch.ones(2, 4)


def session_of_blocks() -> Session:
    session = Session(MODEL, INPUTS)
    session.move("merge-linears", 0)
    session.apply("merge-linears")
    session.apply("remove-identities")
    session.exclude("merge-linears", "a_b_merged" if "a_b_merged" in names(session) else "a")
    session.exclude("change-true-div-to-mul-by-inverse", "truediv")
    return session


def names(session: Session) -> list[str]:
    return [node.name for node in session.graph_module.graph.nodes]


PASSES = [str(pass_.name) for pass_ in Session(MODEL, INPUTS).passes]


@settings(max_examples=8)
@given(st.permutations(PASSES), st.sets(st.sampled_from(PASSES), min_size=1), st.data())
def test_any_stack_with_any_order_and_exclusions_comes_back(tmp_path_factory, order, on, data):
    folder, session = tmp_path_factory.getbasetemp(), Session(MODEL, INPUTS)
    for place, name in enumerate(order):
        session.move(name, place)
    for name in sorted(on):
        frame = session.explain(name)
        if candidates := sorted(set(frame.index[frame.matched])):
            session.exclude(name, data.draw(st.sampled_from(candidates)))
    session.apply(*sorted(on, key=order.index))
    path = session.save(folder / "stack.json")
    for passes in ({}, {"passes": session.passes}):
        again = load_session(path, MODEL, INPUTS, **passes)
        assert names(again) == names(session)
        assert [p.signature for p in again.applied] == [p.signature for p in session.applied]
        for name in PASSES:
            assert again._internals.excluded(name) == session._internals.excluded(name)
        assert not again._internals.can_undo
        assert again.save(folder / "again.json").read_text() == path.read_text()


@pytest.mark.weekly
def test_another_process_makes_the_same_graph(tmp_path):
    session = session_of_blocks()
    file = session.save(tmp_path / "stack.json")
    code = f"""
import warnings
warnings.simplefilter("error")
from test_saved import INPUTS, MODEL, load_session, names
again = load_session({str(file)!r}, MODEL, INPUTS)
print(*(pass_.name for pass_ in again.applied))
print(*names(again))
"""
    said = run(code, cwd=Path(__file__).parent)
    assert said.splitlines() == ["merge-linears remove-identities", " ".join(names(session))]


@pytest.mark.parametrize("write", ["save", "export"])
def test_a_path_that_cannot_be_written_is_named(write, tmp_path):
    session = session_of_blocks()
    write = session.save if write == "save" else partial(fxlab.export, session)
    with pytest.raises(TypeError, match="path: expected a path, got 3"):
        write(3)
    with pytest.raises(FileNotFoundError, match="path: there is no folder"):
        write(tmp_path / "none" / "stack.json")


def test_another_model_is_said(tmp_path):
    file = session_of_blocks().save(tmp_path / "stack.json")
    with pytest.warns(RuntimeWarning, match="names, shapes or dtypes of parameters and buffers differ"):
        load_session(file, Blocks(8).eval(), INPUTS)
    words = "a Blocks in the file, a Sequential here.*the graph differs.*no candidates here"
    with pytest.warns(RuntimeWarning, match=words):
        load_session(file, nn.Sequential(nn.Linear(4, 4)).eval(), INPUTS)


def test_own_passes_have_to_be_given(tmp_path):
    def halve(graph_module):
        return graph_module

    own = fxlab.from_callable(halve)
    session = Session(MODEL, INPUTS, passes=[own])
    session.apply(own)
    file = session.save(tmp_path / "stack.json")
    with pytest.raises(ValueError, match=r"not on offer: halve.*passes=\[...\]"):
        load_session(file, MODEL, INPUTS)
    other = fxlab.from_callable(lambda graph_module: graph_module).named("halve")
    with pytest.raises(ValueError, match="of the same name that have other arguments"):
        load_session(file, MODEL, INPUTS, passes=[other])
    assert load_session(file, MODEL, INPUTS, passes=[own])._internals.is_on(own)


SAVED = {
    "format": 1,
    "made_with": {"fxlab": "0", "torch": "0"},
    "model": {"class": "", "parameters": "", "graph": ""},
    "passes": [{"name": "merge-linears", "signature": "x", "on": True, "excluded": [["a"]]}],
    "transformed": "",
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*SAVED]), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(
    st.one_of(
        ANYTHING,
        st.tuples(st.sampled_from([*SAVED]), ANYTHING)
        .map(lambda e: {**SAVED, e[0]: e[1]})
        .filter(lambda saved: saved["passes"]),
    )
)
def test_a_file_that_is_none_is_refused_in_words(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "anything.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"anything\.json"):
        load_session(file, MODEL, INPUTS)


def test_a_file_that_is_none_is_refused_before_the_model_is_traced(tmp_path):
    class Broken(nn.Module):
        def forward(self, x):
            raise AssertionError("the model is run")

    file = tmp_path / "stack.json"
    file.write_text("{}")
    with pytest.raises(ValueError, match="expected a saved session"):
        load_session(file, Broken(), INPUTS)


@pytest.mark.parametrize("text", ["torch.__import__('os')._exit(1)", "\u202e23taolf", "\x1b[2J"])
def test_texts_of_a_file_are_told_and_never_evaluated(tmp_path, text):
    """Whether they stand for a version, for digests of dtypes or for the arguments of a pass."""
    file = session_of_blocks().save(tmp_path / "stack.json")
    saved = json.loads(file.read_text())
    saved["made_with"]["torch"] = saved["model"]["parameters"] = saved["model"]["class"] = text
    file.write_text(json.dumps(saved))
    with pytest.warns(RuntimeWarning, match="dtypes of parameters and buffers differ") as warned:
        load_session(file, MODEL, INPUTS)
    (words,) = (str(warning.message) for warning in warned)
    assert words.isprintable()
    shown = text if text.isprintable() else ascii(text)
    assert (words.count(shown), f"torch {shown} in the file" in words) == (2, True)
    saved["passes"][0]["signature"] = text
    file.write_text(json.dumps(saved))
    with pytest.raises(ValueError, match="other arguments"):
        load_session(file, MODEL, INPUTS)
    for others, words in (([text], "not on offer"), ([text, text], "a name is there twice")):
        rows = [{"name": name, "signature": "", "on": True, "excluded": []} for name in others]
        file.write_text(json.dumps(saved | {"passes": rows}))
        with pytest.raises(ValueError, match=words) as raised:
            load_session(file, MODEL, INPUTS)
        assert str(raised.value).isprintable()


@pytest.mark.parametrize("version", [True, 1.0, "1" * 1000, None, [1]])
def test_another_format_is_told_in_few_words(tmp_path, version):
    file = tmp_path / "stack.json"
    file.write_text(json.dumps(SAVED | {"format": version}))
    with pytest.raises(ValueError, match="expected a saved session of format 1, got") as raised:
        load_session(file, MODEL, INPUTS)
    assert len(str(raised.value)) < 150 + len(str(file))


def test_what_is_no_json_and_no_file_is_said(tmp_path):
    file = tmp_path / "stack.json"
    file.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="which is JSON"):
        load_session(file, MODEL, INPUTS)
    with pytest.raises(FileNotFoundError):
        load_session(tmp_path / "none.json", MODEL, INPUTS)


@pytest.mark.parametrize(("path", "error"), [(3, TypeError), (b"stack.json", TypeError), ("", ValueError)])
def test_a_value_that_names_no_file_is_refused(path, error):
    with pytest.raises(error, match=r"^path: "):
        session_of_blocks().save(path)


@pytest.mark.parametrize("name", ["stack.pth", "stack.safetensors", "stack.BIN", "stack.svg"])
def test_a_name_of_another_format_is_refused_with_the_function_that_writes_it(tmp_path, name):
    with pytest.raises(ValueError, match=r"expected a name that ends in .json.*fxlab.export"):
        session_of_blocks().save(tmp_path / name)
    assert not (tmp_path / name).exists()
