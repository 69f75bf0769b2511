"""One traced model and its switchable stack of transformations, without a screen."""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from torch import Tensor, nn
from torch.fx import GraphModule, Node

from fxlab.author_frames import levels_to_author
from fxlab.checks import flag, items_of, unexpected
from fxlab.first_use import pd
from fxlab.models.graph_module import check_lints
from fxlab.models.running import Inputs, are_batches, batches_of, call_arguments, check_inputs_named
from fxlab.models.step_record import step_record
from fxlab.models.tensor_state import ModelNoted
from fxlab.public_calls import fitting
from fxlab.session import saved_file
from fxlab.session.history import History
from fxlab.session.near_misses import failed_attempt, failed_explanation, nearest, of_all, places, why_not
from fxlab.session.offer import Offer, PassOrName
from fxlab.session.pass_stack import PassStack
from fxlab.session.shortcuts import Shortcuts
from fxlab.session.turns import in_turn
from fxlab.sources import ModelLike, divided, is_session, source_of, traced
from fxlab.transformations import Transformation, offered
from fxlab.transformations.registry import as_pass, as_passes, is_pass
from fxlab.units import listed

if TYPE_CHECKING:
    from fxlab.graphs.changes_made import Changes
    from fxlab.session.compiled import Compiled
    from fxlab.steps.loop import StepLoop
    from fxlab.steps.several import StepsCompared
    from fxlab.validation import Evaluation, Reference, Variants, Verdict
    from fxlab.validation.evaluation.agreement import Metric


class Session(Shortcuts, PassStack):
    """A traced model and transformations that are switched on and off, in any order and exactly.

    Each transformation that is on works on a copy of the stage below it, which shares that stage's tensors.
    The original is never touched, so switching a transformation off, also one that raised, gives back the
    very same module and parameters.

    Parameters
    ----------
    model
        A module or function, which is traced with :func:`fxlab.symbolic_trace`; a pipeline of transformers,
        whose model is traced; a folder with a ``config.json``, or ``file.py:name``, as the command takes
        them; or a graph, which is not traced: a graph module of any kind, a
        ``torch.export.ExportedProgram``, the path of one that ``torch.export.save`` wrote (``.pt2``), or a
        graph of a :class:`fxlab.Capture`.
    inputs
        Inputs for tracing and for comparing outputs: keyword arguments (a mapping), positional arguments (a
        tuple) or one tensor; the text for a pipeline; or a ``DataLoader``, a map-style data set or a list of
        inputs, of which the first is taken, and which is the data of :meth:`evaluate`. Left out, they are
        those of an exported program or a captured graph; for a model of transformers they are made from its
        configuration.
    *more
        More positional inputs: ``Session(model, x, y)`` is ``Session(model, (x, y))``.
    passes
        The transformations on offer, lowest in the stack first. If left out, all that
        :func:`fxlab.transformations.offered` returns.
    weights
        For a model on the meta device: a folder of safetensors files (``model.safetensors``, or shards with
        ``model.safetensors.index.json``) or one such file. The weights are named, converted and tied as
        ``from_pretrained`` does it. Each is read when a node uses it and dropped afterwards, as is each that
        a pass computes; the graph itself needs none of them.
    **arguments
        Inputs by name, such as those of a tokenizer: ``Session(model, **encoding)``; or options of
        :func:`fxlab.symbolic_trace`: ``Session(model, inputs, dynamic=False)``.

    Raises
    ------
    TypeError
        If ``model``, one of ``passes`` or ``weights`` is of another type.
    ValueError
        If two of ``passes`` are the same, or a file is broken or could run code when it is loaded; or if
        a weight or shard is missing, or is of another shape or dtype than the model's.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> session = Session(torch.fx.symbolic_trace(model))
    >>> _ = session.apply("fuse-batch-norm2d-in-conv2d")
    >>> [node.name for node in session.graph_module.graph.nodes]
    ['input_1', 'evaluation_mode', '_0', 'output']
    >>> _ = session.undo()
    >>> session.graph_module is session.original
    True
    """

    @fitting
    def __init__(
        self,
        model: ModelLike,
        inputs: Inputs | None = None,
        *more: Any,
        passes: Iterable[Transformation] | None = None,
        weights: str | os.PathLike[str] | None = None,
        **arguments: Any,
    ) -> None:
        if is_session(model):
            advice = "session.copy() is another session of its model; session.graph_module has its result."
            raise unexpected("model", "a model", model, advice)
        source = source_of(model)
        inputs = (inputs, *more) if more else batches_of(inputs)
        batches: Any = inputs if are_batches(inputs, source.module) else None
        options, arguments = divided(arguments) if arguments else ({}, {})
        inputs = source.inputs if inputs is None and not arguments else source.given(inputs, arguments)
        offer, history = Offer(), History()
        given = [] if passes is None else items_of(passes, "passes", "transformations")
        own = (pass_ for each in given for pass_ in as_passes(each, "passes"))
        for pass_ in offered() if passes is None else own:
            history = History((offer.add(pass_, history, "passes"),))
        # A graph taken as it is has no model; a program or a file stands for its own graph.
        is_model = isinstance(source.module, nn.Module) and not isinstance(source.module, GraphModule)
        self._model = source.module if is_model else None
        original, self._inputs = traced(source.module, inputs, options, for_cpu=weights is not None)
        record = step_record(original)
        self._noted = None if record is None else record.noted
        if self._model is not None:
            self._noted = ModelNoted(self._model)
        self._data: tuple[Iterable[Any], Mapping[str, Metric] | None] | None = None
        if batches is not None:
            self._data = batches, None
        check_lints(original, "model")
        check_inputs_named(original, arguments)
        if weights is not None:
            from fxlab.models.weight_files import with_weights

            original = with_weights(original, source.module, weights)
        super().__init__(original, offer, history)

    @property
    def compiled(self) -> Compiled | None:
        """The session itself if a compiler makes its stages, so that it has more members; else ``None``."""
        return None

    @property
    def model(self) -> nn.Module:
        """The model that was given; of a graph or a program, its graph."""
        return self.original if self._model is None else self._model

    @property
    def inputs(self) -> Inputs | None:
        """The inputs on which outputs are compared. Set it to look at others, such as a worst batch."""
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: Inputs | None) -> None:
        if inputs is not None:
            call_arguments(inputs)
        self._turns.take(lambda: self._look_at(inputs))

    @in_turn
    def compare_outputs(self, *, atol: float = 0.0, rtol: float = 0.0) -> pd.DataFrame:
        """Measure how far the outputs are from the original's, as :func:`compare_outputs` does.

        :meth:`verdict` tells whether that matters.

        Raises
        ------
        ValueError
            If the session has no inputs, or its model no weights.
        """
        if atol or rtol:
            from fxlab.validation import compare_outputs

            return compare_outputs(self, atol=atol, rtol=rtol)
        return self._comparisons.outputs(self._stack, self.graph_module, self.inputs)[0].copy()

    @in_turn
    def verdict(
        self, inputs: Inputs | None = None, *, variants: Variants = False, gradients: bool = False
    ) -> Verdict:
        """Tell whether the present model is the original up to rounding, as :func:`verdict` does.

        Parameters
        ----------
        inputs
            Other inputs to compare on. Left out, those of the session. Or a pass, or the name of one: then
            its stage is judged against the one that it is applied to.
        variants
            Other inputs to compare on as well: ``True`` for those that
            :func:`fxlab.validation.input_variants` makes, a mapping of inputs by name, or a list or
            iterator of inputs. The worst decides.
        gradients
            Whether to compare gradients of inputs and parameters as well.

        Raises
        ------
        ValueError
            If the session has no inputs, or its model no weights; or as :func:`verdict`.
        """
        self._tell_changes_of_model()
        if isinstance(inputs, str) or is_pass(inputs):
            return self.alone(inputs).verdict(variants=variants, gradients=gradients)
        if inputs is not None:
            from fxlab.validation import Reference

            asked = Reference(self.original, inputs, variants=variants, gradients=gradients)
            return asked.verdict(self.graph_module)
        return self._comparisons.verdict(self._stack, self.graph_module, self.inputs, variants, gradients)

    def _tell_changes_of_model(self) -> None:
        """Warn if the model's Python would now read something else than in the trace."""
        if self._noted is None:
            return
        # The trace tells which attributes a run of the model sets by itself.
        record = step_record(self.original)
        findings = getattr(self.original.meta.get("trace"), "findings", ())
        of_run = {found.what for found in findings if found.kind == "attribute"}
        of_run |= {*record.set_in_runs} if record is not None else set()
        changed = self._noted.changed_but_for(of_run)
        if not changed:
            return
        warnings.warn(
            f"The model has changed since it was traced: {listed(changed)}. The session judges it as it was; "
            "a new session of the model, or of a new trace_step, traces it anew.",
            RuntimeWarning,
            stacklevel=levels_to_author(),
        )

    @in_turn
    def known_verdict(self) -> Verdict | None:
        """Return the verdict if there is one already, or if it needs no run in float64; else ``None``.

        Raises
        ------
        ValueError
            As for :meth:`compare_outputs`.
        """
        return self._comparisons.known_verdict(self._stack, self.graph_module, self.inputs)

    @in_turn
    def evaluate(
        self,
        batches: Iterable[Any] | None = None,
        metrics: Mapping[str, Metric] | None = None,
        executor: Executor | None = None,
        *,
        keep: int = 5,
        resume: str | os.PathLike[str] | None = None,
    ) -> Evaluation:
        """Judge the present model on a data set, as :func:`evaluate` does.

        The inspector shows the result in its tab *Data*, opens the worst batches, and judges other stacks on
        the same data on request.

        Parameters
        ----------
        batches, metrics, executor, keep, resume
            As for :func:`evaluate`. Left out, the last batches and metrics.

        Raises
        ------
        ValueError
            If no batches were given, or they can be read only once; or as :func:`evaluate`.
        """
        if batches is None and self._data is None:
            raise ValueError("The session has no data. Give some: session.evaluate(batches).")
        chosen, own = self._data if batches is None and self._data else (batches, metrics)
        own = own if metrics is None else metrics
        if batches is None and isinstance(chosen, Iterator):
            raise ValueError("The batches were an iterator, which is read. Give them as a list.")
        from fxlab.validation import evaluate

        found = evaluate(self, None, chosen, own, executor, keep=keep, resume=resume)
        if batches is not None:
            self._data = batches, metrics
            self._turns.is_changed = True
        self._comparisons.note_evaluation(self._stack, found)
        return found

    @property
    def has_data(self) -> bool:
        """Whether it was evaluated on a data set."""
        return self._data is not None

    @property
    def batches(self) -> Iterable[Any] | None:
        """The data set that :meth:`evaluate` was given last; ``None`` if there was none."""
        return None if self._data is None else self._data[0]

    @property
    @in_turn
    def evaluation(self) -> Evaluation | None:
        """The last result of :meth:`evaluate` for the present model; ``None`` for another one."""
        return self._comparisons.evaluation(self._stack)

    @in_turn
    def reference_run(self) -> Reference:
        """Return the original as the reference of verdicts; it is run once.

        Raises
        ------
        ValueError
            As for :meth:`compare_outputs`.
        """
        return self._comparisons.reference_on(self.inputs)

    @in_turn
    def transformed_nodes(self, pass_: PassOrName | None = None) -> pd.DataFrame:
        """List the nodes of the present model that a transformation, or any, has changed.

        Each comes with its counterparts in the original; see :func:`transformed_nodes`.
        """
        from fxlab.graphs.transformed_nodes import transformed_nodes

        found = None if pass_ is None else self._found(pass_)
        return self._comparisons.remembered(
            "transformed nodes",
            self._stack,
            lambda: transformed_nodes(self.graph_module, found, original=self.original),
            "" if found is None else found.signature,
        ).copy()

    @in_turn
    def explain(self, pass_: PassOrName | None = None) -> pd.DataFrame:
        """Tell which candidates a transformation changes, and why not the others, on the stage below it.

        Left out, all on offer are explained, in a table with a column ``pass``.
        """
        if (kind := self._asked_together(pass_)) or pass_ is None:
            return of_all(kind, self.explain, failed_explanation)
        if (other := self._offering(pass_)) is not self:
            return other.explain(pass_)
        found = self._found(pass_)
        below = self._switches.stack(below=found.name)
        stages = self._stages.of(self._stack)
        return self._comparisons.remembered(
            "explain", below, lambda: found.explain(stages[below]), found.signature
        ).copy()

    @in_turn
    def why_not(self, pass_: PassOrName | None = None, node: Node | str | None = None) -> pd.DataFrame:
        """Tell why a transformation does not apply, anywhere or at a node; the nearest misses first.

        Parameters
        ----------
        pass_
            The transformation, on offer or not. Left out, all that are on offer.
        node
            A node of the stage below it, or its name. Left out, all refused candidates and near misses of
            patterns.

        Returns
        -------
        pandas.DataFrame
            A row for each place, indexed by the name of the transformation (``pattern``), with the columns of
            :meth:`CompileSession.why_not`: ``pass``; whether it has ``matched``; the ``reason`` in words, and
            its ``code``; how many of its ``operators`` match (``reached``); the node that does not (``at``),
            and the last node of the match (``begins_at``).

        Raises
        ------
        TypeError
            If ``node`` is no node or name.
        ValueError
            If the stage has no such node.

        Examples
        --------
        >>> import torch
        >>> import fxlab
        >>> silu = fxlab.from_pattern(lambda x: x * torch.sigmoid(x), lambda x: x, name="silu")
        >>> traced = torch.fx.symbolic_trace(lambda x: x.cos() * torch.sigmoid(x))
        >>> fxlab.Session(traced, passes=[silu]).why_not("silu")["reason"].iloc[0]
        '2 of 2 calls fit; it reads cos, where the pattern reads the same as before: x'
        """
        stages = self._stages.of(self._stack)
        if (kind := self._asked_together(pass_)) or pass_ is None:
            for one in kind:
                places(stages[self._switches.stack(below=one.name)], node)
            return of_all(kind, lambda one: self.why_not(one, node), failed_attempt)
        if (other := self._offering(pass_)) is not self:
            return other.why_not(pass_, node)
        found = self._found(pass_)
        return why_not(found, stages[self._switches.stack(below=found.name)], node)

    @in_turn
    def changes(self, pass_: PassOrName | None = None) -> Changes:
        """Count what a transformation has changed, or would change if it was switched on.

        Left out, the changes of all that are on together.

        Returns
        -------
        Changes
            The rewrites, and the kinds of nodes that became others; as text, a sentence. Without rewrites,
            the nearest place, and why it stays.

        Raises
        ------
        TransformationError
            If it is off, and raises when it is tried.

        Examples
        --------
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse
        >>> traced = torch.fx.symbolic_trace(lambda x: (x / 2) + (x / 3))
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> print(session.changes("change-true-div-to-mul-by-inverse"))
        2 rewrites: 2 truedivs become 2 muls
        """
        from fxlab.graphs.changes_made import changes_made, joined_changes

        if pass_ is None:
            rows = tuple(row for each in self.applied for row in self.changes(each).replaced)
            return replace(changes_made(self.original, self.graph_module), replaced=rows)
        if kind := self._asked_together(pass_):
            return joined_changes([self.changes(each) for each in kind])
        if (other := self._offering(pass_)) is not self:
            return other.changes(pass_)
        found = self._found(pass_)
        name = str(found.name)
        below = self._switches.stack(below=name)
        above = (*below, (name, self._switches.excluded_from(name)))

        def count() -> Changes:
            stages = self._stages.built(above)
            made = changes_made(stages[below], stages[above], found)
            return made if made else replace(made, nearest=nearest(found, stages[below]))

        return self._comparisons.remembered("changes", below, count, found.signature)

    def alone(self, pass_: Any) -> Session:
        """Return a session of the stage that a pass is applied to, on or off, in which it alone is on.

        Examples
        --------
        >>> import torch
        >>> session = Session(lambda x: torch.relu(x) / 2, torch.ones(3)).apply("div-to-mul")
        >>> session.alone("div-to-mul").verdict().agrees
        True
        """
        other = self._offering(pass_)
        names = other._find_all(pass_)
        with other.held():
            below = other._below(names[0])
        made = Session(below, self.inputs, passes=[other._limited(name) for name in names])
        made.apply(made.passes)
        return made

    def _asked_together(self, pass_: PassOrName | None) -> list[Transformation]:
        """Return all passes if none is asked for, and those of one kind for its name; for one pass, none."""
        names = self._find_all(pass_) if isinstance(pass_, str) else ()
        found = self.passes if pass_ is None else map(self._limited, names if len(names) > 1 else ())
        return [*found]

    def _offering(self, pass_: PassOrName) -> Session:
        """Return the session, or a copy with a pass that this one does not offer."""
        if isinstance(pass_, str) or self.compiled is not None:
            return self
        made = as_pass(pass_, "pass_")
        if self._is_offered(made):
            return self
        other = self.copy()
        other.add(made)
        return other

    def to_python(self) -> str:
        """Return code that makes a session of ``model`` and ``inputs`` with the passes that are on here.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> from fxlab import RemoveDeadCode
        >>> session = Session(torch.fx.symbolic_trace(nn.ReLU()), passes=[RemoveDeadCode()])
        >>> _ = session.apply("remove-dead-code")
        >>> print(session.to_python())
        # model and inputs are yours: what the session was made of.
        import fxlab
        <BLANKLINE>
        passes = [
            fxlab.RemoveDeadCode(),
        ]
        session = fxlab.Session(model, inputs, passes=passes)
        for transformation in passes:
            session.apply(transformation)
        <BLANKLINE>
        """
        from fxlab.session.code import stack_code

        return stack_code(self.applied)

    @in_turn
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the passes that are on, their order and exclusions to a small JSON file, without weights.

        A name that ends in ``.html``, ``.svg``, ``.png``, ``.pdf``, ``.dot``, ``.pt2`` or ``.onnx`` is
        written by :meth:`report`, :meth:`draw` or :meth:`export`.

        :func:`fxlab.load_session` makes a session of it again, and reports differences: the file names
        versions, and has digests of the model's graph and of the transformed graph.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        TypeError, ValueError
            If ``path`` names no file.
        OSError
            If it cannot be written.
        """
        if (file := self.written(path)) is not None:
            return file
        rows = [
            {
                "name": name,
                "signature": self._offer.limited(name, ()).signature,
                "on": name in self._switches.on,
                "excluded": [list(candidate) for candidate in self._switches.excluded_from(name)],
            }
            for name in self._switches.offered
        ]
        facts = saved_file.facts_of(self.original, self.graph_module)
        return saved_file.write(path, facts, [row for row in rows if row["on"] or row["excluded"]])

    def as_step(self, *, check: bool = True) -> StepLoop:
        """Return a function that trains the model of a step on a batch, by the graph with its passes.

        It updates the user's parameters, buffers and optimizer state, and returns the loss. A graph holds for
        one size of batch, and for the tensors in the optimizer's state: for others, the step is traced again.

        Parameters
        ----------
        check
            Whether a transformed graph is used only if its verdict on the first batch is good. If it is not,
            a ``RuntimeWarning`` says why, and the graph runs as it was traced.

        Returns
        -------
        fxlab.steps.StepLoop
            Called with inputs in the form in which :func:`fxlab.trace_step` takes them.

        Raises
        ------
        ValueError
            If the session was not made of a step, or each step counts or draws random numbers in Python.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> import fxlab
        >>> model, x = nn.Linear(4, 1), torch.ones(3, 4)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> step = fxlab.trace_step(model, x, lambda output: output.square().mean(), optimizer=optimizer)
        >>> session = fxlab.Session(step)
        >>> _ = session.apply("eliminate-common-subexpressions")
        >>> train = session.as_step()
        >>> losses = [train(x).item() for _ in range(3)]
        >>> losses == sorted(losses, reverse=True)
        True
        """
        from fxlab.steps.loop import StepLoop

        return StepLoop(self.original, lambda: self.applied, check=flag(check, "check"))

    def compare_steps(self, batches: Sequence[Inputs]) -> StepsCompared:
        """Train with the passes that are on and without, and find the first step whose bits differ.

        Both loops begin with the present model, optimizer and seed, which are restored.

        Parameters
        ----------
        batches
            A batch for each step, in the form in which :func:`fxlab.trace_step` takes them.

        Returns
        -------
        fxlab.steps.StepsCompared
            True if all bits are the same; ``str()`` of it names the first step and tensor that differ.

        Raises
        ------
        TypeError, ValueError
            If there are no batches, or the session was not made of a step.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> import fxlab
        >>> model, x = nn.Linear(4, 1), torch.ones(3, 4)
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> session = fxlab.training_session(model, x, lambda y: y.square().mean(), optimizer=optimizer)
        >>> _ = session.apply("eliminate-common-subexpressions")
        >>> print(session.compare_steps([x, x + 1]))
        same bits of 9 tensors after each of 2 steps
        """
        from fxlab.steps.loop import StepLoop
        from fxlab.steps.several import compared_steps

        if isinstance(batches, Tensor | Mapping):
            raise TypeError("batches: expected a list, with a batch for each step. Write [...].")
        given = items_of(batches, "batches", "batches, one for each step")
        if not given:
            raise ValueError("batches: expected a batch for each step, got none.")
        plain = StepLoop(self.original, tuple, check=False)
        return compared_steps(plain, StepLoop(self.original, lambda: self.applied, check=False), given)

    @in_turn
    def copy(self) -> Session:
        """Return an independent session of the same original and inputs, with the same history.

        Raises
        ------
        TypeError
            If a compiler makes its stages.
        """
        if self.compiled is not None:
            raise TypeError("A compile is not copied. Compile again: fxlab.compile_session(model, inputs).")
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        PassStack.__init__(other, self.original, self._offer.copy(), self._history)
        return other

    __copy__ = copy

    def on_change(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        """Call a function with the session after each change; returns the function that ends this.

        It is called in the thread that made the change, when the change is complete. If it raises, the change
        stays, the other functions are called, and the error becomes a ``RuntimeWarning``.
        """
        return self._turns.add_listener(callback)

    def __deepcopy__(self, memo: object) -> Session:
        raise TypeError(
            "A session is not copied with its model. session.copy() has passes of its own on the same model; "
            "session.save(path) keeps what is on, and fxlab.load_session(path, model) reads it."
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            "A session is not pickled. session.save(path) keeps what is on, and fxlab.load_session(path, "
            "model) reads it; session.graph_module, the present graph, can be pickled."
        )

    def __repr__(self) -> str:
        names = ", ".join(str(pass_.name) for pass_ in self.applied) or "no pass"
        return f"<Session of {type(self.original).__name__}: {names} on, {len(self.passes)} on offer>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.draw()._repr_svg_()}"

    def _look_at(self, inputs: Inputs | None) -> None:
        self._inputs = inputs
        self._comparisons.forget_inputs()
        self._turns.is_changed = True
