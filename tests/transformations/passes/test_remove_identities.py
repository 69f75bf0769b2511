"""RemoveIdentities: what returns its very input goes, whatever becomes of that; what may not stays."""

import pytest
import torch
from exactness import Apply, assert_close, check, refused, traced, traced_whole
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F

from fxlab import RemoveIdentities

REMOVE = RemoveIdentities()


def shaped(model, x):
    gm = traced(model)
    ShapeProp(gm).propagate(x)
    return gm


def why_not(model):
    return refused(REMOVE, traced(model))


MODULES = [
    nn.Identity(),
    nn.Dropout(),
    nn.Dropout(0.9, inplace=True),
    nn.Dropout2d(),
    nn.AlphaDropout(),
    nn.FeatureAlphaDropout(),
]
FUNCTIONS = [
    lambda _, x: F.dropout(x, training=False),
    lambda _, x: F.dropout(input=x, p=0.0),
    lambda _, x: F.dropout(x, 0, True),
    lambda _, x: F.alpha_dropout(x, 0.3),
    lambda _, x: F.feature_alpha_dropout(x, 0.3, training=False),
    lambda _, x: torch.dropout(x, 0.3, train=False),
    lambda _, x: torch.feature_dropout(x, 0.0, True),
]
IDENTITIES = [
    *((lambda self, x, m=module: self.module(x), {"module": module}) for module in MODULES),
    *((function, {}) for function in FUNCTIONS),
]


def computing(gm):
    """The nodes besides the check of the mode."""
    return [node.name for node in gm.graph.nodes if node.target != "evaluation_mode"]


@pytest.mark.parametrize(("identity", "modules"), IDENTITIES)
def test_what_returns_its_input_is_removed(identity, modules):
    x = torch.randn(2, 3, 4, 4)
    model = Apply(lambda self, x: identity(self, x * 2) + 1, **modules)
    gm = check(REMOVE, model, x, marked=1, tolerance=0.0)
    assert computing(gm) == ["x", "mul", "add", "output"]
    kept = [path for path, _ in gm.named_modules() if not path.startswith("evaluation_mode")]
    assert kept == list(dict(traced(model).named_modules()))


@pytest.mark.parametrize(("identity", "modules"), IDENTITIES)
def test_it_is_the_very_tensor_so_writes_and_results_are_the_same(identity, modules):
    def write(self, x):
        same = identity(self, x)
        same.add_(1)
        return same, x, identity(self, same)

    model = Apply(write, **modules)
    gm = REMOVE(traced(model))
    ours, theirs = torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4, 4)
    results, expected = gm(ours), model(theirs)
    assert_close(results, expected, 0.0)
    assert_close(ours, theirs, 0.0)
    assert all(result is ours for result in results)
    assert all(result is theirs for result in expected)


@pytest.mark.parametrize("module", MODULES[1:], ids=str)
def test_dropouts_in_training_mode_stay(module):
    model = Apply(lambda self, x: self.module(x), module=module)
    model.module.train()
    assert why_not(model) == "training-mode"
    model.module.eval()


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: F.dropout(x),
        lambda _, x: F.dropout(x, 0.3, True),
        lambda _, x: F.dropout(x, 1.0),
        lambda _, x: F.alpha_dropout(x, 0.3, training=True),
        lambda _, x: torch.dropout(x, 0.3, train=True),
    ],
)
def test_functions_that_drop_stay(function):
    assert why_not(Apply(function)) == "active-dropout"


def test_probabilities_that_raise_still_raise():
    gm = traced(Apply(lambda _, x: x))
    with gm.graph.inserting_before(gm.graph.output_node()):
        node = gm.graph.call_function(F.dropout, (next(iter(gm.graph.nodes)), 2.0, False))
    gm.graph.output_node().args = (node,)
    gm.recompile()
    assert refused(REMOVE, gm) == "dropout-probability"


def test_a_mode_that_is_an_input_stays():
    graph = fx.Graph()
    x, training = graph.placeholder("x"), graph.placeholder("training")
    graph.output(graph.call_function(F.dropout, (x,), {"training": training}))
    assert refused(REMOVE, fx.GraphModule(nn.Module(), graph)) == "active-dropout"


@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_forward_hook(lambda m, args, out: out * 2),
        lambda module: module.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        lambda module: module.register_full_backward_hook(lambda m, gi, go: None),
    ],
)
def test_hooked_modules_stay(register):
    model = Apply(lambda self, x: self.module(x), module=nn.Identity())
    register(model.module)
    assert why_not(model) == "hooked"


def test_subclasses_and_other_forwards_stay():
    class Mine(nn.Dropout):
        def forward(self, x):
            return x + 1

    model = Apply(lambda self, x: self.module(x), module=Mine())
    assert refused(REMOVE, traced_whole(model, nn.Module)) == "unexpected-class"
    gm = traced(Apply(lambda self, x: self.module(x), module=nn.Identity()))
    gm.module.forward = lambda x: x + 1
    assert refused(REMOVE, gm) == "forward-replaced"


@pytest.mark.parametrize(("cls", "batch"), [(nn.Dropout1d, (2, 3, 4)), (nn.Dropout3d, (2, 3, 1, 2, 2))])
def test_dropouts_of_channels_return_views_of_single_samples(cls, batch):
    model = Apply(lambda self, x: self.module(x), module=cls())
    assert why_not(model) == "unknown-shape"
    x = torch.randn(batch)
    assert refused(REMOVE, shaped(model, x[0])) == "returns-view"
    gm = shaped(model, x)
    check(REMOVE, model, x, marked=1, gm=gm, tolerance=0.0)
