"""Functions that know nothing of fxlab, and change a graph module in every way there is."""

import copy
import operator
import warnings

import torch
from torch import fx, nn
from torch.fx.passes.infra.pass_base import PassResult

from fxlab import MergeLinears


class Net(nn.Module):
    """Something of everything: containers, ties, buffers, constants, norms, linears of one input."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)
        self.block = nn.ModuleDict({"query": nn.Linear(4, 4), "key": nn.Linear(4, 4), "act": nn.ReLU()})
        self.head = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)
        self.last.weight = self.head.weight
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("shift", torch.tensor([0.5]))
        self.dropout = nn.Dropout()
        self.unused = nn.Linear(1, 1)

    def forward(self, x):
        x = self.norm(self.conv(x)).flatten(2).transpose(1, 2)
        x = self.dropout(self.block["act"](self.block["query"](x) * self.block["key"](x)))
        x = self.attention(x, x, x, need_weights=False)[0]
        return {"states": self.last(self.head(x)) * self.scale, "sum": (x + self.shift).sum() / 3.0}


def network() -> fx.GraphModule:
    """Return a trace of :class:`Net` that has statistics of its own."""
    model = Net()
    for _ in range(3):
        model(torch.randn(4, 2, 3, 3) * 2 + 1)
    return fx.symbolic_trace(model.eval())


def first(gm, target):
    return next(node for node in gm.graph.nodes if node.target == target)


def retarget(gm):
    first(gm, operator.truediv).target = operator.mul


def change_argument(gm):
    node = first(gm, operator.truediv)
    node.args = (node.args[0], 3)


def swap_arguments(gm):
    node = first(gm, operator.mul)
    node.args = node.args[::-1]


def insert(gm):
    node = first(gm, "head")
    with gm.graph.inserting_after(node):
        new = gm.graph.call_function(torch.tanh, (node,))
    node.replace_all_uses_with(new, lambda user: user is not new)


def remove_dropout(gm):
    node = first(gm, "dropout")
    node.replace_all_uses_with(node.args[0])
    gm.graph.erase_node(node)
    gm.delete_all_unused_submodules()


def rename(gm):
    for node in list(gm.graph.nodes)[:-1]:  # copy.deepcopy of torch gives the output its name back
        node.name = f"renamed_{node.name}"


def reorder(gm):
    first(gm, "head").prepend(first(gm, "scale"))


def replace_module(gm):
    gm.block.act = nn.GELU()


def replace_inside_a_leaf(gm):
    gm.attention.out_proj.bias = nn.Parameter(torch.ones(4))


def change_a_setting(gm):
    gm.norm.eps = 0.5


def write_weights(gm):
    with torch.no_grad():
        gm.head.weight.mul_(2)


def write_data(gm):
    gm.norm.running_mean.data.add_(1)


def cast_weights(gm):
    gm.double()


def set_data(gm):
    gm.conv.weight.data = gm.conv.weight.data.clone() + 1


def freeze(gm):
    gm.head.requires_grad_(False)


def train(gm):
    gm.train()


def set_root_parameter(gm):
    gm.scale = nn.Parameter(torch.tensor(2.0))


def add_constant(gm):
    gm.register_buffer("constant", torch.tensor(4.0))
    node = first(gm, operator.truediv)
    with gm.graph.inserting_before(node):
        constant = gm.graph.get_attr("constant")
    node.args = (node.args[0], constant)


def drop_root_buffer(gm):
    node = first(gm, operator.add)
    node.replace_all_uses_with(node.args[0])
    gm.graph.eliminate_dead_code()
    del gm.shift


def add_module(gm):
    gm.block.add_module("extra", nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    node = first(gm, "block.act")
    with gm.graph.inserting_after(node):
        new = gm.graph.call_module("block.extra", (node,))
    node.replace_all_uses_with(new, lambda user: user is not new)


def hook(gm):
    gm.head.register_forward_hook(double_it)


def double_it(module, args, output):
    return output * 2


def rebuild_the_graph(gm):
    gm.graph = fx.symbolic_trace(gm).graph


def retraced(gm):
    return fx.symbolic_trace(gm)


def copied_and_changed(gm):
    other = copy.deepcopy(gm)
    replace_module(other)
    write_weights(other)
    return PassResult(other, True)


def merge_inside(gm):
    return MergeLinears()(gm)


def fuse_by_torch(gm):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what the module imports
        from torch.fx.experimental.optimization import fuse
    return fuse(gm)


def copy_activations(gm):
    """Insert what changes no bit, and put a new module in place of every module that has no children."""
    for node in list(gm.graph.nodes):
        if node.target in (torch.relu, "tanh"):
            with gm.graph.inserting_after(node):
                new = gm.graph.call_method("clone", (node,))
            node.replace_all_uses_with(new, lambda user, new=new: user is not new)
        elif node.op == "call_module" and type(gm.get_submodule(node.target)) is nn.Tanh:
            gm.set_submodule(node.target, nn.Tanh())


def everything(gm):
    for function in (retarget, insert, remove_dropout, replace_module, write_weights, add_module, train):
        function(gm)


def nothing(gm):
    pass


CHANGES = [
    retarget,
    change_argument,
    swap_arguments,
    insert,
    remove_dropout,
    rename,
    reorder,
    replace_module,
    replace_inside_a_leaf,
    change_a_setting,
    write_weights,
    write_data,
    cast_weights,
    set_data,
    freeze,
    train,
    set_root_parameter,
    add_constant,
    drop_root_buffer,
    add_module,
    hook,
    fuse_by_torch,
    copied_and_changed,
    merge_inside,
    everything,
]
NO_CHANGES = [nothing, rebuild_the_graph, retraced, copy.deepcopy]
