"""Modules of a graph module that only hold others: the graph never calls them."""

from typing import Any, NoReturn

from torch import nn


class Container(nn.Module):
    """A module whose ``forward`` became nodes of the graph; it refuses hooks, which would never run."""

    def _refuse_hook(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "The graph does not call this module, so a hook would never run: what its forward does is nodes "
            "of the graph. Register it before the model is traced, or on a module that the graph calls; "
            "leaf_modules of fxlab.symbolic_trace keeps a module whole."
        )

    register_forward_hook = _refuse_hook
    register_forward_pre_hook = _refuse_hook
    register_backward_hook = _refuse_hook
    register_full_backward_hook = _refuse_hook
    register_full_backward_pre_hook = _refuse_hook


def is_container(module: nn.Module) -> bool:
    """Tell whether a module has no ``forward``: one of fxlab's, or a bare one of torch's."""
    return type(module) in (nn.Module, Container)


def close_containers(module: nn.Module) -> None:
    """Make the bare modules in an unshared module refuse hooks."""
    for part in module.modules():
        if type(part) is nn.Module:
            part.__class__ = Container
