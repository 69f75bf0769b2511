"""Models spread over ranks, for recorded passes: inputs are this rank's parts, which the step makes whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from fxlab.base.torch_private import pytree
from fxlab.models.parallel.placements import Layout, layout_of
from fxlab.steps.hooks import FsdpParameter, FsdpUnit, fsdp_units, replicas_of, without_fsdp_hooks
from fxlab.tracing.model_code.twin import Twin

_EXCHANGES = torch.ops._c10d_functional


def _waited(start: torch.Tensor) -> torch.Tensor:
    return _EXCHANGES.wait_tensor.default(start)  # type: ignore[no-any-return]


def _averaged(group: str, size: int, gradient: torch.Tensor) -> torch.Tensor:
    """Average a gradient as DistributedDataParallel does: the products are rounded before the sum."""
    return _waited(_EXCHANGES.all_reduce.default(gradient * (1.0 / size), "sum", group))


class Sharding:
    """The way in which a model is spread over ranks."""

    _twin: Twin

    def __init__(self, model: nn.Module) -> None:
        tensors = dict((*model.named_parameters(remove_duplicate=False), *model.named_buffers()))
        self.layouts: dict[str, Layout] = {
            name: layout for name, value in tensors.items() if (layout := layout_of(value)) is not None
        }
        self._units = fsdp_units(model)
        self._replicas = replicas_of(model)
        parameters = [parameter for unit in self._units for parameter in unit.parameters]
        gathered = {(id(module), name) for each in parameters for module, name in each.places}
        by_name = {
            f"{path}.{name}" if path else name: (id(module), name)
            for path, module in model.named_modules()
            for name in module._parameters
        }
        self._of_fsdp = {name for name, key in by_name.items() if key in gathered}
        self._by_place = {by_name[name]: self.layouts[name] for name in self._of_fsdp}

    def of_twin(self, twin: Twin) -> Sharding:
        """Return this for the model's twin, without its hooks for communication."""
        self._twin = twin
        if self._units:
            without_fsdp_hooks(twin.model)
        if self._replicas is not None:
            # DistributedDataParallel.forward would synchronize through its reducer.
            vars(twin.model)["forward"] = twin.known(self._replicas.module)
        return self

    def held(self, name: str, part: torch.Tensor) -> torch.Tensor:
        """Return the model's tensor for the part of it on this rank."""
        layout = self.layouts.get(name)
        return part if layout is None or name in self._of_fsdp else layout.whole(part)

    def buffer(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value of a buffer at the beginning of the forward pass."""
        if self._replicas is None or not self._replicas.broadcasts:
            return value
        return _waited(_EXCHANGES.broadcast.default(value, 0, self._replicas.group.group_name))

    @contextmanager
    def averaging(self, parameters: Iterable[torch.Tensor]) -> Iterator[None]:
        """Average the gradients of parameters as they are computed, within the block."""
        with ExitStack() as hooks:
            if self._replicas is not None and self._replicas.averages:
                size = dist.get_world_size(self._replicas.group)
                average = partial(_averaged, self._replicas.group.group_name, size)
                for value in parameters:
                    hooks.enter_context(value.register_hook(average))  # type: ignore[no-untyped-call]
            yield

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Gather sharded parameters where modules of the twin read them, within the block."""
        if not self._units:
            yield
            return
        run = _Gathering(self._by_place)
        with ExitStack() as stack:
            for unit in self._units:
                stack.enter_context(run.of_unit(unit, self._twin.known))
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(run.pack, run.unpack))
            yield


@dataclass(frozen=True)
class _Freed:
    """Stands for a saved view of a gathered parameter, which is gathered again when read."""

    parameter: FsdpParameter
    place: Any
    """Its sizes, strides and offset in the memory of the parameter."""


class _Gathering:
    """The parameters that are gathered in one run."""

    def __init__(self, layouts: Mapping[tuple[int, str], Layout]) -> None:
        self._layouts = layouts
        self._known: dict[FsdpParameter, torch.Tensor] = {}
        self._parts: dict[FsdpParameter, torch.Tensor] = {}
        self._storages: dict[int, tuple[FsdpParameter, torch.Tensor]] = {}
        self._again: dict[FsdpParameter, torch.Tensor] = {}

    @contextmanager
    def of_unit(self, unit: FsdpUnit, twin_of: Callable[[nn.Module], nn.Module]) -> Iterator[None]:
        """Make modules read a unit's gathered parameters, and cast inputs and outputs by its policy."""
        classes: dict[nn.Module, type] = {}
        handles = []
        try:
            for parameter in unit.parameters:
                for module, name in parameter.places:
                    twin = twin_of(module)
                    classes.setdefault(twin, type(twin))
                    # A property of the class precedes nn.Module.__getattr__, which reads the registry.
                    read = property(partial(self._read, name=name, parameter=parameter))
                    own = {name: read, "__module__": type(twin).__module__}
                    twin.__class__ = type(type(twin).__name__, (type(twin),), own)
            for module in map(twin_of, unit.modules):
                handles += self._casts(module, unit)
            end = twin_of(unit.modules[-1]).register_forward_hook(partial(self._free, unit), always_call=True)
            handles.append(end)
            yield
        finally:
            for handle in handles:
                handle.remove()
            for twin, its_class in classes.items():
                twin.__class__ = its_class

    def _casts(self, module: nn.Module, unit: FsdpUnit) -> list[Any]:
        handles: list[Any] = []

        def cast_inputs(_: object, *args_and_kwargs: Any) -> Any:
            return pytree.tree_map(partial(_cast, unit.input_dtype), args_and_kwargs)

        def cast_output(_: object, args: object, output: Any) -> Any:
            return pytree.tree_map(partial(_cast, unit.output_dtype), output)

        if unit.input_dtype is not None:
            handles.append(module.register_forward_pre_hook(cast_inputs, with_kwargs=True, prepend=True))
        if unit.output_dtype is not None:
            handles.append(module.register_forward_hook(cast_output))
        return handles

    def _read(self, module: nn.Module, *, name: str, parameter: FsdpParameter) -> torch.Tensor:
        if parameter not in self._known:
            part = module._parameters[name]
            assert part is not None
            whole = self._gather(part, parameter)
            self._known[parameter], self._parts[parameter] = whole, part
            if parameter.is_freed and parameter.tensor_parallel is None:
                # Saved views of it are recognised by their memory.
                self._storages[whole.untyped_storage()._cdata] = parameter, whole
        return self._known[parameter]

    def _free(self, unit: FsdpUnit, *_: object) -> None:
        for parameter in unit.parameters:
            if parameter.is_freed:
                self._known.pop(parameter, None)

    def _gather(self, part: torch.Tensor, parameter: FsdpParameter) -> torch.Tensor:
        module, name = parameter.places[0]
        layout = self._layouts[id(module), name]
        found: torch.Tensor = _Gather.apply(part, parameter, layout)  # type: ignore[no-untyped-call]
        if parameter.tensor_parallel is None:
            return found
        mesh, placements = parameter.tensor_parallel
        whole: torch.Tensor = replace(layout, mesh=mesh, placements=placements).whole(found)
        return whole

    def pack(self, tensor: torch.Tensor) -> Any:
        """Return the value to save for the backward pass in place of a tensor."""
        known = None
        if layout_of(tensor) is None and tensor.layout is torch.strided:
            known = self._storages.get(tensor.untyped_storage()._cdata)
        if known is None:
            return tensor
        return _Freed(known[0], (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()))

    def unpack(self, saved: Any) -> torch.Tensor:
        """Return a saved tensor."""
        if not isinstance(saved, _Freed):
            return saved  # type: ignore[no-any-return]
        parameter = saved.parameter
        if parameter not in self._again:
            with torch.no_grad():
                self._again[parameter] = self._gather(self._parts[parameter].detach(), parameter)
        whole = self._again[parameter]
        # Linear layers save a transposed weight, which as_strided would hide from readers of the graph.
        for view in (whole, whole.t()) if whole.dim() == 2 else (whole,):
            if (tuple(view.shape), view.stride(), view.storage_offset()) == saved.place:
                return view
        return whole.as_strided(*saved.place)


class _Gather(torch.autograd.Function):
    """Gather a parameter; the backward pass averages its gradient, and keeps the part of this rank.

    As in ``fully_shard``, a gradient is reduced in one dtype, over ranks that share it, then over replicas.
    """

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, parameter: FsdpParameter, layout: Layout) -> torch.Tensor:
        from torch.distributed.tensor import Replicate

        ctx.of = parameter, layout, part.dtype
        whole = layout.whole(part if parameter.dtype is None else part.to(parameter.dtype))
        placements = [*[Replicate()] * parameter.mesh_dims, *layout.placements[parameter.mesh_dims :]]
        gathered: torch.Tensor = whole.redistribute(placements=placements).to_local()
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        from torch.distributed.tensor import Partial

        parameter, layout, dtype = ctx.of
        if parameter.reduce_dtype is not None:
            gradient = gradient.to(parameter.reduce_dtype)
        *repeats, _ = range(parameter.mesh_dims)
        placements = list(layout.placements)
        placements[len(repeats)] = Partial("avg")
        summed = replace(layout, placements=tuple(placements)).whole(gradient.contiguous())
        part: torch.Tensor = summed.redistribute(placements=layout.placements).to_local()
        for dim in repeats:
            part = _waited(_EXCHANGES.all_reduce.default(part, "avg", layout.mesh.get_group(dim).group_name))
        return part.to(dtype), None, None


def _cast(dtype: torch.dtype | None, value: Any) -> Any:
    is_floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if is_floating else value
