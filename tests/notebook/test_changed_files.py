"""A card says that the file of its pass has changed, and takes the new definition."""

import importlib
import sys

import pytest
import torch
from inspected import Page

import fxlab
from fxlab.notebook.inspector import Inspector

SOURCE = """
import torch
from fxlab import Transformation

class ToOther(Transformation):
    def transform(self, gm):
        for node in gm.graph.find_nodes(op="call_function", target=torch.relu):
            node.target = torch.TARGET
        return gm
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "watched_passes.py"
    file.write_text(SOURCE.replace("TARGET", "tanh"))
    yield file
    sys.modules.pop("watched_passes", None)


def test_a_changed_file_is_seen_when_the_page_asks_and_applied_again(file):
    own = importlib.import_module("watched_passes").ToOther()
    session = fxlab.Session(torch.relu, torch.ones(3), passes=[own, fxlab.RemoveDeadCode()])
    session.apply(own)
    inspector = Inspector(session)
    page = Page(inspector)

    def outdated():
        page.sends({"type": "look-at-files"})
        return [card.get("isOutdated") for card in inspector._shown_passes["passes"]]

    def reloads():
        page.sends({"type": "reload", "signature": session.find("to-other").signature})

    assert inspector._shown_passes["hasFiles"]
    assert outdated() == [None, None]
    file.write_text(SOURCE.replace("TARGET", "sin"))
    assert outdated() == [True, None]
    reloads()
    assert page.error is None
    assert outdated() == [None, None]
    assert "sin" in session.graph_module.code
    file.write_text(SOURCE.replace("TARGET", "no_such"))
    reloads()
    assert "no_such" in page.card(session.find("to-other"))["error"]["text"]
    assert "sin" in session.graph_module.code
    file.write_text(SOURCE.replace("TARGET", "sin") + "# a comment\n")
    reloads()
    assert outdated() == [None, None]
    inspector.close()
    others = Inspector(fxlab.Session(torch.relu, torch.ones(3), passes=[fxlab.RemoveDeadCode()]))
    assert not others._shown_passes["hasFiles"]
    others.close()
