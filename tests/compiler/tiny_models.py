"""Models that compile in half a second."""

import copy

import torch
from torch import nn
from torch._inductor.pattern_matcher import (
    CallFunction,
    KeywordArg,
    PatternMatcherPass,
    register_graph_pattern,
)

from fxlab.compiler.compiling.hooks import _without_code

aten = torch.ops.aten


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        # A copy, which the compiler removes. (Of a dropout that is not active not every torch leaves one.)
        return self.norm(torch.relu(self.linear(x).clone()) + x) * 0.5


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.register_buffer("scale", torch.full((8,), 2.0))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return {"y": x * self.scale, "first": x[:, 0]}


def plant_mistake(graph):
    """Change the factor of the second block: a pass with a mistake."""
    node = [n for n in graph.nodes if n.target is aten.mul.Tensor and n.args[1] == 0.5][1]
    node.args = (node.args[0], 0.51)


def relus_to_clamps(wrong=()):
    """Return a pass with a match for each relu; those at these places, last first, are wrong."""
    patterns = PatternMatcherPass("relus_to_clamps")

    @register_graph_pattern(CallFunction(aten.relu.default, KeywordArg("x")), pass_dict=patterns)
    def relu_to_clamp(match, x):
        node = match.output_node()
        # What the compiler calls it: relu, relu_1, relu_2.
        number = int(node.name.rpartition("_")[2]) if "_" in node.name else 0
        with node.graph.inserting_before(node):
            new = node.graph.call_function(aten.clamp_min.default, (x, 0.1 if number in wrong else 0.0))
        new.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(new)
        node.graph.erase_node(node)

    return patterns.apply


def without_code(graph_module, inputs, **options):
    """Compile without generating code, and run eagerly: a backend."""
    from torch._inductor.compile_fx import compile_fx  # warns when it is first imported

    eager = copy.deepcopy(graph_module)
    compile_fx(graph_module, inputs, inner_compile=_without_code, config_patches=options or None)
    return eager
