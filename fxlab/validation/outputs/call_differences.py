"""Differences of two calls other than in numbers, such as aliases and classes, for the verdict."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

from fxlab.base.words import listed
from fxlab.models.running.call_record import CallRecord, Layout, Place
from fxlab.values.plain_parts import PlainPart

RANDOM_NUMBERS, TYPE, VALUE = "random numbers", "type of ", "value of "
"""The row of the draws of two calls, and the prefixes of the rows of classes and plain values."""


def shared_otherwise(
    ours: CallRecord, theirs: CallRecord, common: Container[str], later: Container[str] = ()
) -> Iterator[tuple[Place, str]]:
    """Yield each output that shares memory in only one of two calls, and the other owner, in words.

    ``ours``, ``theirs``: the calls of the original and of the transformed model, in the names of the
    original. ``common``: the names of the tensors that both models hold. One that only one of them holds
    stands for any other such: a pass may hold weights in another form. ``later``: outputs that are left
    aside, as they get their memory only after the call.
    """

    def keyed(record: CallRecord) -> dict[tuple[Place, Place], Place]:
        return {(one, anonymous(other)): other for one, other in record.shared if is_in_both(one, other)}

    def anonymous(place: Place) -> Place:
        return place._replace(path="") if place.kind == "state" and place.path not in common else place

    def is_in_both(*places: Place) -> bool:
        outputs = (place.path for place in places if place.kind == "output")
        return all(path in ours.layouts and path in theirs.layouts and path not in later for path in outputs)

    before, after = keyed(ours), keyed(theirs)
    for pair in sorted(after.keys() - before.keys()):
        yield pair[0], f"{pair[0]} shares memory with {after[pair]}; the original's does not"
    for pair in sorted(before.keys() - after.keys()):
        yield pair[0], f"{pair[0]} shares no memory with {before[pair]}; the original's does"


def aliasing_notes(
    ours: CallRecord, theirs: CallRecord, common: Container[str], later: Container[str]
) -> Iterator[str]:
    """Yield a note on outputs whose shared memory is not compared; see :func:`shared_otherwise`."""
    told = {place.path for place, _ in shared_otherwise(ours, theirs, common, later)}
    if left := {place.path for place, _ in shared_otherwise(ours, theirs, common)} - told:
        yield (
            f"{listed(sorted(left))}: shared memory is not compared, as AOTAutograd makes such views of "
            "inputs only after its graph has run"
        )


def other_parts(ours: CallRecord, theirs: CallRecord) -> Iterator[tuple[str, str]]:
    """Yield a row and a reason for each class and plain value in which two outputs differ.

    Contents of a container that differs itself are skipped, and so are tensors that only one has.
    """
    found: list[str] = []
    for path in dict.fromkeys([*ours.parts, *theirs.parts]):
        if any(path.startswith(f"{above}.") or not above for above in found):
            continue
        a, b = ours.parts.get(path), theirs.parts.get(path)
        if a is not None and b is not None:
            if not a.is_like(b):
                found.append(path)
                yield _difference(path or "output", a, b)
        elif (path or "output") not in (theirs if a is None else ours).layouts:
            found.append(path)
            yield VALUE + path, f"only the {'transformed' if a is None else 'original'} has it"


def _difference(path: str, a: PlainPart, b: PlainPart) -> tuple[str, str]:
    ours, theirs = a.cls.__qualname__, b.cls.__qualname__
    if (ours, a.cls.__module__) != (theirs, b.cls.__module__):
        if ours == theirs:
            ours, theirs = (f"{part.cls.__module__}.{part.cls.__qualname__}" for part in (a, b))
        return TYPE + path, f"it is of class {theirs}, the original's of {ours}"
    if a.keys:
        return VALUE + path, f"its keys are {_short(b.keys)}, the original's {_short(a.keys)}"
    return VALUE + path, f"it is {_short(b.value)}, the original's {_short(a.value)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:77]}..."


def is_fact(path: str) -> bool:
    """Tell whether a row is of a fact about the call, and not of a tensor."""
    return path == RANDOM_NUMBERS or path.startswith((TYPE, VALUE))


def other_random_numbers(ours: CallRecord, theirs: CallRecord) -> str:
    """Return in words how the draws of two calls differ, from the same seed; empty if they do not."""
    if ours.generators.are(theirs.generators):
        return ""
    if not ours.draws:
        return "the transformed model draws random numbers, the original draws none"
    if not theirs.draws:
        return "the original draws random numbers, the transformed model draws none"
    return "the transformed model draws other random numbers than the original, or another number of them"


def stride_notes(ours: CallRecord, theirs: CallRecord) -> Iterator[str]:
    """Yield a note on outputs that have other strides, if there are any."""
    shapes = {path: layout.shape for path, layout in theirs.layouts.items()}
    paths = [path for path, layout in ours.layouts.items() if layout.shape == shapes.get(path)]
    both = [path for path in paths if ours.layouts[path].layout is theirs.layouts[path].layout]
    strided = [path for path in both if _seen_strides(ours, path) != _seen_strides(theirs, path)]
    if strided:
        first = strided[0]
        yield (
            f"{listed(strided)}: the strides are {theirs.layouts[first].strides}, "
            f"the original's {ours.layouts[first].strides}"
        )


def gradient_notes(ours: Mapping[str, bool], theirs: Mapping[str, bool]) -> Iterator[str]:
    """Yield a note on outputs from which gradients would flow in one of two models alone."""
    for before, flows, others in ((True, "no gradients", "do"), (False, "gradients", "do not")):
        known = [path for path, flow in ours.items() if flow is before and path in theirs]
        if those := [path for path in known if theirs[path] is not before]:
            yield f"{listed(those)}: {flows} would flow from it; the original's {others}"


def _seen_strides(record: CallRecord, path: str) -> Any:
    layout: Layout = record.layouts[path]
    seen = zip(layout.shape, layout.strides, strict=False)
    return [] if 0 in layout.shape else [stride for size, stride in seen if size > 1]
