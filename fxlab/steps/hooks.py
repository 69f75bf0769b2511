"""Private attributes of ``fully_shard`` and ``DistributedDataParallel``, for the steps of spread models."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from fxlab.tracing.report import TraceError

_FSDP = "torch.distributed.fsdp"
_AVERAGED = (torch.float32, torch.bfloat16)
"""Gradient dtypes that are averaged in one collective; others are divided before and after."""


@dataclass(frozen=True)
class FsdpParameter:
    """A parameter that ``fully_shard`` has sharded."""

    places: tuple[tuple[nn.Module, str], ...]
    """The modules that hold it, and its names there."""
    mesh_dims: int
    """The number of data-parallel dimensions of its mesh, which come first."""
    dtype: torch.dtype | None
    """The dtype of the gathered parameter, if it differs."""
    reduce_dtype: torch.dtype | None
    """The dtype in which its gradient is reduced, if it differs."""
    tensor_parallel: Any
    """Mesh and placements of the gathered parameter, if it is also sharded in another way."""
    is_freed: bool
    """Whether it is gathered again for the backward pass."""


@dataclass(frozen=True)
class FsdpUnit:
    """Modules on which ``fully_shard`` was called, and the parameters that it gathers together."""

    modules: tuple[nn.Module, ...]
    parameters: tuple[FsdpParameter, ...]
    input_dtype: torch.dtype | None
    output_dtype: torch.dtype | None


@dataclass(frozen=True)
class Replicas:
    """The process group that averages the gradients of ``DistributedDataParallel``."""

    module: nn.Module
    """The wrapped module."""
    group: Any
    broadcasts: bool
    """Whether each forward pass begins with the buffers of the first rank."""
    averages: bool
    """Whether gradients are averaged; not within ``no_sync()``."""


def fsdp_units(model: nn.Module) -> list[FsdpUnit]:
    """Return the units of ``fully_shard``; raises TraceError if a step of them cannot be recorded."""
    fsdp_module = getattr(dist.fsdp, "FSDPModule", None) if _is_there(model) else None
    if fsdp_module is None:
        return []
    found = [module._get_fsdp_state() for module in model.modules() if isinstance(module, fsdp_module)]
    states = list({id(state): state for state in found}.values())
    return [_unit(state, is_root=number == 0) for number, state in enumerate(states)]


def _is_there(model: nn.Module) -> bool:
    """Tell whether a model contains a module of FSDP, so that its package is imported."""
    names = {base.__module__ for module in model.modules() for base in type(module).__mro__}
    if any(name.startswith(f"{_FSDP}.fully_sharded") for name in names):
        raise TraceError(
            "The model is sharded by FullyShardedDataParallel, whose flat parameters a graph cannot name. "
            "Shard it with torch.distributed.fsdp.fully_shard, and trace that."
        )
    return any(name.startswith(_FSDP) for name in names)


def _unit(state: Any, *, is_root: bool) -> FsdpUnit:
    # Some versions of torch keep one group for each state, others several.
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [group] if (group := state._fsdp_param_group) is not None else []
    policy = state._mp_policy
    # By default, the root stays gathered after the forward pass, as the backward pass begins with it.
    is_kept = is_root and getattr(state, "_auto_reshard_after_forward", False)
    parameters = [_parameter(one, group, is_kept=is_kept) for group in groups for one in group.fsdp_params]
    is_cast = policy.cast_forward_inputs
    return FsdpUnit(
        tuple(state._modules), tuple(parameters), policy.param_dtype if is_cast else None, policy.output_dtype
    )


def _parameter(one: Any, group: Any, *, is_kept: bool) -> FsdpParameter:
    info = one._module_info
    name = info.param_name
    is_another = (
        one.offload_to_cpu
        or getattr(group, "gradient_divide_factor", None) is not None
        or getattr(group, "force_sum_reduction_for_comms", False)
        or group._all_reduce_hook is not None
        or not (group.reduce_grads and group.all_reduce_grads)
        or hasattr(one.sharded_param.to_local(), "fsdp_pre_all_gather")
    )
    policy, own = group.mp_policy, one.sharded_param.dtype
    dtype = policy.param_dtype if own.is_floating_point else None
    dtype, reduced = (None if dtype == own else dtype), policy.reduce_dtype
    if is_another or (reduced or dtype or own) not in _AVERAGED:
        raise TraceError(
            f"fully_shard gathers or reduces {name!r} in a way of its own (offloading, a factor or hook of "
            "its own, no reduction, or float16). Trace with its defaults, with float32 or bfloat16."
        )
    if getattr(info.module, name) is not one.sharded_param:
        raise TraceError(
            f"fully_shard holds {name!r} gathered at present, as after a forward pass without a backward "
            "pass. Call model.reshard() on each of its modules first."
        )
    spec = getattr(one, "_unsharded_dtensor_spec", None) or getattr(one, "_tp_spec", None)
    apart = None if spec is None else (spec.mesh, spec.placements)
    others = zip(info.shared_modules, info.shared_param_names, strict=True)
    return FsdpParameter(
        ((info.module, name), *others),
        one.sharded_param.device_mesh.ndim - (0 if apart is None else apart[0].ndim),
        dtype,
        None if reduced == (dtype or own) else reduced,
        apart,
        group.post_forward_mesh_info is not None and not is_kept,
    )


def without_fsdp_hooks(model: nn.Module) -> None:
    """Remove the hooks of ``fully_shard`` from a copy of a model."""
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key, hook in list(hooks.items()):
                owners = type(getattr(hook, "__self__", hook)), hook
                if any(str(getattr(owner, "__module__", "")).startswith(_FSDP) for owner in owners):
                    del hooks[key]


def replicas_of(model: nn.Module) -> Replicas | None:
    """Return how a ``DistributedDataParallel`` averages gradients; TraceError for custom ways."""
    ddp_class = getattr(nn.parallel, "DistributedDataParallel", ())
    inner = [name for name, module in model.named_modules() if isinstance(module, ddp_class)]
    if not inner:
        return None
    if inner != [""]:
        raise TraceError(
            f"{inner[-1]!r} is a DistributedDataParallel inside of the model. Put it around the whole model."
        )
    ddp: Any = model
    if getattr(ddp, "_comm_hooks", None) or getattr(ddp, "mixed_precision", None) is not None:
        raise TraceError(
            "DistributedDataParallel has a communication hook or a mixed precision of its own, which a graph "
            "would leave out. Trace without it."
        )
    broadcasts = ddp.broadcast_buffers and ddp.require_forward_param_sync
    return Replicas(ddp.module, ddp.process_group, broadcasts, ddp.require_backward_grad_sync)
