"""Modules made of a recipe, which is what ``strategies.py`` draws and hypothesis prints and shrinks.

A module keeps a list of values, of which the input is the first. Each step reads values by their index and
appends one; what the module returns is a selection of the values. Layers are made when a step first calls
them, to fit the value that they are called on. A recipe is a plain expression: pasted into a test, it is the
example.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from dialects import in_dialect
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F

import fxlab
from fxlab.models.graph_modules.copies import deep_copy

EXPORTED = ("export", "decomposed")
"""The dialects of graphs that went through ``torch.export``."""

# Layers


@dataclass(frozen=True)
class Linear:
    """A linear layer on the last dimension."""

    size: int
    bias: bool = True
    doubled: bool = False
    transposed: bool = False
    """Whether it is a product of matrices with a weight of shape ``(in, out)``."""

    def make(self, x: torch.Tensor) -> nn.Module:
        if self.transposed:
            return MatrixProduct(x.shape[-1], self.size, self.bias)
        return (Doubled if self.doubled else nn.Linear)(x.shape[-1], self.size, self.bias)


@dataclass(frozen=True)
class Conv:
    """A convolution of sequences, images or volumes."""

    size: int
    kernel: int = 1
    bias: bool = True
    padding: int | str = 0
    mode: str = "zeros"
    groups: int = 1
    transposed: bool = False

    def make(self, x: torch.Tensor) -> nn.Module:
        convs = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
        if not self.transposed:
            convs = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
        return convs[x.dim() - 3](
            x.shape[1],
            self.size * self.groups,
            self.kernel,
            padding=self.padding,
            padding_mode=self.mode,
            bias=self.bias,
            groups=self.groups,
        )


@dataclass(frozen=True)
class Norm:
    """A batch norm, of whatever dimensions it is called on, whose statistics are not trivial."""

    affine: bool = True
    statistics: bool = True
    training: bool = False
    mean: float = 1.0
    """The size of the running means."""

    def make(self, x: torch.Tensor) -> nn.Module:
        cls = {4: nn.BatchNorm2d, 5: nn.BatchNorm3d}.get(x.dim(), nn.BatchNorm1d)
        norm = cls(x.shape[1], affine=self.affine, track_running_stats=self.statistics)
        with torch.no_grad():
            for tensor in norm.parameters():
                tensor.normal_()
            if self.statistics:
                norm.running_mean.normal_(0, self.mean)
                norm.running_var.uniform_(0.25, 4.0)
        return norm.train(self.training)


@dataclass(frozen=True)
class WrittenNorm:
    """An RMS norm or a layer norm over the last dimension that is written as arithmetic."""

    centred: bool
    weight: bool = True

    def make(self, x: torch.Tensor) -> nn.Module:
        if x.is_complex():
            raise TypeError("A norm of complex numbers has no bound.")
        return Arithmetic(x.shape[-1], self.centred, self.weight)


@dataclass(frozen=True)
class Channels:
    """A product or sum with a parameter of one number for each channel, or of another shape."""

    added: bool = False
    dimension: int = -1
    first: bool = False
    """Whether the parameter is the first factor."""

    def make(self, x: torch.Tensor) -> nn.Module:
        behind = [1] * (-self.dimension - 1)
        return ForEachChannel([x.shape[self.dimension], *behind], self.added, self.first)


@dataclass(frozen=True)
class Counts:
    """A layer that writes a buffer of its own."""

    def make(self, x: torch.Tensor) -> nn.Module:
        return Counting(x.shape)


@dataclass(frozen=True)
class Other:
    """A layer that no pass replaces."""

    name: str

    def make(self, x: torch.Tensor) -> nn.Module:
        return OTHERS[self.name]()


class Doubled(nn.Linear):
    """A subclass that computes something else; it is traced through."""

    def forward(self, x):
        return 2 * super().forward(x)


class Arithmetic(nn.Module):
    """A norm as models write it; it is traced through."""

    def __init__(self, size: int, centred: bool, weight: bool):
        super().__init__()
        self.centred = centred
        self.weight = nn.Parameter(torch.randn(size)) if weight else None
        self.bias = nn.Parameter(torch.randn(size)) if weight and centred else None

    def forward(self, input):
        centred = input - input.mean(-1, keepdim=True) if self.centred else input
        result = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-3)
        if self.weight is not None:
            result = self.weight * result
        return result if self.bias is None else result + self.bias


class ForEachChannel(nn.Module):
    """A layer scale, or a bias that is kept beside its layer; it is traced through."""

    def __init__(self, shape: list[int], added: bool, first: bool):
        super().__init__()
        self.numbers = nn.Parameter(torch.randn(shape))
        self.added, self.first = added, first

    def forward(self, input):
        a, b = (self.numbers, input) if self.first else (input, self.numbers)
        return a + b if self.added else a * b


class Counting(nn.Module):
    """A memory of how often it was called; it is traced through."""

    def __init__(self, shape: torch.Size):
        super().__init__()
        self.register_buffer("count", torch.zeros(shape))

    def forward(self, input):
        return input + self.count.add_(1)


class MatrixProduct(nn.Module):
    """A linear layer of a matrix, as GPT-2 writes it; it is traced through."""

    def __init__(self, in_features: int, out_features: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features)) if bias else None

    def forward(self, input):
        if self.bias is None:
            return torch.mm(input, self.weight)
        return torch.addmm(self.bias, input, self.weight)


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu in place": lambda: nn.ReLU(inplace=True),
    "identity": nn.Identity,
    "dropout": nn.Dropout,
    "dropout in eval": lambda: nn.Dropout().eval(),
    "another dropout in eval": lambda: nn.Dropout(0.9, inplace=True).eval(),
    "tanh": nn.Tanh,
}

# Steps


@dataclass(frozen=True)
class Call:
    """Call the layer at a path; it is made if it is not there."""

    path: str
    layer: Any
    of: int
    by_keyword: bool = False

    def __call__(self, model: "RandomModule", values: list[Any]) -> Any:
        layer = model.get_submodule(self.path)
        return layer(input=values[self.of]) if self.by_keyword else layer(values[self.of])


@dataclass(frozen=True)
class Divide:
    """Divide a value by a number."""

    of: int
    by: Any
    spelling: str = "/"

    def __call__(self, model: "RandomModule", values: list[Any]) -> Any:
        return DIVISIONS[self.spelling](values[self.of], self.by)


DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "/": lambda x, c: x / c,
    "div": lambda x, c: x.div(c),
    "div(other=)": lambda x, c: x.div(other=c),
    "true_divide": lambda x, c: x.true_divide(c),
    "torch.div": torch.div,
    "torch.div(other=)": lambda x, c: torch.div(other=c, input=x),
    "torch.divide": torch.divide,
    "rounded": lambda x, c: torch.div(x, c, rounding_mode=None),
}


@dataclass(frozen=True)
class Apply:
    """Apply a function to a value."""

    name: str
    of: int

    def __call__(self, model: "RandomModule", values: list[Any]) -> Any:
        return FUNCTIONS[self.name](values[self.of])


ROOT = (2 / math.pi) ** 0.5
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu,
    "tanh": lambda x: x.tanh(),
    "view all": lambda x: x.view(-1),
    "view rows": lambda x: x.view(x.size(0), -1),
    "heads": lambda x: x.view(x.size(0), 2, -1).transpose(0, 1),
    "heads of two": lambda x: x.view(x.size(0), x.size(1), -1, 2).transpose(1, 2),
    "reshape": lambda x: x.reshape(x.size(0), -1),
    "flatten": lambda x: x.flatten(1),
    "transpose": lambda x: x.transpose(-1, -2),
    "permute": lambda x: x.permute(1, 2, 0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "contiguous": lambda x: x.contiguous(),
    "first row": lambda x: x[0],
    "last column": lambda x: x[..., -1],
    "half": lambda x: x.chunk(2, -1)[0],
    "clone": torch.clone,
    "detach": lambda x: x.detach(),
    "dropout function in eval": lambda x: F.dropout(x, 0.5, training=False),
    "silu written out": lambda x: x * torch.sigmoid(x),
    "gelu written out": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0)))),
    "error function written out": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
    "sum": lambda x: x.sum(-1),
    "positive": lambda x: x > 0,
    "long": lambda x: x.long(),
    "float": lambda x: x.float(),
    "to double": lambda x: x.to(torch.float64),
    "to bfloat16": lambda x: x.bfloat16(),
    "times size": lambda x: x * (x.size(0) / 3),
    "square": lambda x: x * x,
    "softmax": lambda x: x.softmax(-1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "unflatten": lambda x: x.unflatten(-1, (2, -1)),
    "select": lambda x: x.select(-1, 0),
    "expand": lambda x: x.unsqueeze(0).expand(2, -1, -1),
    "add in place": lambda x: x.add_(1),
    "double in place": lambda x: x.mul_(2),
    "relu in place": lambda x: F.relu(x, inplace=True),
    "write through a view": lambda x: x.view(-1).add_(1),
    "write through reshape": lambda x: x.reshape(-1).mul_(2),
    "zero a row": lambda x: x[0].zero_(),
    "write detached": lambda x: x.detach().add_(1),
    "write a half": lambda x: x.chunk(2, -1)[0].mul_(2),
    "write a column": lambda x: x.narrow(-1, 0, 1).add_(1),
    "write transposed": lambda x: x.transpose(0, -1).mul_(2),
    "write a row of a view": lambda x: x.view(x.size(0), -1)[0].zero_(),
    "write a copy": lambda x: x.contiguous().add_(1),
}


@dataclass(frozen=True)
class Join:
    """Combine two values."""

    name: str
    of: int
    other: int

    def __call__(self, model: "RandomModule", values: list[Any]) -> Any:
        return JOINS[self.name](values[self.of], values[self.other])


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "matmul": lambda a, b: a @ b.transpose(-1, -2),
    "add in place": lambda a, b: a.add_(b),
    "add into": lambda a, b: torch.add(a, b, out=a),
    "copy": lambda a, b: a.copy_(b),
    "cat": lambda a, b: torch.cat((a, b), -1),
}


@dataclass(frozen=True)
class Read:
    """Scale a value by the mean of a parameter, which the graph then reads itself."""

    path: str
    name: str
    of: int

    def __call__(self, model: "RandomModule", values: list[Any]) -> Any:
        return values[self.of] * getattr(model.get_submodule(self.path), self.name).sum()


# Changes of what is built


@dataclass(frozen=True)
class Tie:
    """Let two layers share a parameter, or its memory alone."""

    path: str
    other: str
    name: str
    memory_only: bool = False

    def __call__(self, model: nn.Module) -> None:
        ours, others = (getattr(model.get_submodule(path), self.name) for path in (self.path, self.other))
        if ours is None or others is None or (ours.shape, ours.dtype) != (others.shape, others.dtype):
            return
        shared = nn.Parameter(others.detach(), ours.requires_grad) if self.memory_only else others
        setattr(model.get_submodule(self.path), self.name, shared)


class Doubling:
    """A hook that doubles what it sees."""

    def forward(self, module, args, out):
        return out * 2

    def forward_pre(self, module, args):
        return tuple(value * 2 for value in args) or None

    def full_backward(self, module, grad_input, grad_output):
        return None


@dataclass(frozen=True)
class Hook:
    """Hook a layer."""

    path: str
    kind: str

    def __call__(self, model: nn.Module) -> None:
        module = model.get_submodule(self.path)
        getattr(module, f"register_{self.kind}_hook")(getattr(Doubling(), self.kind))


@dataclass(frozen=True)
class Freeze:
    """Train a parameter no more."""

    path: str
    name: str

    def __call__(self, model: nn.Module) -> None:
        parameter = getattr(model.get_submodule(self.path), self.name)
        if isinstance(parameter, nn.Parameter):
            parameter.requires_grad_(False)


@dataclass(frozen=True)
class Mode:
    """Put a layer into training or evaluation mode."""

    path: str
    training: bool

    def __call__(self, model: nn.Module) -> None:
        model.get_submodule(self.path).train(self.training)


@dataclass(frozen=True)
class Parametrize:
    """Compute the weight of a layer from another tensor."""

    path: str

    def __call__(self, model: nn.Module) -> None:
        module = model.get_submodule(self.path)
        # As a whole it would be called.
        is_traced_through = isinstance(module, MatrixProduct | Arithmetic | ForEachChannel)
        if not is_traced_through and not nn.utils.parametrize.is_parametrized(module):
            nn.utils.parametrize.register_parametrization(module, "weight", nn.Tanh())


# The whole


@dataclass(frozen=True)
class Recipe:
    """What a module is built from, and how it is traced."""

    shape: tuple[int, ...]
    steps: tuple[Any, ...]
    changes: tuple[Any, ...] = ()
    outputs: tuple[int, ...] = (-1,)
    dtype: torch.dtype = torch.float32
    shapes_known: bool = True
    """Whether ``ShapeProp`` has been run."""
    aliased: bool = False
    """Whether the second call of a module goes by another path."""
    renamed: bool = False
    """Whether the nodes have names that torch.fx would not give."""
    by_fxlab: bool = False
    """Whether it is traced by fxlab, and not by torch.fx."""
    dialect: str = "modules"
    """What calls of layers are written as."""
    seed: int = 0
    takes_two: bool = False
    """Whether the module has a second input of the same shape."""
    ready: list[tuple["RandomModule", fx.GraphModule]] = field(
        default_factory=list, init=False, compare=False, repr=False
    )
    """A module that was built and traced to see whether it can be, for the first who builds one."""
    exported: dict[bool, fx.GraphModule] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What was exported of a module in training mode, and in evaluation mode."""

    def try_out(self) -> None:
        """Build, run and trace the module; raise what that raises."""
        model = self.build()
        with kept_buffers(model), torch.no_grad():
            model(*self.inputs())
        self.ready.append((model, self.trace(model)))

    def input(self) -> torch.Tensor:
        """Return what the module is called with; the same each time."""
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(self.seed)).to(self.dtype)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Return all that the module is called with."""
        return (self.input(), self.input() / 2) if self.takes_two else (self.input(),)

    def build(self) -> "RandomModule":
        """Build the module; the same each time."""
        if self.ready:
            return self.ready[-1][0]
        builder = Builder(self.inputs(), self.seed)
        for step in self.steps:
            builder.add(step)
        for change in self.changes:
            change(builder.model)
        builder.model.outputs = self.outputs
        return builder.model

    def trace(self, model: "RandomModule") -> fx.GraphModule:
        """Trace the module as a user does."""
        if self.dialect in EXPORTED:
            return self._exported(model)
        if self.ready and self.ready[-1][0] is model:
            _, gm = self.ready.pop()
            if gm.training == model.training:
                return gm
        if self.by_fxlab:
            gm = fxlab.symbolic_trace(model, self.inputs())
        else:
            gm = fx.GraphModule(model, ReadsBuffers().trace(model))
        if self.shapes_known:
            with kept_buffers(gm), torch.no_grad():
                ShapeProp(gm).propagate(*self.inputs())
        gm = in_dialect(gm, self.dialect)
        if self.aliased:
            call_by_other_paths(gm)
        if self.renamed:
            for node in list(gm.graph.nodes)[:-1]:  # copy.deepcopy gives the output its name back
                node.name = f"{node.name}_of_mine_07"
            gm.recompile()
        return gm

    def _exported(self, model: "RandomModule") -> fx.GraphModule:
        """Return a copy of what ``torch.export`` makes of the module, which takes a while."""
        if model.training not in self.exported:
            with kept_buffers(model):
                program = torch.export.export(model, (self.input(),), strict=False)
                if self.dialect == "decomposed":
                    program = program.run_decompositions(_decompositions())
            self.exported[model.training] = fxlab.from_exported(program)
        return deep_copy(self.exported[model.training])


@functools.cache
def _decompositions() -> dict[Any, Any]:
    return dict(torch.export.default_decompositions().items())


class RandomModule(nn.Module):
    """What a recipe tells."""

    def __init__(self):
        super().__init__()
        self.steps = ()
        self.outputs = (-1,)

    def forward(self, x):
        values = [x]
        for step in self.steps:
            values.append(step(self, values))
        return tuple(values[index] for index in self.outputs)


class OfTwo(RandomModule):
    """What a recipe of two inputs tells."""

    def forward(self, x, y):
        values = [x, y]
        for step in self.steps:
            values.append(step(self, values))
        return tuple(values[index] for index in self.outputs)


class ReadsBuffers(fx.Tracer):
    """Records the reading of a buffer, instead of taking its value for a constant."""

    proxy_buffer_attributes = True


class Builder:
    """Runs steps while they are added, so that layers are made to fit, and a step that fails is not added."""

    def __init__(self, inputs: tuple[torch.Tensor, ...], seed: int):
        self.model = RandomModule() if len(inputs) == 1 else OfTwo()
        self.values: list[Any] = [*inputs]
        self._seed = seed

    def add(self, step: Any) -> None:
        """Add a step, and run it."""
        is_new = isinstance(step, Call) and not has_module(self.model, step.path)
        try:
            if is_new:
                self._make(step)
            with torch.no_grad():
                self.values.append(step(self.model, self.values))
        except Exception:
            if is_new and has_module(self.model, step.path):
                self.model.delete_submodule(step.path)
            raise
        self.model.steps = (*self.model.steps, step)

    def _make(self, step: Call) -> None:
        value = self.values[step.of]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(
                self._seed + len(self.values)
            )  # ten times as fast as torch's own
            layer = step.layer.make(value).to(value.dtype)
        *parents, name = step.path.split(".")
        module: nn.Module = self.model
        for parent in parents:
            if parent not in module._modules:
                module.add_module(parent, nn.Module())
            module = module._modules[parent]
        module.add_module(name, layer)


def has_module(model: nn.Module, path: str) -> bool:
    """Tell whether there is a module at a path."""
    return path in dict(model.named_modules(remove_duplicate=False))


class kept_buffers:
    """Gives the buffers of a module their values back afterwards: batch norms in training write theirs."""

    def __init__(self, module: nn.Module):
        self._buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for buffer, value in self._buffers:
            buffer.copy_(value)


def call_by_other_paths(gm: fx.GraphModule) -> None:
    """Let all but the first call of each module go by paths of their own."""
    called = set()
    for node in gm.graph.nodes:
        if node.op == "call_module":
            if node.target in called:
                alias = f"{node.name}_alias"
                gm.add_submodule(alias, gm.get_submodule(node.target))
                node.target = alias
            called.add(node.target)
    gm.recompile()
