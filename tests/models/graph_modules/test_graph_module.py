"""Exact pickles and tensor-sharing copies."""

import copy
import gc
import inspect
import io
import operator
import pickle

import pytest
import torch
from fresh_python import run
from torch import nn

from fxlab import symbolic_trace
from fxlab.models.graph_modules.copies import changed_copy, share_tensors_copy
from fxlab.models.graph_modules.graph_module import ensure_picklable


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("offset", torch.randn(4))

    def forward(self, x):
        y = (nn.functional.gelu(self.linear(x)) + self.offset)[:, 1:3]
        return {"sum": y, "pool": nn.functional.max_pool1d(x, 2)}


@pytest.fixture
def traced():
    module = torch.fx.symbolic_trace(Model())
    for index, node in enumerate(module.graph.nodes):
        node.meta["marks"] = {f"mark {index}"}
        node.meta["no pickle"] = lambda: None
    next(iter(module.graph.find_nodes(op="call_module", target="linear"))).name = "renamed"
    module.recompile()
    return module


def described(module):
    return [
        (n.op, n.name, n.target, str(n.args), str(n.kwargs), n.meta.get("marks")) for n in module.graph.nodes
    ]


def through_pickle(module):
    return pickle.loads(pickle.dumps(module))


def through_torch_save(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("through", [through_pickle, through_torch_save, copy.deepcopy])
def test_copies_keep_names_targets_arguments_and_metadata(traced, through):
    ensure_picklable(traced)
    twice = through(through(traced))
    assert described(twice) == described(traced)
    x = torch.randn(2, 4)
    expected, got = traced(x), twice(x)
    assert expected.keys() == got.keys()
    assert all(torch.equal(expected[key], got[key]) for key in expected)


def test_operators_that_pickle_cannot_find_survive():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.ops.aten.add.Tensor, (x, x)))
    module = torch.fx.GraphModule(nn.Module(), graph)
    ensure_picklable(module)
    assert torch.equal(through_pickle(module)(torch.ones(2)), torch.full((2,), 2.0))


def test_a_tracer_that_pickle_cannot_find_is_left_out():
    class Own(torch.fx.Tracer):
        pass

    module = torch.fx.GraphModule(nn.Sequential(nn.ReLU()), Own().trace(nn.Sequential(nn.ReLU())))
    ensure_picklable(module)
    assert torch.equal(through_pickle(module)(-torch.ones(2)), torch.zeros(2))


def test_a_function_without_a_name_is_named_in_the_error():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(lambda value: value, (x,)))
    module = torch.fx.GraphModule(nn.Module(), graph)
    ensure_picklable(module)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(module)


def test_a_changed_copy_shares_what_the_change_left_alone(traced):
    weight, bits = traced.linear.weight, traced.linear.weight.detach().clone()

    def halve_weight(module):
        module.linear.weight.data.mul_(0.5)
        return module

    changed = changed_copy(traced, halve_weight)
    assert traced.linear.weight is weight
    assert torch.equal(weight, bits)
    assert torch.equal(changed.linear.weight, bits * 0.5)
    assert changed.linear.bias is traced.linear.bias
    assert changed.offset is traced.offset


@pytest.mark.parametrize(
    "asked",
    [
        lambda graph_module: graph_module(torch.ones(2, 4))["sum"].tolist(),
        lambda graph_module: graph_module.code,
        str,
        lambda graph_module: str(inspect.signature(graph_module.forward)),
        lambda graph_module: str(inspect.signature(type(graph_module).forward)),
        lambda graph_module: through_pickle(graph_module)(torch.ones(2, 4))["sum"].tolist(),
        lambda graph_module: copy.deepcopy(graph_module)(torch.ones(2, 4))["sum"].tolist(),
        lambda graph_module: copy.copy(graph_module)(torch.ones(2, 4))["sum"].tolist(),
        lambda graph_module: graph_module.print_readable(print_output=False),
        lambda graph_module: torch.compile(graph_module, backend="eager")(torch.ones(2, 4))["sum"].tolist(),
    ],
)
def test_a_change_may_ask_for_the_code_of_the_copy_that_it_gets(traced, asked):
    ensure_picklable(traced)
    expected, seen = asked(traced), []

    def change(graph_module):
        graph_module.graph.lint()
        seen.append(asked(graph_module))
        return graph_module

    result = changed_copy(traced, change, writes_tensors=False)
    assert seen == [expected]
    assert result.code == traced.code
    assert torch.equal(result(torch.ones(2, 4))["sum"], traced(torch.ones(2, 4))["sum"])

    later = changed_copy(traced, recompiled, writes_tensors=False, code_when_asked=True)
    assert not has_code(later)
    assert asked(later) == expected


def recompiled(graph_module):
    graph_module.recompile()
    return graph_module


def has_code(graph_module):
    return inspect.isfunction(vars(type(graph_module))["forward"])


@pytest.mark.usefixtures("young")
def test_code_that_is_made_late_is_forgotten_with_its_module(traced):
    ensure_picklable(traced)
    sources = torch.fx.graph_module._loader.eval_cache
    later = changed_copy(traced, recompiled, writes_tensors=False, code_when_asked=True)
    before = set(sources)
    later(torch.ones(2, 4))
    (made,) = sources.keys() - before
    del later
    gc.collect()
    assert made not in sources


def test_a_sharing_copy_is_a_deep_copy_but_for_the_tensors(traced):
    class Own(nn.Module):
        def __deepcopy__(self, memo):
            return Own()

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights, self.tagged = [nn.Parameter(torch.ones(2))], {"a": {"b": torch.zeros(2)}}
            self.again, self.itself = self.tagged, self
            self.register_forward_hook(print)
            self.own = Own()
            self.inner = torch.fx.symbolic_trace(nn.ReLU())

    odd = traced.odd = Odd()
    twin = share_tensors_copy(traced).odd
    assert type(twin) is Odd
    assert twin.weights is not odd.weights
    assert twin.weights[0] is odd.weights[0]
    assert twin.tagged is twin.again
    assert twin.tagged["a"] is not odd.tagged["a"]
    assert twin.tagged["a"]["b"] is odd.tagged["a"]["b"]
    assert twin.itself is twin
    assert [*twin._forward_hooks.values()] == [print]
    assert twin._forward_hooks is not odd._forward_hooks
    assert twin.own is not odd.own
    assert twin.inner is not odd.inner
    assert [str(node) for node in twin.inner.graph.nodes] == [str(node) for node in odd.inner.graph.nodes]


@pytest.mark.parametrize("through", [through_pickle, through_torch_save])
def test_memory_formats_survive_in_arguments_and_metadata(through):
    class Formats(nn.Module):
        def forward(self, x):
            return x.contiguous(memory_format=torch.channels_last)

    gm = torch.fx.symbolic_trace(Formats())
    torch.fx.passes.shape_prop.ShapeProp(gm).propagate(torch.randn(2, 3, 4, 4))
    ensure_picklable(gm)
    for node, other in zip(gm.graph.nodes, through(gm).graph.nodes, strict=True):
        assert other.meta["tensor_meta"] == node.meta["tensor_meta"]
        assert other.kwargs == node.kwargs


@pytest.mark.parametrize("through", [through_pickle, through_torch_save, copy.deepcopy, share_tensors_copy])
def test_copies_keep_attributes_and_hooks_of_a_graph_module(traced, through):
    ensure_picklable(traced)
    traced.note, traced.list = "mine", [1]
    traced.register_forward_hook(operator.itemgetter)
    copied = through(traced)
    assert (copied.note, copied.list, len(copied._forward_hooks)) == ("mine", [1], 1)
    assert copied.list is not traced.list


class Chain(nn.Module):
    """A long graph in which many results are alike, and some are views, numbers or constants."""

    def __init__(self, length):
        super().__init__()
        self.length = length

    def forward(self, x):
        for _ in range(self.length):
            x = torch.sin(x) + 1
        return x.t()[1:], x.double(), x.detach(), x.sum(0), x.size(0)


def known(module):
    values = [node.meta.get("val") for node in module.graph.nodes]
    return [
        (str(v.shape), str(v.stride()), str(v.storage_offset()), v.dtype, v.requires_grad)
        if isinstance(v, torch.Tensor)
        else str(v)
        for v in values
    ]


@pytest.mark.parametrize("through", [through_pickle, through_torch_save])
def test_what_is_known_of_results_is_kept_though_it_is_written_once_for_those_alike(through):
    module = symbolic_trace(Chain(3), torch.randn(4, 3))
    assert known(through(module)) == known(module)


@pytest.mark.weekly
@pytest.mark.slow
def test_the_pickle_of_a_long_graph_grows_by_little_for_each_node():
    sizes = [len(pickle.dumps(symbolic_trace(Chain(n), torch.ones(4, 3), check=False))) for n in (20, 60)]
    assert (sizes[1] - sizes[0]) / 80 < 400


def test_modules_that_hold_graphs_and_modules_elsewhere_are_copied_whole():
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
            self.linear = self.graph.get_submodule("0")
            self.others = [self.graph, self.linear]

        def forward(self, x):
            return self.graph(x) + self.linear(x)

    model, x = nn.Sequential(Holds(), nn.Linear(4, 4)), torch.randn(2, 4)
    graph = symbolic_trace(model, x, leaf_modules=[Holds])
    copied = share_tensors_copy(graph)
    held = copied.get_submodule("0")
    assert torch.equal(copied(x), model(x))
    assert held is not model[0]
    assert held.others == [held.graph, held.linear]
    assert held.linear is held.graph.get_submodule("0")
    assert held.linear.weight is model[0].linear.weight


def test_a_saved_graph_loads_where_the_source_of_its_model_is_absent(tmp_path):
    source = (
        "import torch\nfrom torch import nn\n"
        "class Part(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n        return self.linear(x).relu() if x.shape[0] < 9 else x\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.part, self.drop = Part(), nn.Dropout()\n"
        "    def forward(self, x):\n        return self.drop(self.part(x))\n"
    )
    (tmp_path / "absent_model.py").write_text(source)
    save = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport torch, fxlab, absent_model\n"
        "s = fxlab.Session(absent_model.Net().eval(), torch.ones(2, 4)); s.apply('remove-identities')\n"
        f"torch.save(s.graph_module, {str(tmp_path / 'graph.pt')!r})"
    )
    load = (
        f"import torch, fxlab\ng = torch.load({str(tmp_path / 'graph.pt')!r}, weights_only=False)\n"
        "assert g(torch.ones(3, 4)).shape == (3, 4) and any('val' in n.meta for n in g.graph.nodes)"
    )
    run(save)
    run(load)
