"""Inputs of other kinds, made from given ones: those of ``verdict(variants=True)``."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node

from fxlab.base.checks import positive_int
from fxlab.front_desk.sources import inputs_or_examples
from fxlab.models.running.arguments import Inputs, call_arguments, given_arguments, named_arguments
from fxlab.operators import casts, moves_elements
from fxlab.operators.node_info import modules_by_path
from fxlab.values.nested import flatten_objects, map_tensors, tensors_inside, unflatten_objects
from fxlab.values.tensors import to_float64

Change = Callable[[torch.Tensor], torch.Tensor]

Variants: TypeAlias = bool | Mapping[str, Inputs] | Iterable[Inputs]
"""Whether to make other inputs from given ones; or inputs by name; or inputs without names."""

SizesKnown: TypeAlias = dict[int, list[Any]]
"""The expressions of the sizes of tensors in a graph, by the ``id`` of the tensor that is given for one."""

LARGE, VERY_LARGE = 100.0, 10_000.0
"""Factors that make floating-point inputs large. The exponential of the larger one overflows."""

GIVEN = "as given"
"""The name of the inputs that variants are made of."""
PAST_INT8 = 130
"""A length whose positions are no 8-bit integers."""


def named_inputs(original: torch.nn.Module, inputs: Any, variants: Variants = False) -> dict[str, Inputs]:
    """Return all inputs to compare on, by name.

    ``original``: the model that inputs are made for, if ``inputs`` is left out and there are no variants with
    inputs of their own. ``inputs``: the inputs ``"as given"``.
    ``variants``: ``True`` for those of :func:`fxlab.validation.input_variants`; or inputs, by name or not.
    """
    if isinstance(variants, bool):
        given = inputs_or_examples(inputs, original)
        if not variants:
            return {GIVEN: given}
        return _variants(given, vocabulary_of(original), sizes_in_graph(original, given))
    if isinstance(variants, str | torch.Tensor) or not isinstance(variants, Iterable):
        raise TypeError(
            "variants: expected True, a mapping of inputs by name, or a list or iterator of inputs, "
            f"got {type(variants).__name__}"
        )
    named = dict(variants) if isinstance(variants, Mapping) else {}
    if not isinstance(variants, Mapping):
        named = {f"inputs {number}": given for number, given in enumerate(variants, 1)}
    for name, given in named.items():
        try:
            call_arguments(given)
        except TypeError as error:
            raise TypeError(f"variants: of {name!r}, {error}") from None
    if inputs is not None:
        named = {GIVEN: inputs_or_examples(inputs, original), **named}
    if not named:
        raise ValueError("variants: there are no inputs in it, so there is nothing to compare on.")
    return named


def input_variants(inputs: Inputs, *, vocabulary: int | None = None) -> dict[str, Inputs]:
    """Make other inputs from given ones: other values, sizes, masks and magnitudes, and one that is NaN.

    Parameters
    ----------
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor.
    vocabulary
        How many token ids there are. Left out, none is used that is not in the inputs.

    Returns
    -------
    dict of str to inputs
        By these names; ``as given`` is the first. Others are there only where they differ from it:

        ``other values``
            Floating-point numbers are drawn again with the same mean and deviation, the integers of each
            tensor change places (so they stay in range). Masks, of zeros and ones, stay.
        ``other tokens``
            Token ids drawn from the whole ``vocabulary``, its first and last among them.
        ``batch of ...``
            One element, about twice as many as were given, and eight times as many, where the first size of
            all tensors is the same.
        ``length ...``
            Shorter and longer ones along the second size, where integers have the same one (ids and masks),
            or, if there are none, floating-point tensors of three dimensions. The longest has positions that
            are no 8-bit integers.
        ``height ...``, ``width ...``, ``size ... x ...``
            Of images, which are floating-point tensors of four or five dimensions: the half, one more, and
            both twice less one, so that there are odd and even sizes.
        ``half masked``, ``left half masked``, ``masked by row``
            The second half of each mask is zero; the first half; and another end in each row.
        ``large values``, ``very large values``, ``zeros``, ``a NaN``
            Floating-point numbers times 100, times 10,000, none, and one of each tensor NaN.

    Raises
    ------
    TypeError
        If ``inputs`` is nothing that a model can be called with.

    Examples
    --------
    >>> ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    >>> variants = input_variants({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    >>> {name: tuple(given["input_ids"].shape) for name, given in variants.items()}
    {'as given': (2, 4), 'other values': (2, 4), 'batch of 1': (1, 4), 'batch of 5': (5, 4),
     'batch of 17': (17, 4), 'length 2': (2, 2), 'length 7': (2, 7), 'length 17': (2, 17),
     'length 130': (2, 130), 'half masked': (2, 4), 'left half masked': (2, 4), 'masked by row': (2, 4)}
    """
    call_arguments(inputs)
    if vocabulary is not None:
        positive_int(vocabulary, "vocabulary")
    return _variants(inputs, vocabulary, {})


def _variants(inputs: Inputs, vocabulary: int | None, known: SizesKnown) -> dict[str, Inputs]:
    tensors = [tensor for _, tensor in tensors_inside(_plain(inputs))]
    ties = _Ties(tensors, known)
    result: dict[str, Inputs] = {GIVEN: inputs}
    for name, change in _changes(tensors, vocabulary):
        if isinstance(change, _Resize):
            changed = ties.resized(change)
        else:
            changed = [change(tensor) for tensor in tensors]
        if not all(map(_are_equal, changed, tensors)):
            result[name] = _with_tensors(inputs, changed)
    return result


def sizes_in_graph(model: torch.nn.Module, inputs: Inputs) -> SizesKnown:
    """Return, by the ``id`` of a tensor of the inputs, the expressions that a graph has for its sizes."""
    if not isinstance(model, GraphModule):
        return {}
    given = named_arguments(model, *given_arguments(inputs))
    known: SizesKnown = {}
    for node in model.graph.find_nodes(op="placeholder"):
        there = dict(tensors_inside(node.meta.get("val")))
        for path, tensor in tensors_inside(flatten_objects(given.get(str(node.target)))):
            if (other := there.get(path)) is not None and other.dim() == tensor.dim():
                known[id(tensor)] = [_expression(size) for size in other.shape]
    return known


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


@dataclass(frozen=True)
class _Resize:
    """Other sizes of some dimensions, by the place of the tensor and the dimension."""

    sizes: Mapping[tuple[int, int], int]


class _Ties:
    """The sizes of inputs that change together.

    Those that have one symbol in a graph; of a tensor that would stay as it is, those equal to one that
    changes: it may be indexed by that, which no operator needs to check.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], known: SizesKnown) -> None:
        self._tensors = tensors
        self._expressions = [
            known.get(id(tensor)) or [f"size {dim} of {place}" for dim in range(tensor.dim())]
            for place, tensor in enumerate(tensors)
        ]
        self._given: dict[Any, int] = {}
        """The sizes that are a symbol alone, by it."""
        for tensor, expressions in zip(tensors, self._expressions, strict=True):
            for size, expression in zip(tensor.shape, expressions, strict=True):
                if _is_symbol(expression):
                    self._given.setdefault(expression, size)

    def resized(self, change: _Resize) -> list[torch.Tensor]:
        """Return the tensors with other sizes, and with them all sizes that are tied to these."""
        asked = {self._expressions[place][dim]: size for (place, dim), size in change.sizes.items()}
        now = {symbol: size for symbol, size in asked.items() if symbol in self._given}
        before = {self._given[symbol]: size for symbol, size in now.items()}
        for expressions in self._expressions:
            if now.keys().isdisjoint(symbol for each in expressions for symbol in _symbols(each)):
                free = [each for each in expressions if each in self._given and self._given[each] in before]
                now |= {each: before[self._given[each]] for each in free}
        return [self._with_sizes(place, tensor, change, now) for place, tensor in enumerate(self._tensors)]

    def _with_sizes(
        self, place: int, tensor: torch.Tensor, change: _Resize, now: Mapping[Any, int]
    ) -> torch.Tensor:
        for dim, expression in enumerate(self._expressions[place]):
            size = change.sizes.get((place, dim), tensor.shape[dim])
            if expression in now:
                size = now[expression]
            elif not now.keys().isdisjoint(_symbols(expression)):
                value = expression.subs({**self._given, **now})
                size = int(value) if value.is_Integer and value > 0 else size
            if size != tensor.shape[dim]:
                tensor = _resized(tensor, dim=dim, size=size)
        return tensor


def _is_symbol(expression: Any) -> bool:
    """Tell whether the expression of a size is a symbol: of a graph, or a name where no graph is known."""
    return isinstance(expression, str) or bool(getattr(expression, "is_Symbol", False))


def _symbols(expression: Any) -> Iterable[Any]:
    return {expression} if isinstance(expression, str) else getattr(expression, "free_symbols", ())


def vocabulary_of(model: torch.nn.Module) -> int | None:
    """Return how many token ids a graph takes: the rows of the embedding that an input is looked up in.

    ``None`` if there is no such embedding, or the model is not a graph; the least if there are several.
    """
    if not isinstance(model, GraphModule):
        return None
    modules = modules_by_path(model)
    sizes = [
        module.num_embeddings
        for node in model.graph.find_nodes(op="call_module")
        if isinstance(module := modules.get(str(node.target)), torch.nn.Embedding)
        and node.args
        and _is_input(node.args[0])
    ]
    return min(sizes, default=None)


def _is_input(value: Any) -> bool:
    """Tell whether a node is a placeholder, or elements of one, in any shape or dtype."""
    while isinstance(value, Node) and value.args and (moves_elements(value) or casts(value)):
        value = value.args[0]
    return isinstance(value, Node) and value.op == "placeholder"


def _changes(tensors: list[torch.Tensor], vocabulary: int | None) -> Iterator[tuple[str, Change | _Resize]]:
    # The same variants each time, so that a verdict can be repeated.
    generator = torch.Generator().manual_seed(0)
    yield "other values", lambda tensor: _with_other_values(tensor, generator)
    if vocabulary is not None:
        tokens = vocabulary
        yield "other tokens", lambda tensor: _with_other_tokens(tensor, tokens, generator)
    batch = {tensor.shape[0] for tensor in tensors if tensor.dim()}
    if len(batch) == 1 and (size := batch.pop()) > 0:
        for other in (1, 2 * size + 1, 8 * size + 1):
            places = ((place, 0) for place, tensor in enumerate(tensors) if tensor.dim())
            yield f"batch of {other}", _Resize(dict.fromkeys(places, other))
    has_length = _is_text if any(map(_is_text, tensors)) else _is_sequence
    lengths = {tensor.shape[1] for tensor in tensors if has_length(tensor)}
    if len(lengths) == 1 and (length := lengths.pop()) > 1:
        for other in sorted({length // 2, 2 * length - 1, 4 * length + 1, max(PAST_INT8, 2 * length)}):
            places = ((place, 1) for place, tensor in enumerate(tensors) if has_length(tensor))
            yield f"length {other}", _Resize(dict.fromkeys(places, other))
    images = {tuple(t.shape[-2:]) for t in tensors if t.dim() in (4, 5) and t.is_floating_point()}
    if len(images) == 1 and min(image := images.pop()) > 1:
        height, width = image
        for other in (height // 2, height + 1):
            yield f"height {other}", _image_size(tensors, image, (other, width))
        for other in (width // 2, width + 1):
            yield f"width {other}", _image_size(tensors, image, (height, other))
        both = 2 * height - 1, 2 * width - 1
        yield f"size {both[0]} x {both[1]}", _image_size(tensors, image, both)
    yield "half masked", _half_masked
    yield (
        "left half masked",
        lambda tensor: _half_masked(tensor.flip(-1)).flip(-1) if tensor.dim() else tensor,
    )
    yield "masked by row", _masked_by_row
    yield "large values", partial(_times, factor=LARGE)
    yield "very large values", partial(_times, factor=VERY_LARGE)
    yield "zeros", lambda tensor: torch.zeros_like(tensor) if tensor.is_floating_point() else tensor
    yield "a NaN", _with_nan


def _times(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    return tensor * factor if tensor.is_floating_point() else tensor


def _with_other_tokens(tensor: torch.Tensor, vocabulary: int, generator: torch.Generator) -> torch.Tensor:
    if not _is_text(tensor) or _is_mask(tensor) or tensor.numel() < 2 or int(tensor.max()) >= vocabulary:
        return tensor
    drawn = torch.randint(vocabulary, tensor.shape, generator=generator, device="cpu")
    # The ends of the vocabulary, where a wrong size of an embedding shows.
    drawn.view(-1)[0], drawn.view(-1)[-1] = vocabulary - 1, 0
    return drawn.to(tensor)


def _with_other_values(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if _is_mask(tensor) or tensor.numel() < 2:
        return tensor
    if tensor.is_floating_point():
        drawn = torch.randn(tensor.shape, generator=generator, device="cpu")
        wide = to_float64(tensor)
        return (drawn.to(wide.device) * wide.std() + wide.mean()).to(tensor)
    order = torch.randperm(tensor.numel(), generator=generator, device="cpu").to(tensor.device)
    return tensor.flatten()[order].reshape(tensor.shape)


def _resized(tensor: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """Return a tensor of another size, its elements over and over."""
    if not tensor.dim():
        return tensor
    return tensor.index_select(dim, torch.arange(size, device=tensor.device) % tensor.shape[dim])


def _half_masked(tensor: torch.Tensor) -> torch.Tensor:
    if not _masks_tokens(tensor):
        return tensor
    return _masked_from(tensor, tensor.shape[1] - tensor.shape[1] // 2)


def _masked_by_row(tensor: torch.Tensor) -> torch.Tensor:
    if not _masks_tokens(tensor):
        return tensor
    # At least one token of each row stays, as attention over none gives NaN.
    ends = 1 + torch.arange(tensor.shape[0], device="cpu") * 3 % tensor.shape[1]
    return _masked_from(tensor, ends[:, None])


def _masked_from(tensor: torch.Tensor, ends: int | torch.Tensor) -> torch.Tensor:
    return tensor * (torch.arange(tensor.shape[1], device="cpu") < ends).to(tensor)


def _masks_tokens(tensor: torch.Tensor) -> bool:
    return _is_text(tensor) and _is_mask(tensor) and bool(tensor.any())


def _is_mask(tensor: torch.Tensor) -> bool:
    """Tell whether there is nothing but zeros and ones."""
    return (
        not tensor.is_floating_point()
        and not tensor.is_complex()
        and bool(((tensor == 0) | (tensor == 1)).all())
    )


def _is_text(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and not tensor.is_floating_point()


def _is_sequence(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 3 and tensor.is_floating_point()


def _image_size(tensors: list[torch.Tensor], size: tuple[int, ...], other: tuple[int, int]) -> _Resize:
    """Change the size of each tensor that has a number for each place of images of one size."""
    places = [place for place, t in enumerate(tensors) if t.dim() > 2 and tuple(t.shape[-2:]) == size]
    return _Resize({(place, tensors[place].dim() - 2 + n): other[n] for place in places for n in (0, 1)})


def _with_nan(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    result = tensor.clone(memory_format=torch.contiguous_format)
    result.view(-1)[tensor.numel() // 2] = math.nan
    return result


def _are_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and (a.is_meta or torch.equal(a, b))


def _plain(inputs: Inputs) -> Any:
    """Return inputs in containers alone: objects, such as caches, are taken apart."""
    return flatten_objects(inputs if isinstance(inputs, torch.Tensor | tuple | list) else dict(inputs))


def _with_tensors(inputs: Inputs, tensors: list[torch.Tensor]) -> Inputs:
    rest = iter(tensors)
    result: Inputs = unflatten_objects(map_tensors(lambda *_: next(rest), _plain(inputs)))
    return result
