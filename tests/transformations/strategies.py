"""How hypothesis draws a recipe: group after group of steps, each run at once, so that what follows fits."""

import operator
from dataclasses import replace
from typing import Any

import torch
from dialects import DIALECTS
from hypothesis import reject
from hypothesis import strategies as st
from random_modules import (
    DIVISIONS,
    EXPORTED,
    FUNCTIONS,
    JOINS,
    OTHERS,
    Apply,
    Builder,
    Call,
    Channels,
    Conv,
    Counts,
    Divide,
    Freeze,
    Hook,
    Join,
    Linear,
    Mode,
    Norm,
    Other,
    Parametrize,
    Read,
    Recipe,
    Tie,
    WrittenNorm,
)

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ROWS = [(3, 4), (1, 6), (0, 4), (4,)]
SEQUENCES = [(2, 4, 4), (2, 3, 4), (1, 2, 4)]
IMAGES = [(2, 4, 3, 3), (1, 2, 3, 4), (0, 2, 3, 3)]
VOLUMES = [(1, 2, 2, 3, 2), (2, 4, 1, 2, 3)]
shapes = st.sampled_from([ROWS, IMAGES, ROWS, SEQUENCES, IMAGES, ROWS, SEQUENCES, VOLUMES]).flatmap(
    st.sampled_from
)

dialects = st.sampled_from(["modules", "modules", "modules", *DIALECTS[1:]])

WRITES = [name for name in FUNCTIONS if "write" in name or "in place" in name or name == "zero a row"]
VIEWS = ["view rows", "heads", "reshape", "flatten", "transpose", "unsqueeze", "contiguous", "half", "select"]

mostly = st.sampled_from([True, True, True, False])
rarely = st.sampled_from([False] * 7 + [True])
very_rarely = st.sampled_from([False] * 23 + [True])

ordinary_constants = st.sampled_from([8, 49.0, 3, -7, 0.1, 1 / 3, 2**10]) | st.floats(0.01, 100)
extreme_constants = st.sampled_from([1e4, 1e-4, 6e4, 1e6, 1e-6, 1e30, 1e-30, 1e300, 1e-310, 5e-324])
hostile_constants = st.sampled_from(
    [0, 0.0, -0.0, float("inf"), float("-inf"), float("nan"), True, 2**53 + 1, 2**62, -(2**63)]
)
constants = ordinary_constants | ordinary_constants | extreme_constants | hostile_constants

linears = st.builds(
    Linear, size=st.sampled_from([4, 1, 2, 6]), bias=mostly, doubled=rarely, transposed=rarely
)
norms = st.builds(
    Norm,
    affine=mostly,
    statistics=rarely.map(operator.not_),
    training=rarely,
    mean=st.sampled_from([1.0, 0.0, 30.0]),
)
convs = st.builds(
    Conv,
    size=st.sampled_from([4, 1, 2]),
    kernel=st.sampled_from([1, 2, 3]),
    bias=st.booleans(),
    padding=st.sampled_from([0, 1, "same"]),
    mode=st.sampled_from(["zeros", "reflect", "circular"]),
    groups=st.sampled_from([1, 1, 2]),
) | st.builds(
    Conv,
    size=st.sampled_from([4, 1, 2]),
    kernel=st.sampled_from([1, 2, 3]),
    bias=st.booleans(),
    padding=st.sampled_from([0, 0, 1]),
    groups=st.sampled_from([1, 1, 2]),
    transposed=st.just(True),
)


@st.composite
def recipes(draw: st.DrawFn, *, exported: bool = False, takes_two: bool = False) -> Recipe:
    """Draw a recipe whose module runs, and perhaps goes through ``torch.export``.

    One that takes two inputs writes one of them, or a buffer, between calls that read the other.
    """
    start = Recipe(
        draw(shapes),
        (),
        dtype=torch.float64 if takes_two else draw(st.sampled_from(DTYPES)),
        shapes_known=draw(mostly),
        aliased=not exported and draw(rarely),
        renamed=not exported and draw(rarely),
        by_fxlab=not exported and draw(very_rarely),  # which takes ten times as long as all else
        dialect=draw(st.sampled_from(EXPORTED) if exported else dialects),
        seed=draw(st.integers(0, 3)),
        takes_two=takes_two,
    )
    builder = Builder(start.inputs(), start.seed)
    if takes_two:
        for step in draw(reads_around_a_write(builder)):
            _try(builder, step)
    for _ in range(draw(st.integers(2, 7))):
        for step in draw(steps(builder)):
            _try(builder, step)
    recipe = draw(finished(start, builder))
    if not _runs(recipe):
        reject()
    return recipe


@st.composite
def finished(draw: st.DrawFn, start: Recipe, builder: Builder) -> Recipe:
    """Draw what is changed in the module, and what it returns: the last value, mostly."""
    paths = called_paths(builder)
    count = len(builder.values)
    outputs = draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True))
    if not outputs or draw(mostly):
        outputs = [count - 1, *(index for index in outputs if index != count - 1)]
    changed = draw(st.lists(changes(paths), max_size=2)) if paths and not draw(mostly) else ()
    return replace(start, steps=builder.model.steps, changes=tuple(changed), outputs=tuple(outputs))


def _runs(recipe: Recipe) -> bool:
    try:
        recipe.try_out()
    except Exception:  # a change does not fit, such as training mode for a single row
        return False
    return True


def _try(builder: Builder, step: Any) -> None:
    try:
        builder.add(step)
    except Exception:  # not every step fits every value
        return


def called_paths(builder: Builder) -> list[str]:
    return [step.path for step in builder.model.steps if isinstance(step, Call)]


@st.composite
def steps(draw: st.DrawFn, builder: Builder) -> list[Any]:
    """Draw steps that belong together; not all of them may fit."""
    count = len(builder.values)
    of = count - 1 if draw(st.booleans()) else draw(st.integers(0, count - 1))
    is_image = builder.values[of].dim() in (4, 5) or (builder.values[of].dim() == 3 and draw(st.booleans()))
    chain = conv_and_norm if is_image else linear_and_norm
    groups = [linears_of_one_input, linears_around_a_write, chain, chain, division, *_OTHER_GROUPS]
    return draw(draw(st.sampled_from(groups))(builder, of, count))


def path_of(name: str) -> st.SearchStrategy[str]:
    """Put a new layer at the root or below."""
    return st.sampled_from([name, f"block.{name}", f"block.inner.{name}", f"0.{name}"])


@st.composite
def linears_of_one_input(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    return [
        Call(draw(path_of(f"linear{count}_{number}")), draw(linears), of, draw(rarely))
        for number in range(draw(st.integers(1, 4)))
    ]


@st.composite
def linears_around_a_write(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    """Write what two linears read, or what shares memory with it perhaps, or a result, between them."""
    first, second = (Call(draw(path_of(f"linear{count}_{number}")), draw(linears), of) for number in range(2))
    view = [Apply(draw(st.sampled_from(VIEWS)), draw(st.sampled_from([of, count])))] if draw(mostly) else []
    written = draw(st.sampled_from([of, count, count + len(view), draw(st.integers(0, count))]))
    return [first, *view, Apply(draw(st.sampled_from(WRITES)), written), second]


@st.composite
def reads_around_a_write(draw: st.DrawFn, builder: Builder) -> list[Any]:
    """Read the first input, write the second or a buffer, and read the first again, alike mostly."""
    count = len(builder.values)
    function = Apply(draw(st.sampled_from(list(FUNCTIONS))), 0)
    layer = draw(st.sampled_from([linears, linears, norms, convs]))
    called = [Call(f"first{number}", draw(layer), 0) for number in range(2)]
    read: list[Any] = draw(st.sampled_from([called, [function, function], [function, called[0]]]))
    views = [Apply(draw(st.sampled_from(VIEWS)), draw(st.integers(0, 1)))] if draw(rarely) else []
    written = draw(st.sampled_from([1, 1, count - 1 + len(views)]))
    write = draw(
        st.sampled_from([Apply(draw(st.sampled_from(WRITES)), written), Call("counts", Counts(), 1)])
    )
    results = count + len(views), count + len(views) + 2
    return [*views, read[0], write, read[1], Join(draw(st.sampled_from(["add", "mul"])), *results)]


@st.composite
def linear_and_norm(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    layers = {f"linear{count}": draw(linears), f"norm{count}": draw(norms)}
    return draw(chains(layers if draw(mostly) else dict(reversed(layers.items())), of, count))


@st.composite
def conv_and_norm(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    layers = {f"conv{count}": draw(convs), f"norm{count}": draw(norms)}
    return draw(chains(layers if draw(mostly) else dict(reversed(layers.items())), of, count))


@st.composite
def layer_and_channels(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    """Multiply the channels of a layer, or add to them, perhaps after a view."""
    is_conv = builder.values[of].dim() > 3
    layer = Call(draw(path_of(f"layer{count}")), draw(convs if is_conv else linears), of)
    view = [Apply(draw(st.sampled_from(VIEWS)), count)] if draw(rarely) else []
    dimension = (
        1 - builder.values[of].dim() if is_conv and draw(mostly) else draw(st.sampled_from([-1, -1, -2]))
    )
    kind = Channels(draw(st.booleans()), dimension, draw(st.booleans()))
    return [layer, *view, Call(draw(path_of(f"channels{count}")), kind, count + len(view))]


@st.composite
def channels_and_layers(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    """Multiply what layers read, perhaps by a number or through a view, and read or write it otherwise."""
    is_conv = builder.values[of].dim() > 3
    dimension = (
        1 - builder.values[of].dim() if is_conv and draw(mostly) else draw(st.sampled_from([-1, -1, -1, -2]))
    )
    channels = Call(draw(path_of(f"channels{count}")), Channels(False, dimension, draw(st.booleans())), of)
    product = channels if draw(mostly) else Divide(of, draw(ordinary_constants), "/")
    view = [Apply(draw(st.sampled_from(VIEWS)), count)] if draw(rarely) else []
    reads = count + len(view)
    layers = [
        Call(draw(path_of(f"layer{count}_{number}")), draw(convs if is_conv else linears), reads)
        for number in range(draw(st.integers(1, 3)))
    ]
    other = [Apply(draw(st.sampled_from([*VIEWS, *WRITES])), draw(st.sampled_from([of, count, reads])))]
    return [product, *view, *layers[:1], *(other if draw(rarely) else []), *layers[1:]]


@st.composite
def chains(draw: st.DrawFn, layers: dict[str, Any], of: int, count: int) -> list[Any]:
    """Call each layer on the result of the one before."""
    inputs = [of, *range(count, count + len(layers) - 1)]
    return [
        Call(draw(path_of(name)), layer, value, draw(rarely))
        for (name, layer), value in zip(layers.items(), inputs, strict=True)
    ]


@st.composite
def norm(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    return [Call(draw(path_of(f"norm{count}")), draw(norms), of)]


@st.composite
def written_norm(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    layer = WrittenNorm(draw(st.booleans()), draw(mostly))
    then = [Apply(draw(st.sampled_from([*VIEWS, *WRITES])), count)] if draw(rarely) else []
    return [Call(draw(path_of(f"norm{count}")), layer, of), *then]


@st.composite
def norm_and_reading(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    """Read the statistics of a batch norm, which are constant unless it is in training, around its call."""
    path = draw(path_of(f"norm{count}"))
    read = [Read(path, draw(st.sampled_from(["running_mean", "running_var"])), of) for _ in range(2)]
    return [Call(path, draw(norms), of), *read, Call(path, None, of), *read[:1]]


@st.composite
def division(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    has_complex = builder.values[of].dtype != torch.float16  # torch hardly knows complex numbers of that size
    constant = draw(constants | st.just(1 + 0j) if has_complex else constants)
    return [Divide(of, constant, draw(st.sampled_from(list(DIVISIONS))))]


@st.composite
def function(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    return [Apply(draw(st.sampled_from(list(FUNCTIONS))), of)]


@st.composite
def join(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    return [Join(draw(st.sampled_from(list(JOINS))), of, draw(st.integers(0, count - 1)))]


@st.composite
def other_layer(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    return [Call(draw(path_of(f"other{count}")), Other(draw(st.sampled_from(list(OTHERS)))), of)]


@st.composite
def identities(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    """Call what returns its input, often in a row, and write that perhaps."""
    names = [name for name in OTHERS if "identity" in name or "dropout in eval" in name]
    values = [of, *(draw(st.sampled_from([of, count + number])) for number in range(2))]
    chain = [
        Call(
            draw(path_of(f"identity{count}_{number}")),
            Other(draw(st.sampled_from(names))),
            value,
            draw(rarely),
        )
        for number, value in enumerate(values)
    ]
    after = Apply(draw(st.sampled_from([*WRITES, *VIEWS])), draw(st.integers(0, count + 2)))
    return [*chain, after] if draw(st.booleans()) else [*chain[:1], after, *chain[1:]]


@st.composite
def repetitions(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    """Compute the same several times, write something in between perhaps, and use what comes of it."""
    name = draw(st.sampled_from(list(FUNCTIONS)))
    write = [Apply(draw(st.sampled_from(WRITES)), draw(st.integers(0, count)))] if draw(st.booleans()) else []
    second = count + 1 + len(write)
    same = [Apply(name, of), *write, Apply(name, of)]
    then = draw(st.sampled_from(["tanh", "square", "double in place", "clone"]))
    after = [Apply(then, count), Apply(then, second)] if draw(st.booleans()) else []
    return [*same, *after, Join(draw(st.sampled_from(["add", "mul"])), count + len(same + after) - 1, second)]


@st.composite
def attention(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    """Compute attention of a value to itself or to another of its shape, with something amiss at times."""
    key, value = (draw(st.sampled_from([of, of, draw(st.integers(0, count - 1))])) for _ in range(2))
    steps: list[Any] = [Join("matmul", of, key)]
    if draw(mostly):
        steps.append(Divide(count, draw(ordinary_constants), draw(st.sampled_from(list(DIVISIONS)))))
    if draw(rarely):
        written = draw(st.sampled_from([of, count, count + len(steps) - 1]))
        steps.append(Apply(draw(st.sampled_from(WRITES)), written))
    steps.append(Apply("softmax", count + len(steps) - 1))
    if draw(rarely):
        steps.append(Apply("dropout function in eval", count + len(steps) - 1))
    return [*steps, Join("matmul", count + len(steps) - 1, value)]


@st.composite
def second_use(draw: st.DrawFn, builder: Builder, of: int, count: int) -> list[Any]:
    """Call a layer again, or read one of its tensors."""
    paths = called_paths(builder)
    if not paths:
        return []
    path = draw(st.sampled_from(paths))
    if draw(st.booleans()):
        return [Call(path, None, of)]
    return [Read(path, draw(st.sampled_from(["weight", "bias", "running_mean"])), of)]


_OTHER_GROUPS = [
    norm,
    written_norm,
    layer_and_channels,
    channels_and_layers,
    norm_and_reading,
    function,
    join,
    other_layer,
    identities,
    repetitions,
    attention,
    second_use,
]


def changes(paths: list[str]) -> st.SearchStrategy[Any]:
    """Draw a change of one of the layers."""
    path, parameter = st.sampled_from(paths), st.sampled_from(["weight", "bias"])
    return st.one_of(
        st.builds(Freeze, path, parameter),
        st.builds(Mode, path, st.booleans()),
        st.builds(Hook, path, st.sampled_from(["forward", "forward_pre", "full_backward"])),
        st.builds(Tie, path, path, parameter, st.booleans()),
        st.builds(Parametrize, path),
    )
