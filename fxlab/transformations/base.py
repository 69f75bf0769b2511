"""The base classes of all transformations of a graph module: names, signatures, marks, and how they apply."""

import copy
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from fxlab.base.first_use import pd
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.models.graph_modules.graph_module import check_lints, ensure_picklable
from fxlab.transformations.candidate_filter import not_limitable
from fxlab.transformations.marks import add_mark, marks, remove_mark
from fxlab.transformations.signature import HELD, arguments_of, code_of, digest


class _OfClass:
    """A value made from the class; no property, so that an instance may have its own."""

    def __init__(self, make: Callable[[type], str]) -> None:
        self._make = make

    def __get__(self, instance: object, owner: type) -> str:
        return self._make(owner)


def _kebab_case(cls: type) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", cls.__name__).lower()


def _documentation(cls: type) -> str:
    text = (cls.__doc__ or "").strip()
    # A dataclass without a docstring is given its signature as one.
    return "" if text.startswith(f"{cls.__name__}(") else text


class Transformation(ABC):
    """A transformation of a ``torch.fx`` graph module, used by calling it.

    A subclass implements :meth:`transform`, and calls :meth:`mark_as_transformed` on the nodes it changes.
    Two instances with the same class and the same arguments are the same transformation: they have the same
    :attr:`signature`, and each knows the nodes that the other changed.

    Attributes
    ----------
    preserves_computation : bool
        Whether the transformed module computes the same, up to rounding. ``False`` unless a subclass says so.
    explains_by_running : bool
        Whether :meth:`explain` has to run it, on a copy. It is then explained on request, and in a page or
        report only while it is on.
    copies_on_write : bool
        Whether the transformation promises never to write into existing tensors or modules.
    makes_new_module : bool
        Whether it promises to leave the given module unchanged, and to return another one.
    name : str
        A short name for people: that of the class, in kebab case, unless a subclass or an instance has its
        own.
    description : str
        Its effect in words: the docstring of the class, unless a subclass or an instance has its own.

    Examples
    --------
    >>> class RemoveNothing(Transformation):
    ...     preserves_computation = True
    ...
    ...     def transform(self, graph_module):
    ...         return graph_module
    >>> RemoveNothing().name
    'remove-nothing'
    >>> RemoveNothing()("a string")
    Traceback (most recent call last):
        ...
    TypeError: graph_module: expected a torch.fx.GraphModule, got a str. ...
    """

    preserves_computation: bool = False
    explains_by_running: bool = False
    copies_on_write: bool = False
    makes_new_module: bool = False
    name: Any = _OfClass(_kebab_case)
    description: Any = _OfClass(_documentation)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse a class without :meth:`transform`, and arguments that the class does not take."""
        if missing := sorted(getattr(cls, "__abstractmethods__", ())):
            raise TypeError(
                f"{cls.__name__} is abstract and has to implement {' and '.join(missing)}. The least is "
                "transform(self, graph_module), which may change it in place. A function of one is a pass "
                "as it is; fxlab.rewriting.RewritePass finds places and rewrites each."
            )
        if args and isinstance(args[0], GraphModule):
            try:
                inspect.signature(cls).bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(
                    f"{cls.__name__}: {error}. A graph module is given to the instance, not to the class: "
                    f"{cls.__name__}(...)(graph_module)."
                ) from None
        return super().__new__(cls)

    @abstractmethod
    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Transform a graph module and return it, or the module that replaces it.

        ``None`` stands for the module that was given, and a ``PassResult`` for its module.

        Parameters
        ----------
        graph_module
            The module to transform; it may be changed in place.
        """

    def __call__(
        self, graph_module: GraphModule, lint_and_recompile: bool = True, reverse: bool = False
    ) -> GraphModule:
        """Transform a graph module.

        Parameters
        ----------
        graph_module
            The module to transform.
        lint_and_recompile
            Whether to check the graph and to generate its code. ``False`` if more follows.
        reverse
            Whether to revert the transformation; only a :class:`ReversibleTransformation` can.

        Returns
        -------
        torch.fx.GraphModule
            The module, changed in place unless the transformation makes a new one.

        Raises
        ------
        TypeError
            If something else than a graph module is given or made, or if ``reverse`` is not possible.
        ValueError
            If the graph was broken before; ``lint_and_recompile=False`` skips this check.
        """
        given: Any = graph_module
        if isinstance(given, Graph) and given.owning_module is not None:
            return self._on_graph(given)
        self._check_graph_module(graph_module)
        if lint_and_recompile:
            check_lints(graph_module, "graph_module")
        with self._signature_held():
            result: Any = self._reversed(graph_module) if reverse else self.transform(graph_module)
        if not reverse:  # a pass of torch returns nothing, or a PassResult
            result = graph_module if result is None else result
            result = result.graph_module if isinstance(result, PassResult) else result
        if not isinstance(result, GraphModule):
            raise TypeError(
                f"{type(self).__name__}.{'reverse' if reverse else 'transform'} must return a "
                f"torch.fx.GraphModule, but it returned a {type(result).__name__}. "
                "Return the module that it was given."
            )
        if any(map(marks, result.graph.nodes)):  # a new module, made of a graph that was marked before
            ensure_picklable(result)
        if lint_and_recompile:
            for module in graphs_of(result).values():
                module.graph.lint()
                module.recompile()
        return result

    def _on_graph(self, graph: Graph) -> GraphModule:
        """Transform a graph in place, as hooks of compilers do."""
        owner = graph.owning_module
        result = self(owner)  # type: ignore[arg-type]
        if result is not owner or result.graph is not graph:
            raise TypeError(
                f"{self.name} makes a new graph. Give it the graph module, and take what it returns."
            )
        return result

    def named(self, name: str) -> Self:
        """Return this transformation under another name, so that a session can offer several of its class.

        It is another transformation, with a signature and marks of its own.

        Raises
        ------
        TypeError
            If ``name`` is no string, or the class names its instances itself.
        ValueError
            If it is empty.

        Examples
        --------
        >>> from fxlab import RemoveDeadCode
        >>> RemoveDeadCode().named("tidy-up").name
        'tidy-up'
        """
        if not isinstance(name, str):
            raise TypeError(f"name: expected a str, got {type(name).__name__}.")
        if not name.strip():
            raise ValueError("name: expected a name, got an empty text.")
        other = copy.copy(self)
        try:
            object.__setattr__(other, "name", name)  # a rewrite pass is a frozen dataclass
        except AttributeError:
            raise TypeError(f"{type(self).__name__} names itself and takes no other name.") from None
        return other

    def only(self, *nodes: Node | str, missing_ok: bool = False) -> Self:
        """Return this transformation limited to some of its candidates.

        It is another transformation, with a signature and marks of its own, and the same name. Limited again,
        it takes the candidates that were named both times.

        Parameters
        ----------
        *nodes
            The candidates, by nodes or names of nodes that :meth:`explain` lists. Of several nodes that are
            changed together, any one stands for all.
        missing_ok
            Whether to ignore names that belong to no candidate. Otherwise they are a ``ValueError`` when the
            limited transformation is applied, and nothing is changed.

        Raises
        ------
        TypeError
            If the transformation does not tell its candidates apart: only a ``RewritePass``, as all of
            fxlab's own are, does.

        Examples
        --------
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse
        >>> traced = torch.fx.symbolic_trace(lambda x: (x / 2) + (x / 3))
        >>> change = ChangeTrueDivToMulByInverse()
        >>> change.explain(traced).index.tolist()
        ['truediv', 'truediv_1']
        >>> first = change.only("truediv")
        >>> first.get_transformed_nodes(first(traced))
        [truediv]
        """
        raise not_limitable(self, self.name)

    def exclude(self, *nodes: Node | str, missing_ok: bool = False) -> Self:
        """Return this transformation with some of its candidates excluded.

        It is another transformation, with a signature and marks of its own, and the same name.
        :meth:`explain` reports the candidates as excluded on request.

        Parameters
        ----------
        *nodes, missing_ok
            As of ``only``.

        Raises
        ------
        TypeError
            If the transformation does not tell its candidates apart.

        Examples
        --------
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse
        >>> traced = torch.fx.symbolic_trace(lambda x: (x / 2) + (x / 3))
        >>> change = ChangeTrueDivToMulByInverse().exclude("truediv")
        >>> change.explain(traced).reason.iloc[0]
        'excluded on request'
        >>> change.get_transformed_nodes(change(traced))
        [truediv_1]
        """
        raise not_limitable(self, self.name)

    @property
    def signature(self) -> str:
        """A digest of the class and the arguments, the same in every process.

        It contains the code of a class of your own and of the functions that it calls in its module, so a
        class that is redefined makes other transformations. Attributes that a transformation sets on itself
        while it runs do not change it.
        """
        held_for, signature = vars(self).get(HELD, (None, ""))
        if held_for == id(self):  # it is running; a copy is not
            return str(signature)
        now = self._digest()
        return str(signature) if held_for == now else now

    def mark_as_transformed(self, node: Node) -> None:
        """Mark a node as changed by this transformation.

        Parameters
        ----------
        node
            The node to mark. Marks survive copying, pickling and saving the graph module.
        """
        if not isinstance(node, Node):
            raise TypeError(f"A torch.fx.Node can be marked, but a {type(node).__name__} was given.")
        add_mark(node, self.signature)
        if node.graph.owning_module is not None:
            ensure_picklable(node.graph.owning_module)

    def transformed(self, node: Node) -> bool:
        """Tell whether a node was changed by this transformation."""
        return self.signature in marks(node)

    def get_transformed_nodes(self, graph_module: GraphModule) -> list[Node]:
        """Return the nodes that were changed by this transformation, in the order of the graph.

        Those of bodies, such as the branches of a ``cond``, come after those of the graph that calls them.
        """
        self._check_graph_module(graph_module)
        signature = self.signature
        graphs = graphs_of(graph_module).values()
        return [node for module in graphs for node in module.graph.nodes if signature in marks(node)]

    def explain(self, graph_module: GraphModule) -> "pd.DataFrame":
        """Tell which nodes the transformation would change in a module, and why not others. Changes nothing.

        Returns
        -------
        pandas.DataFrame
            A row for each node of each candidate, indexed by ``node`` (its name), in columns ``matched``
            (whether it would be changed), ``reason`` (the change in words, or why it is left alone), ``code``
            (of this reason, empty if it matches) and ``candidate`` (the number of the
            candidate, as several nodes may be one). Empty if the transformation describes no candidates.
        """
        self._check_graph_module(graph_module)
        return explanation(())

    @contextmanager
    def _signature_held(self) -> Iterator[None]:
        """Keep the signature while the transformation runs, and with the attributes that the run sets."""
        if vars(self).get(HELD, (None,))[0] == id(self):  # it calls itself
            yield
            return
        signature = self.signature
        vars(self)[HELD] = id(self), signature
        try:
            yield
        finally:
            del vars(self)[HELD]
            if (after := self._digest()) != signature:
                vars(self)[HELD] = after, signature

    def _digest(self) -> str:
        cls = type(self)
        name, code = f"{cls.__module__}.{cls.__qualname__}", code_of(cls)
        return digest((name, arguments_of(self), code) if code else (name, arguments_of(self)))

    def _reversed(self, graph_module: GraphModule) -> GraphModule:
        raise TypeError(
            f"{type(self).__name__} cannot be reversed, because it is not a ReversibleTransformation. "
            "Keep a copy of the module made before applying it, as fxlab.Session does."
        )

    def _check_graph_module(self, graph_module: object) -> None:
        if not isinstance(graph_module, GraphModule):
            raise TypeError(
                f"graph_module: expected a torch.fx.GraphModule, got a {type(graph_module).__name__}. "
                "Trace the module first, with fxlab.symbolic_trace, and give what it returns."
            )


class ReversibleTransformation(Transformation):
    """A transformation that can be reverted: ``transformation(graph_module, reverse=True)``.

    A subclass implements :meth:`~fxlab.Transformation.transform` and :meth:`reverse`.

    Examples
    --------
    >>> import operator
    >>> import torch
    >>> class MulToAdd(ReversibleTransformation):
    ...     def transform(self, graph_module):
    ...         for node in graph_module.graph.find_nodes(op="call_function", target=operator.mul):
    ...             node.target = operator.add
    ...             self.mark_as_transformed(node)
    ...         return graph_module
    ...
    ...     def reverse(self, graph_module):
    ...         for node in self.get_transformed_nodes(graph_module):
    ...             node.target = operator.mul
    ...             self.mark_as_restored(node)
    ...         return graph_module
    >>> class Square(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x * x
    >>> changed = MulToAdd()(torch.fx.symbolic_trace(Square()))
    >>> changed(5)
    10
    >>> MulToAdd()(changed, reverse=True)(5)
    25
    """

    @abstractmethod
    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Revert the transformation and return the module.

        Parameters
        ----------
        graph_module
            A module that was transformed; any other is returned unchanged.
        """

    def mark_as_restored(self, node: Node) -> None:
        """Remove the mark of this transformation from a node.

        Raises
        ------
        ValueError
            If the node does not have it.
        """
        signature = self.signature
        if signature not in marks(node):
            raise ValueError(
                f"Node {node.name!r} was not transformed by {self.name}, so it cannot be marked as restored. "
                "Ask transformed(node) first."
            )
        remove_mark(node, signature)

    def _reversed(self, graph_module: GraphModule) -> GraphModule:
        return self.reverse(graph_module)


def explanation(rows: Iterable[tuple[str, bool, str, str, int]]) -> "pd.DataFrame":
    """Return the table of :meth:`Transformation.explain`, made of rows of its index and columns."""
    frame = pd.DataFrame(list(rows), columns=["node", "matched", "reason", "code", "candidate"])
    types = {"node": object, "matched": bool, "reason": object, "code": object, "candidate": int}
    return frame.astype(types).set_index("node")
