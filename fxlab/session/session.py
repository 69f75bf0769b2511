"""``fxlab.Session``: one traced model and its switchable stack of passes, without a screen."""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.author_frames import levels_to_author
from fxlab.base.checks import file_to_write, items_of, type_error
from fxlab.base.first_use import pd
from fxlab.base.hints import no_such_member
from fxlab.base.words import listed
from fxlab.front_desk.sources import Model, is_session, source_of, traced
from fxlab.models.graph_modules.graph_module import check_lints
from fxlab.models.running.arguments import Inputs, call_arguments
from fxlab.models.running.step_record import step_record
from fxlab.models.state.module_state import ModelNoted
from fxlab.session.history import History
from fxlab.session.internals import Internals
from fxlab.session.near_misses import failed_attempt, failed_explanation, nearest, of_all, places, why_not
from fxlab.session.pass_catalog import PassCatalog
from fxlab.session.pass_stack import PassStack
from fxlab.session.saving import saved_file
from fxlab.session.session_lock import locked
from fxlab.transformations import offered
from fxlab.transformations.registry import Pass, as_pass
from fxlab.values.results_on_disk import WeightFile, note_files

if TYPE_CHECKING:
    from fxlab.front_desk.sources import Choice
    from fxlab.graphs.changes import Changes
    from fxlab.validation import Evaluation, Variants, Verdict
    from fxlab.validation.evaluation.judge_batch import Metric


class Session(PassStack):
    """A traced model and transformations that are switched on and off, in any order and exactly.

    Each transformation that is on works on a copy of the stage below it, which shares that stage's tensors.
    The original is never touched, so switching a transformation off, also one that raised, gives back the
    very same module and parameters.

    Parameters
    ----------
    model
        A module or function, which is traced with :func:`fxlab.symbolic_trace`; or a graph, which is not
        traced: a graph module of any kind, a ``torch.export.ExportedProgram``, or a graph of a
        :class:`fxlab.Capture`. :func:`fxlab.load_model` reads a model from a file or folder.
    inputs
        Inputs for tracing and for comparing outputs: keyword arguments (a mapping), positional arguments (a
        tuple) or one tensor. Left out, they are those of an exported program or a captured graph; for a model
        of transformers they are made from its configuration.
    passes
        The transformations on offer, lowest in the stack first. If left out, all that
        :func:`fxlab.transformations.offered` returns.
    dynamic
        Whether the graph follows the sizes of its inputs, or takes the sizes of ``inputs`` only.
    leaf_modules
        Classes and paths of modules that become one node, as for :func:`fxlab.symbolic_trace`.
    weights
        For a model on the meta device: a folder of safetensors files (``model.safetensors``, or shards with
        ``model.safetensors.index.json``) or one such file. The weights are named, converted and tied as
        ``from_pretrained`` does it. The files are mapped into memory, and must not change; large weights that
        passes compute are in temporary files (``TMPDIR``).

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

    def __init__(
        self,
        model: Model,
        inputs: Inputs | None = None,
        *,
        passes: Iterable[Pass] | None = None,
        dynamic: bool = True,
        leaf_modules: Iterable[Choice] = (),
        weights: str | os.PathLike[str] | None = None,
    ) -> None:
        if is_session(model):
            advice = "session.copy() is another session of its model; session.graph_module has its result."
            raise type_error("model", "a model", model, advice)
        source = source_of(model)
        inputs = source.inputs if inputs is None else inputs
        offer, history = PassCatalog(), History()
        given = offered() if passes is None else items_of(passes, "passes", "transformations")
        for pass_ in given:
            history = History((offer.add(as_pass(pass_, "passes"), history, "passes"),))
        # A graph taken as it is has no model; a program or a file stands for its own graph.
        is_model = isinstance(source.module, nn.Module) and not isinstance(source.module, GraphModule)
        self._model = source.module if is_model else None
        module, files = source.module, list[WeightFile]()
        if weights is not None:
            from fxlab.models.weight_files import with_weights

            module, files = with_weights(module, weights)
        original, self._inputs = traced(module, inputs, dynamic=dynamic, leaf_modules=leaf_modules)
        note_files(original, files)
        record = step_record(original)
        self._noted = None if record is None else record.noted
        if self._model is not None:
            self._noted = ModelNoted(self._model)
        check_lints(original, "model")
        super().__init__(original, offer, history)

    @property
    def _internals(self) -> Internals:
        """The rest of the session, for screens and reports."""
        return Internals(self)

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

    @locked
    def verdict(
        self, inputs: Inputs | None = None, *, variants: Variants = False, gradients: bool = False
    ) -> Verdict:
        """Tell whether the present model is the original up to rounding, as :func:`verdict` does.

        Parameters
        ----------
        inputs
            Other inputs to compare on. Left out, those of the session.
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
        found = self._noted.changed_but_for(of_run)
        changed = [name.replace("_compiled_call_impl", "compile()") for name in found]
        if changed:
            warnings.warn(
                f"The model has changed since it was traced: {listed(changed)}. The session judges it as it "
                "was; a new session of the model, or of a new trace_step, traces it anew.",
                RuntimeWarning,
                stacklevel=levels_to_author(),
            )

    @locked
    def evaluate(
        self, batches: Iterable[Any] | None = None, metrics: Mapping[str, Metric] | None = None
    ) -> Evaluation:
        """Judge the present model on a data set, as :func:`evaluate` does.

        The inspector shows the result in its tab *Data*, opens the worst batches, and can judge other stacks.

        Parameters
        ----------
        batches, metrics
            As for :func:`evaluate`. Left out, the last batches and metrics.

        Raises
        ------
        ValueError
            If no batches were given, or they can be read only once; or as :func:`evaluate`.
        """
        if batches is None and self._data is None:
            raise ValueError("The session has no data. Give some: session.evaluate(batches).")
        chosen: Any
        chosen, own = self._data if batches is None and self._data else (batches, metrics)
        own = own if metrics is None else metrics
        if batches is None and isinstance(chosen, Iterator):
            raise ValueError("The batches were an iterator, which is read. Give them as a list.")
        from fxlab.validation import evaluate

        found = evaluate(self.original, self.graph_module, chosen, own)
        if batches is not None:
            self._data = batches, metrics
            self._turns.is_changed = True
        self._comparisons.note_evaluation(self._stack, found)
        return found

    @locked
    def explain(self, pass_: Pass | None = None) -> pd.DataFrame:
        """Tell which candidates a transformation changes, and why not the others, on the stage below it.

        Left out, all on offer are explained, in a table with a column ``pass``. Where a transformation is on,
        the ``reason`` of an elementwise call tells how many numbers of sixteen bits give other bits.
        """
        if pass_ is None:
            return of_all([*self.passes], self.explain, failed_explanation)
        if (other := self._offering(pass_)) is not self:
            return other.explain(pass_)
        found = self._found(pass_)
        below = self._switches.stack(below=found.name)
        stages = self._stages.of(self._stack)
        above = self._stack[: len(below) + 1]
        is_on = len(above) > len(below) and above[-1][0] == found.name

        def explained() -> pd.DataFrame:
            table = found.explain(stages[below])
            if not is_on:
                return table
            from fxlab.validation.verdicts.sixteen_bits import with_proofs

            return with_proofs(table, stages[below], stages[above])

        return self._comparisons.remembered(
            "explain", above if is_on else below, explained, found.signature
        ).copy()

    @locked
    def why_not(self, pass_: Pass | None = None, node: Node | str | None = None) -> pd.DataFrame:
        """Tell why a transformation does not apply, anywhere or at a node; the nearest misses first.

        Parameters
        ----------
        pass_
            The transformation, on offer or not. Left out, all that are on offer.
        node
            A node of the stage below it, or its name. Left out, all refused candidates and near misses.

        Returns
        -------
        pandas.DataFrame
            A row for each place, indexed by the name of the transformation (``pattern``), with the columns of
            :meth:`fxlab.compiler.CompileSession.why_not`: ``pass``; whether it has ``matched``; the
            ``reason`` in words, and its ``code``; how many of its ``operators`` match (``reached``); the node
            that does not (``at``), and the last node of the match (``begins_at``).

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
        if pass_ is None:
            for one in self.passes:
                places(stages[self._switches.stack(below=one.name)], node)
            return of_all([*self.passes], lambda one: self.why_not(one, node), failed_attempt)
        if (other := self._offering(pass_)) is not self:
            return other.why_not(pass_, node)
        found = self._found(pass_)
        return why_not(found, stages[self._switches.stack(below=found.name)], node)

    @locked
    def changes(self, pass_: Pass | None = None) -> Changes:
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
        from fxlab.graphs.changes import changes_made

        if pass_ is None:
            rows = tuple(row for each in self.applied for row in self.changes(each).replaced)
            return replace(changes_made(self.original, self.graph_module), replaced=rows)
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

    def _offering(self, pass_: Pass) -> Session:
        """Return the session, or a copy with a pass that this one does not offer."""
        if isinstance(pass_, str) or self._as_compiled() is not None:
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
        from fxlab.session.saving.code import stack_code

        return stack_code(self.applied)

    @locked
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the passes that are on, their order and exclusions to a small JSON file, without weights.

        :func:`fxlab.load_session` makes a session of it again, and reports differences: the file names
        versions, and has digests of the model's graph and of the transformed graph.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        TypeError, ValueError
            If ``path`` names no file, or one of another format.
        OSError
            If it cannot be written.
        """
        rows = [
            {
                "name": name,
                "signature": self._offer.limited(name, ()).signature,
                "on": name in self._switches.on,
                "excluded": [list(candidate) for candidate in self._switches.excluded_from(name)],
            }
            for name in self._switches.offered
        ]
        file = file_to_write(path, "path")
        if file.suffix.lower() not in ("", ".json"):
            raise ValueError(
                "path: a session is saved as JSON, without weights; expected a name that ends in .json, got "
                f"{str(path)!r}. For the weights, write fxlab.export(session, 'model.pt2') or "
                "torch.save(session.graph_module, path); for a picture, fxlab.draw(session).save(path)."
            )
        facts = saved_file.facts_of(self.original, self.graph_module)
        return saved_file.write(file, facts, [row for row in rows if row["on"] or row["excluded"]])

    @locked
    def copy(self) -> Session:
        """Return an independent session of the same original and inputs, with the same history.

        Raises
        ------
        TypeError
            If a compiler makes its stages.
        """
        if self._as_compiled() is not None:
            raise TypeError(
                "A compile is not copied. Compile again: fxlab.compiler.compile_session(model, inputs)."
            )
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
        return f"<p>{html.escape(repr(self))}</p>{self.passes._repr_html_()}"

    if not TYPE_CHECKING:  # else every name would be known to type checkers

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # IPython, copy and pickle ask for these
                raise AttributeError(name)
            raise no_such_member(type(self), name)

    def _look_at(self, inputs: Inputs | None) -> None:
        self._inputs = inputs
        self._comparisons.forget_inputs()
        self._turns.is_changed = True
