"""Reasons why a pass must not replace a module by another that computes the same."""

from collections.abc import Collection, Iterable

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators.node_info import dtype_name
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.journal.module_tree import find_module
from fxlab.values.tensors import is_plain

_HOOKS = {
    "_forward_hooks": "a forward hook",
    "_forward_pre_hooks": "a forward-pre hook",
    "_backward_hooks": "a backward hook",
    "_backward_pre_hooks": "a backward-pre hook",
}
PARAMETERS = ("weight", "bias")
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def why_not_replaceable(facts: GraphFacts, path: str, expected: type[nn.Module]) -> Refusal | None:
    """Return why a module cannot be replaced unnoticed; ``None`` if it can.

    Parameters
    ----------
    facts
        The facts about the graph module.
    path
        The path of the module.
    expected
        The class whose ``forward`` the replacement would compute; a subclass may compute something else.
    """
    module = find_module(facts.graph_module, path)
    if module is None:
        return Reason.NO_MODULE(path=path)
    return (
        why_not_plain(module, expected)
        or why_not_alone(facts, module, path)
        or why_hooked(facts, module)
        or _why_tensors_not_plain(module)
        or why_tensors_shared(facts, module, path)
    )


def why_not_plain(module: nn.Module, expected: type[nn.Module]) -> Refusal | None:
    """Return why a module may compute something else than its class; ``None`` if it does not."""
    if torch.nn.utils.parametrize.is_parametrized(module):
        return Reason.PARAMETRIZED()
    if type(module) is not expected:
        return Reason.UNEXPECTED_CLASS(found=type(module).__name__, expected=expected.__name__)
    if "forward" in vars(module):
        return Reason.FORWARD_REPLACED()
    return None


def why_mixed(*modules: nn.Module) -> Refusal | None:
    """Return why the floating-point tensors of childless modules cannot be combined; ``None`` if they can."""
    tensors = [
        tensor
        for module in modules
        for tensor in (*module._parameters.values(), *module._buffers.values())
        if tensor is not None and tensor.is_floating_point()
    ]
    devices = {tensor.device for tensor in tensors}
    if reason := why_mixed_dtypes(tensor.dtype for tensor in tensors):
        return reason
    if len(devices) > 1:
        return Reason.MIXED_DEVICES(devices=", ".join(sorted(map(str, devices))))
    return None


def why_mixed_dtypes(dtypes: Iterable[torch.dtype | None]) -> Refusal | None:
    """Return the reason that dtypes are not all the same; ``None`` if they are."""
    names = sorted({dtype_name(dtype) for dtype in dtypes})
    return Reason.MIXED_DTYPES(dtypes=", ".join(names)) if len(names) > 1 else None


def why_used_or_written(facts: GraphFacts, given: Collection[Node]) -> Refusal | None:
    """Return why nodes that read tensors must stay; ``None`` if nothing else reads or writes them."""
    for node in given:
        if len(node.users) > 1:
            return Reason.OTHER_USERS(value=node.name)
        if facts.writes.is_written(node):
            return Reason.WRITTEN_IN_PLACE(value=node.name)
    return None


def why_not_alone(facts: GraphFacts, module: nn.Module, path: str) -> Refusal | None:
    """Return who else calls or holds a module; ``None`` if nobody does."""
    if (calls := facts.calls[path]) > 1:
        return Reason.CALLED_REPEATEDLY(count=calls)
    if others := [other for other in facts.paths.get(module, ()) if other != path]:
        return Reason.SHARED_MODULE(path=others[0])
    if parent := facts.called_parent(path):
        return Reason.PARENT_CALLED(parent=parent)
    foreign = facts.foreign_parent(path)
    return None if foreign is None else Reason.PARENT_IN_USE(parent=type(foreign).__name__)


def why_hooked(facts: GraphFacts, module: nn.Module) -> Refusal | None:
    """Return which hook sees a call of a module, or a gradient; ``None`` if none does."""
    if facts.has_global_hooks:
        return Reason.GLOBAL_HOOKS()
    for attribute, hook in _HOOKS.items():
        if getattr(module, attribute, None):
            return Reason.HOOKED(hook=hook)
    hooked = (why_tensor_hooked(name, parameter) for name, parameter in module.named_parameters())
    return next((reason for reason in hooked if reason is not None), None)


def why_tensor_hooked(name: str, tensor: torch.Tensor) -> Refusal | None:
    """Refuse a tensor whose gradients a hook sees; ``None`` if no hook does."""
    if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
        return Reason.HOOKED(hook=f"a gradient hook on its {name}")
    return None


def _why_tensors_not_plain(module: nn.Module) -> Refusal | None:
    expected = {"weight", "bias"}
    strange = [
        *(module._parameters.keys() - expected),
        *(expected - module._parameters.keys()),
        *module._modules,
    ]
    if strange:
        return Reason.UNEXPECTED_ATTRIBUTE(attribute=strange[0])
    return why_parameters_not_plain(module)


def why_holds_more(holder: nn.Module, tensors: Collection[str]) -> Refusal | None:
    """Refuse a module that holds more, or less, than the tensors of one call; ``None`` if it does not."""
    held = [
        *(name for name, value in holder._parameters.items() if value is not None),
        *(name for name in holder._buffers if name != "num_batches_tracked"),
        *holder._modules,
    ]
    others = [name for name in held if name not in tensors]
    missing = [name for name in tensors if name not in held]
    return Reason.HOLDS_MORE(attribute=(others or missing)[0]) if others or missing else None


def why_parameters_not_plain(module: nn.Module) -> Refusal | None:
    """Return which parameter is unusual; ``None`` if none is."""
    for name, parameter in module._parameters.items():
        if parameter is not None and (reason := why_tensor_not_plain(name, parameter)):
            return reason
    for name in PARAMETERS:
        if name in module._buffers:
            return Reason.UNUSUAL_PARAMETER(parameter=name)
    return None


def why_tensor_not_plain(name: str, tensor: torch.Tensor) -> Refusal | None:
    """Return why new tensors cannot be made of a tensor; ``None`` if they can."""
    if not is_plain(tensor) or tensor.layout is not torch.strided:
        return Reason.UNUSUAL_PARAMETER(parameter=name)
    if tensor.dtype not in _DTYPES and (name in PARAMETERS or tensor.is_floating_point()):
        return Reason.DTYPE(value=f"its {name}", dtype=dtype_name(tensor.dtype))
    return None


def why_tensors_shared(
    facts: GraphFacts, module: nn.Module, path: str, own: Collection[str] = ()
) -> Refusal | None:
    """Return other holders of the memory of a module's tensors than ``own``; ``None`` if nobody does."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        holders = facts.holders(tensor, path, name) if tensor is not None else []
        others = [holder for holder in holders if holder not in own]
        if others:
            return Reason.SHARED_PARAMETER(parameter=name, holder=others[0].lstrip("."))
    return None
