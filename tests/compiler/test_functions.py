"""Functions compile as by torch.compile; modules keep their names wherever a function finds them."""

import pytest
import torch
from torch import nn

import fxlab

X = torch.ones(2, 4)
net, teacher = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 4))


class Trainer:
    def __init__(self):
        self.model = net

    def step(self, x):
        return self.model(x).sum()


class Force(nn.Module):
    def forward(self, x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(net(x).sum(), x)[0]


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(4, 4)

    def forward(self, x):
        return self.own(x) + teacher(x)


def of_closure():
    inner = nn.Sequential(nn.Linear(4, 4))
    return lambda x: inner(x).sum()


OF_NET = ["0.weight", "0.bias"]
FUNCTIONS = {
    "global": (lambda x: net(x).sum(), (X,), OF_NET),
    "closure": (of_closure(), (X,), OF_NET),
    "argument": (lambda m, x: m(x), (net, X), OF_NET),
    "method": (Trainer().step, (X,), OF_NET),
    "two arguments": (
        lambda s, t, x: (s(x) - t(x)).pow(2),
        (net, teacher, X),
        ["s.0.weight", "s.0.bias", "t.0.weight", "t.0.bias"],
    ),
    "list": (
        lambda several, x: several[0](x) - several[1](x),
        ([net, teacher], X),
        ["0.0.weight", "0.0.bias", "1.0.weight", "1.0.bias"],
    ),
    "module and global": (Student(), (X,), ["own.weight", "own.bias", "teacher.0.weight", "teacher.0.bias"]),
}


class Training:
    """A step with state of every kind: numbers, lists, tensors, gradients, and an optimizer's."""

    def __init__(self):
        self.model, self.count, self.losses, self.mean = nn.Linear(4, 1), 0, [], torch.zeros(1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.model(X).sum().backward()

    def step(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.mean += loss.detach()
        self.count += 1
        self.losses.append(loss)
        return loss

    def state(self):
        tensors = [*self.model.parameters(), *(each.grad for each in self.model.parameters()), self.mean]
        return self.count, len(self.losses), len(self.optimizer.state), [each.tolist() for each in tensors]


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.calls = nn.Parameter(torch.ones(4)), 0

    def forward(self, x):
        self.calls += 1
        self.weight.data.mul_(2)
        return x * self.weight

    def state(self):
        return self.calls, self.weight.tolist()


class Nested:
    def __init__(self):
        self.inner = Training()
        self.inner.model = Counter()

    def __call__(self, x):
        return self.inner.model(x)

    def state(self):
        return self.inner.model.state()


calls, sums, large = 0, torch.zeros(4), torch.zeros(1 << 19)


class WritesGlobals(nn.Module):
    def forward(self, x):
        return of_globals(x)

    def state(self):
        return calls, sums.tolist(), large.sum().item()


def of_globals(x):
    global calls
    calls += 1
    sums.add_(1)
    large.add_(1)
    return x * calls + sums


def of_variables():
    count, kept = 0, {"x": torch.zeros(2, 4)}

    def function(x):
        nonlocal count
        count += 1
        kept["x"] = kept["x"] + x
        return x * count

    return function, lambda: (count, kept["x"].tolist())


def with_arguments(training, x):
    return training.step(x)


trained = Training()
STATES = {
    "method": (trained.step, (X,), trained.state),
    "argument": (with_arguments, (trained, X), trained.state),
    "module of an object of an object": (nested := Nested(), (X,), nested.state),
    "globals": (of_globals, (X,), WritesGlobals().state),
    "globals of a module": (writes := WritesGlobals(), (X,), writes.state),
    "variables": ((in_closure := of_variables())[0], (X,), in_closure[1]),
}


def described(session):
    held = [str(node.target) for node in session.original.graph.find_nodes(op="get_attr")]
    stacks = (node.meta.get("nn_module_stack") for node in session.original.graph.nodes)
    modules = {path for stack in stacks for path in stack or ()}
    return held, modules


@pytest.mark.parametrize("where", FUNCTIONS)
def test_modules_of_a_recorded_function_keep_their_names(where):
    function, arguments, names = FUNCTIONS[where]
    torch._dynamo.reset()
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        torch.compile(function, backend="eager")(*arguments)
    (session,) = record.sessions.values()
    held, modules = described(session)
    assert held == names
    assert modules >= {name.rpartition(".")[0] for name in names}
    assert list(session.inputs) == ["x"]


@pytest.mark.often(2)
@pytest.mark.parametrize("where", [name for name in FUNCTIONS if name != "module and global"])
def test_a_function_is_compiled_for_its_stages(where):
    function, arguments, names = FUNCTIONS[where]
    session = fxlab.compiler.compile_session(function, arguments)
    assert described(session)[0] == names
    assert list(session.inputs) == ["x"]
    assert session.verdict().agrees
    with torch.no_grad():
        assert torch.equal(session.original(X)[0], function(*arguments))


@pytest.mark.often(1)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    "of",
    [
        "method",
        "globals",
        "variables",
        *(
            pytest.param(of, marks=pytest.mark.weekly)
            for of in ("argument", "module of an object of an object", "globals of a module")
        ),
    ],
)
def test_a_compile_leaves_all_state_of_the_code_as_it_was(of):
    function, arguments, state = STATES[of]
    before = state()
    session = fxlab.compiler.compile_session(function, arguments)
    assert state() == before
    session.revert()
    assert state() == before


@pytest.mark.weekly
@pytest.mark.parametrize("function", [lambda x: net(x).sum().backward(), Force()], ids=["function", "module"])
def test_code_that_takes_derivatives_is_compiled_with_gradients(function):
    session = fxlab.compiler.compile_session(function, X)
    assert any("gradients are compiled" in remark for remark in session.remarks)
    assert "training=True" in session.to_python()
    assert next(net.parameters()).grad is None


@pytest.mark.weekly
def test_what_torch_compile_has_wrapped_is_the_function():
    session = fxlab.compiler.compile_session(torch.compile(lambda x: net(x) + 1), X, training=True)
    assert list(session.graphs) == ["joint", "forward", "backward"]
    assert session.verdict().agrees


def test_a_mode_is_a_set_of_options():
    session = fxlab.compiler.compile_session(net, X, mode="max-autotune-no-cudagraphs")
    assert "options=options" in session.to_python()
    with pytest.raises(ValueError, match=r"torch.compile has no mode 'fast'; it has default, ") as error:
        fxlab.compiler.compile_session(net, X, mode="fast")
    assert str(error.value).count("default") == 1
    with pytest.raises(TypeError, match="takes options or a mode, not both"):
        fxlab.compiler.compile_session(net, X, mode="default", options={})


def test_what_is_no_function_is_refused_in_words():
    with pytest.raises(TypeError, match="inputs: expected what the function is called with"):
        fxlab.compiler.compile_session(lambda x: x)
    with pytest.raises(TypeError, match="a function of Python, got"):
        fxlab.compiler.compile_session(torch.sin, X)
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module or a function, got"):
        fxlab.compiler.compile_session(3, X)
