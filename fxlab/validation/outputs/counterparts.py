"""Names of one model for inputs and tensors of another, so that tables use the same names for both."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from fxlab.models.running.call_record import Place
from fxlab.models.running.running import Inputs, argument_names, given_arguments
from fxlab.models.state.tensor_state import named_tensors, place_of, plain_name
from fxlab.validation.outputs.computed_tensors import GRADIENT, INPUT, STATE, Observed
from fxlab.values.tensors import is_plain


@dataclass(frozen=True)
class Counterparts:
    """The names that the original has for the inputs and tensors of a transformed model."""

    inputs: Mapping[str, str]
    """Inputs, by their place in the call."""
    state: Mapping[str, str]
    """Parameters, buffers and other tensors: the same memory, or else the same name."""
    outputs: Mapping[str, str] | None = None
    """Outputs by their path, if the model is another one: those that are compared, by the name in the answer.

    Then memory that is shared, containers around tensors, and writes without a counterpart do not count.
    """
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    """The dtypes in which outputs are compared, by their name in the answer, where they are not their own."""

    @classmethod
    def of(cls, original: nn.Module, transformed: nn.Module, inputs: Inputs) -> "Counterparts":
        """Find them."""
        count = len(given_arguments(inputs)[0])
        names = (argument_names(model, count) for model in (transformed, original))
        return cls(dict(zip(*names, strict=True)), same_tensors(original, transformed))

    def row(self, path: str) -> str:
        """Return the row of a table that stands for the same as a row of the transformed model."""
        for prefix, names in self._names:
            if path.startswith(prefix):
                return prefix + _renamed(path.removeprefix(prefix), names)
        return path

    def own_row(self, path: str) -> str:
        """Return the row of the transformed model that :meth:`row` gives this one for."""
        inputs, state = ({new: old for old, new in names.items()} for names in (self.inputs, self.state))
        return Counterparts(inputs, state).row(path)

    def rows(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return tensors by their rows, named so; of another model those that have a counterpart."""
        return {
            self.row(path): tensor
            for path, tensor in tensors.items()
            if self.outputs is None or self.has_counterpart(path)
        }

    def has_counterpart(self, path: str) -> bool:
        """Tell whether a row of something written stands for a known tensor of the original."""
        return any(
            path.startswith(prefix) and _known(path.removeprefix(prefix), names) is not None
            for prefix, names in self._names
        )

    def named(self, observed: Observed) -> Observed:
        """Return the results and writes of a run of the transformed model, named so."""
        record = observed.record.with_names(self.place)
        if self.outputs is not None:
            record = record.of_numbers_alone()
        return replace(
            observed,
            returned={
                name: tensor.to(self.dtypes.get(name, tensor.dtype))
                for name, tensor in self.picked(observed.returned).items()
            },
            written=self.rows(observed.written),
            record=record,
            unwritten=lambda path: observed.unwritten(self.own_row(path)),
        )

    def picked(self, returned: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the outputs that are compared, by the name that they have there."""
        if self.outputs is None:
            return dict(returned)
        return {name: returned[path] for path, name in self.outputs.items()}

    @property
    def _names(self) -> tuple[tuple[str, Mapping[str, str]], ...]:
        return (INPUT, self.inputs), (STATE, self.state), (GRADIENT, self.inputs)

    def place(self, place: Place) -> Place:
        """Return the place in the original that is the same as one in the transformed model."""
        names = {"input": self.inputs, "state": self.state}.get(place.kind, {})
        return place._replace(path=_renamed(place.path, names))


def _renamed(path: str, names: Mapping[str, str]) -> str:
    """Return a path that begins with another name where its own is known."""
    known = _known(path, names)
    return path if known is None else names[known] + path.removeprefix(known)


def _known(path: str, names: Mapping[str, str]) -> str | None:
    """Return the known name that a path begins with."""
    return path if path in names else next((n for n in names if path.startswith(f"{n}.")), None)


def same_tensors(original: nn.Module, transformed: nn.Module) -> dict[str, str]:
    """Return the first name that the original has for each tensor of another model that it has too."""
    first, by_name = dict[object, str](), dict[str, str]()
    for name, tensor in named_tensors(original):
        by_name[plain_name(original, name)] = first.setdefault(_identity(tensor), name)
    found = (
        (name, first.get(_identity(tensor), by_name.get(plain_name(transformed, name))))
        for name, tensor in named_tensors(transformed)
    )
    return {name: known for name, known in found if known is not None}


def _identity(tensor: torch.Tensor) -> object:
    has_place = is_plain(tensor) and not tensor.is_meta and tensor.numel() and tensor.layout is torch.strided
    return place_of(tensor) if has_place else id(tensor)
