"""Reasons why a module must not be replaced by another that computes the same."""

import torch
from torch import nn

from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.journal.module_tree import find_module

_HOOKS = {
    "_forward_hooks": "a forward hook",
    "_forward_pre_hooks": "a forward-pre hook",
    "_backward_hooks": "a backward hook",
    "_backward_pre_hooks": "a backward-pre hook",
}
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def why_not_replaceable(facts: GraphFacts, path: str, expected: type[nn.Module]) -> str:
    """Return why a module cannot be replaced without anybody noticing; empty if it can.

    Parameters
    ----------
    facts
        What is known of the graph module.
    path
        The path of the module.
    expected
        The class whose ``forward`` the replacement would compute; a subclass may compute something else.
    """
    module = find_module(facts.graph_module, path)
    if module is None:
        return f"there is no module at {path!r}"
    return (
        why_not_plain(module, expected)
        or _why_not_alone(facts, module, path)
        or why_hooked(facts, module)
        or _why_tensors_not_plain(module)
        or _why_tensors_shared(facts, module, path)
    )


def why_not_plain(module: nn.Module, expected: type[nn.Module]) -> str:
    """Return why a module may not compute what its class does; empty if it does."""
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "its parameters are parametrized"
    if type(module) is not expected:
        return f"it is a {type(module).__name__}, which may compute something else than {expected.__name__}"
    if "forward" in vars(module):
        return "its forward has been replaced"
    return ""


def why_mixed(*modules: nn.Module) -> str:
    """Return why the floating-point tensors of childless modules cannot be combined; empty if they can."""
    tensors = [
        tensor
        for module in modules
        for tensor in (*module._parameters.values(), *module._buffers.values())
        if tensor is not None and tensor.is_floating_point()
    ]
    dtypes = {tensor.dtype for tensor in tensors}
    devices = {tensor.device for tensor in tensors}
    if len(dtypes) > 1:
        return f"the dtypes are mixed: {', '.join(sorted(str(d).removeprefix('torch.') for d in dtypes))}"
    if len(devices) > 1:
        return f"the devices are mixed: {', '.join(sorted(map(str, devices)))}"
    return ""


def _why_not_alone(facts: GraphFacts, module: nn.Module, path: str) -> str:
    calls = facts.calls[path]
    if calls > 1:
        return f"it is called {calls} times"
    others = [other for other in facts.paths.get(module, ()) if other != path]
    if others:
        return f"it is shared: it is {others[0]!r} too"
    parent = facts.called_parent(path)
    if parent is not None:
        return f"it is part of {parent!r}, which is called as a whole"
    foreign = facts.foreign_parent(path)
    if foreign is not None:
        return f"it is part of a {type(foreign).__name__} that may be in use elsewhere"
    return ""


def why_hooked(facts: GraphFacts, module: nn.Module) -> str:
    """Return which hook sees a call of a module, or a gradient; empty if none does."""
    if facts.has_global_hooks:
        return "hooks are registered for all modules"
    for attribute, what in _HOOKS.items():
        if getattr(module, attribute, None):
            return f"it has {what}"
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return f"its {name} has a gradient hook"
    return ""


def _why_tensors_not_plain(module: nn.Module) -> str:
    expected = {"weight", "bias"}
    strange = [
        *(module._parameters.keys() - expected),
        *(expected - module._parameters.keys()),
        *module._modules,
    ]
    if strange:
        return f"its {strange[0]} is not what its class has"
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        if type(parameter) is not nn.Parameter or parameter.layout is not torch.strided:
            return f"its {name} is not a plain dense parameter"
        if parameter.dtype not in _DTYPES:
            return f"its {name} is of dtype {str(parameter.dtype).removeprefix('torch.')}"
    return ""


def _why_tensors_shared(facts: GraphFacts, module: nn.Module, path: str) -> str:
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        holders = facts.holders(tensor, path, name) if tensor is not None else []
        if holders:
            holder = holders[0].lstrip(".")
            return f"its {name} is used elsewhere too, by {holder}"
    return ""
