"""The command as a person gives it, in this process, and models to give it."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from transformers import BertModel
from zoo import bert_config

from fxlab.command_line import main

PASSES = """
from fxlab import Transformation


class DoubleWeights(Transformation):
    def transform(self, graph_module):
        for node in graph_module.graph.find_nodes(op="call_module"):
            module = graph_module.get_submodule(node.target)
            if type(module).__name__ == "Linear":
                module.weight.data *= 2
                self.mark_as_transformed(node)
        return graph_module


class Raising(Transformation):
    def transform(self, graph_module):
        raise KeyError("no such layer")


double_weights, raising = DoubleWeights(), Raising()
"""

TINY = """
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.key, self.value, self.factor = nn.Linear(4, 4), nn.Linear(4, 4), factor

    def forward(self, x):
        return {"keys": self.key(x) * self.factor, "values": self.value(x).relu() * self.factor}

def make(factor=1.0):
    return Tiny(factor).eval(), (torch.ones(2, 4),)

def make_without_numbers():
    return make(float("nan"))
"""

CONFIG = bert_config(1)


@dataclass(frozen=True)
class Ended:
    """What came of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def fxlab(capsys):
    """Return a function that runs the command with arguments."""

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # as argparse ends
            code = end.code
        return Ended(int(code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Return a directory with a configuration and weights."""
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(1)
    BertModel(CONFIG).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def config_file(checkpoint):
    """Return the path of a config.json."""
    return checkpoint / "config.json"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Return the name of a model in Python code, whose two linears read the same."""
    path = tmp_path_factory.mktemp("tiny") / "tiny_model.py"
    path.write_text(TINY)
    return f"{path}:make"


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Return a program saved by ``torch.export.save``."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x, *, scale):
            return self.linear(x) * scale

    path = tmp_path_factory.mktemp("exported") / "scaled.pt2"
    program = torch.export.export(Scaled(), (torch.randn(3, 4),), {"scale": torch.randn(3, 2)})
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="session")
def bad_passes(tmp_path_factory):
    """Return the path of a file with a pass that changes the model, and one that raises."""
    path = tmp_path_factory.mktemp("passes") / "bad_passes.py"
    path.write_text(PASSES)
    return path
