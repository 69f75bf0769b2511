"""The widget that ``fxlab.inspect`` returns: a session on a screen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxlab.base.checks import positive_int, type_error
from fxlab.base.first_use import pd
from fxlab.base.words import counted
from fxlab.front_desk.sources import checked_session
from fxlab.notebook.page.messages import MessageError, answers
from fxlab.notebook.page.view_state import MOST_PANES, NOTHING, checked_comparison, checked_view
from fxlab.notebook.stack_messages import StackScreen
from fxlab.notebook.static_view import static_view
from fxlab.overlays import Overlay
from fxlab.overlays.overlay import is_overlay_file, overlays_of
from fxlab.transformations import Transformation
from fxlab.view_model.measurements import WORST_BATCHES
from fxlab.view_model.node_value import Axes
from fxlab.view_model.protocol import ValueAnswer
from fxlab.view_model.session_state import model_name, outputs_state
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session


class Inspector(StackScreen):
    """A session on the screen: the graph, a switch for each pass, and the changes of the passes.

    Parameters
    ----------
    session
        The session. Several inspectors can show one, and follow its changes from Python.
    height
        Height of the screen in CSS pixels. Left out, it follows the window of the browser.

    Raises
    ------
    TypeError
        If ``session`` is no session.
    RuntimeError
        If the package was installed without its front end.
    """

    _place_of_words: tuple[str, int] | None = None
    """The output of words in a cell that the picture takes the place of, if it is shown there."""

    def __init__(self, session: Session, *, height: int | None = None) -> None:
        if height is not None:
            positive_int(height, "height")
        checked_session(session)
        super().__init__(session, height=height)
        if session._internals.is_comparison:
            self.panes = [*range(len(session.stages))]

    # Actions of a person from Python; the page does them by itself.

    @property
    def selected(self) -> str | None:
        """Name of the selected node, or path of the selected group. Set a node's name to show the node."""
        selected = self._shown_view["selected"]
        is_there = selected and any(
            selected["name"] in self._names(number, selected["kind"]) for number in self._drawn.numbers
        )
        return str(selected["name"]) if is_there else None

    @selected.setter
    def selected(self, name: str | None) -> None:
        if name is None:
            return self._look(selected=None)
        if not isinstance(name, str):
            raise type_error("selected", "the name of a node or None", name)
        for pane, number in enumerate(self._drawn.numbers):
            for kind in ("node", "group"):
                if name and name in self._names(number, kind):
                    return self._look(selected={"kind": kind, "name": name, "pane": pane})
        raise ValueError(f"The graph has no node named {clip(name, 200)!r}.")

    def select(self, name: str | None) -> None:
        """Select a node or group, as setting :attr:`selected` does."""
        self.selected = name

    def toggle(self, pass_: Transformation | str) -> None:
        """Switch a pass of the session on or off."""
        is_on = self.session._internals.is_on(pass_)
        (self.session.revert if is_on else self.session.apply)(pass_)

    def open_group(self, path: str) -> None:
        """Show the inside of a group, such as ``"encoder.layer.0"``."""
        self._look(opened=sorted(self._drawn.opened.open(path).opened))

    def close_group(self, path: str) -> None:
        """Hide the inside of a group."""
        self._look(opened=sorted(self._drawn.opened.close(path).opened))

    def show_stage(self, number: int, compared: str | int = "", *, beside: bool = False) -> None:
        """Show a stage of the stack: 0 is the original, 1 the model after the first pass that is on.

        Parameters
        ----------
        number
            Of the stage.
        compared
            ``"below"``, ``"original"`` or the number of an earlier stage to see the differences from it in
            one graph.
        beside
            Whether to show the two side by side instead.

        Raises
        ------
        ValueError
            If there is no such stage, or it cannot be compared with that.
        """
        last = len(self._session.applied)
        if not isinstance(number, int) or not 0 <= number <= last:
            raise ValueError(f"There is no stage {number}: the last is {last}.")
        chosen = checked_comparison(number, compared)
        if beside and chosen == NOTHING:
            raise ValueError(
                "Side by side, a stage needs one to be compared with: below, original or a number."
            )
        self._show_row(number, chosen, beside=beside)

    @property
    def panes(self) -> list[int]:
        """The numbers of the stages on the screen, from left to right; set up to six to see them together.

        A node that is selected in one is shown in all, with its counterparts there.

        Examples
        --------
        >>> import torch, fxlab
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        >>> inspector = fxlab.inspect(model.eval(), torch.ones(1, 3, 8, 8))
        >>> fuse, remove = fxlab.FuseBatchNorm2dInConv2d(), fxlab.RemoveDeadCode()
        >>> for p in (fuse, remove):
        ...     _ = inspector.session.apply(p)
        >>> inspector.panes = [0, 1, 2]
        >>> inspector.panes
        [0, 1, 2]
        """
        return self._drawn.row

    @panes.setter
    def panes(self, stages: Sequence[int]) -> None:
        last = len(self._session.applied)
        row = sorted({*stages}) if isinstance(stages, list | tuple | range) else []
        if not 0 < len(row) <= MOST_PANES or not all(type(n) is int and 0 <= n <= last for n in row):
            raise ValueError(
                f"panes: expected the numbers of 1 to {MOST_PANES} stages from 0 to {last}, got {stages!r}."
            )
        is_row = len(row) > 1
        self._show_row(row[-1], row[0] if is_row else NOTHING, row[1:-1], beside=is_row)

    def _show_row(
        self, number: int, compared: str | int, between: Sequence[int] = (), *, beside: bool
    ) -> None:
        self._end_preview()
        self._look(stage=number, compared=compared, beside=beside, between=[*between])
        drawn = self._drawn
        for after, before in zip(drawn.row[1:], drawn.row, strict=False):
            self._graphs.pair(after, before)
        _ = drawn.numbers
        self._send_graphs()
        self._show_stages()

    def preview(self, pass_: Transformation | str) -> None:
        """Show the effect of a pass on the present model; :meth:`end_preview` goes back.

        The session is not changed by it.

        Raises
        ------
        fxlab.TransformationError
            If the pass raises.
        """
        self._graphs.preview(self.session._found(pass_))
        self._send_graphs()
        self._show_stages()

    def end_preview(self) -> None:
        """Show the view from before :meth:`preview` again."""
        self._end_preview()

    def filter(self, query: str | None) -> None:
        """Light up the matches of a query in the graph, and dim the rest.

        Closed groups show how many of the nodes they hold. The filter stays while groups and passes change.

        Parameters
        ----------
        query
            As in the search of the page, such as ``"by:merge-linears"`` or ``"path:input_ids..output"``;
            ``None`` to end it. The page says why a query cannot be answered.

        Raises
        ------
        TypeError
            If it is neither text nor ``None``.
        """
        if query is not None and not isinstance(query, str):
            raise type_error("query", "a str or None", query)
        self._look(query=(query or "").strip())

    def overlay(
        self, overlay: str | os.PathLike[str] | pd.Series[Any] | pd.DataFrame | Overlay | Sequence[Any] | None
    ) -> None:
        """Colour the graph by a value of each node; groups by the sum or the largest of their nodes' values.

        Parameters
        ----------
        overlay
            The name of one of :data:`fxlab.overlays.SOURCES`, such as ``"output-error"``, ``"time"`` or
            ``"flops"``, which is measured; a Series or a DataFrame indexed by node names, whose columns are
            then offered in the page as well; a CSV or JSON file of such a table; an
            :class:`fxlab.overlays.Overlay`; a
            list of these; or ``None`` for the colours of kinds of nodes.

        Raises
        ------
        TypeError
            If it is none of these.
        ValueError
            If there is no overlay of that name, or it cannot be measured.
        """
        if overlay is None:
            return self._look(overlay="")
        name = overlay
        if not isinstance(overlay, str) or is_overlay_file(overlay):
            own = overlays_of(overlay)
            if not own:
                raise ValueError("overlay: expected a column, got a DataFrame without any.")
            for one in own:
                checked_view({**self._shown_view, "overlay": one.name})
            self._overlays.offer(own)
            self._shown_overlays = self._overlays.offered()
            name = own[0].name
        for number in self._drawn.numbers:
            self._add_overlay(number, str(name))
        return self._look(overlay=name)

    @property
    def svg(self) -> str:
        """The graph as it is shown, in the colours of paper."""
        with self._session._internals.held():  # which looks once for changes of the original
            return self._drawn.svg

    # Requests of the page.

    @answers("preview", "Previewing a pass")
    def _preview(self, signature: str) -> None:
        self._change(signature, "Previewing", self.preview)

    @answers("end-preview", "Ending the preview")
    def _end_preview(self) -> None:
        self._graphs.end_preview()
        self._show_stages()

    @answers("refresh", "Refreshing the inspector", is_slow=True)
    def _refresh_all(self) -> None:
        _ = self.session
        self._refresh()

    @answers("judge", "Measuring the model's own rounding in float64", is_slow=True)
    def _judge(self) -> None:
        self.session.verdict()
        self._show_outputs(outputs_state(self.session))

    @answers("measure", "Measuring")
    def _measure(self, name: str) -> None:
        self._measured.make(name, self._busy)

    @answers("open-batch", "Opening the batch", is_slow=True)
    def _open_batch(self, number: int) -> None:
        """Look at a worst batch; at the session's own inputs if it is open already."""
        evaluation = self.session._internals.evaluation
        worst = {} if evaluation is None else {one.number: one.inputs for one in evaluation.worst}
        if number not in worst:
            raise MessageError(f"Batch {number} is not among the worst that were kept.")
        now = self.session.inputs
        if all(now is not inputs for inputs in worst.values()):
            self._own_inputs = now
        self.session.inputs = self._own_inputs if now is worst[number] else worst[number]
        self._measured.make(WORST_BATCHES.name, self._busy)

    @answers("value", "Computing the values")
    def _value(self, graph: int, name: str, before: int | None, inputs: str) -> ValueAnswer:
        asked = self._values.asked(self._graphs.data.shown(graph), name, before, inputs)
        return self._values.value(asked, self._busy)

    @answers("value-part", "Reading the values")
    def _value_part(
        self,
        graph: int,
        name: str,
        before: int | None,
        inputs: str,
        tensor: int,
        rows: int | None,
        columns: int | None,
        index: list[int],
    ) -> ValueAnswer:
        """Answer with one of the tensors along other axes, or at another index."""
        asked = self._values.asked(self._graphs.data.shown(graph), name, before, inputs)
        return self._values.part(asked, tensor, Axes(rows, columns, index))

    def _names(self, number: int, kind: str) -> Any:
        hierarchy = self._graphs.data.hierarchy(number)
        return hierarchy.position_of if kind == "node" else hierarchy.groups

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Add the picture and the tables, which viewers of saved notebooks show without a kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        self._compare_outputs()
        data, metadata = bundle
        nodes = len(self._graphs.data.shown(self._drawn.number).graph.graph.nodes)
        words = f"fxlab inspector: {model_name(self._session)}, {counted(nodes, 'node')}"
        static = {
            "text/html": static_view(words, self.svg, self._shown_tables, self._static_name),
            "text/plain": f"<{words}>",
        }
        return {**data, **static}, metadata

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Show the picture, and the page that takes its place.

        One output for both would be a page alone: Jupyter shows the kind that it likes best, also where a
        notebook is opened without the kernel, and then an error takes the place of the page.
        """
        from IPython import get_ipython
        from IPython.display import publish_display_data

        bundle = self._repr_mimebundle_(**kwargs)
        if bundle is not None:
            data, metadata = bundle
            view = {kind: data.pop(kind) for kind in [*data] if kind.endswith("widget-view+json")}
            (name, cell), self._place_of_words = self._place_of_words or ("", None), None
            is_here = cell is not None and cell == getattr(get_ipython(), "execution_count", None)
            options = {"transient": {"display_id": name}, "update": True} if is_here else {}
            publish_display_data(data, **options)  # type: ignore[no-untyped-call]
            publish_display_data({**view, "text/plain": ""}, metadata)  # type: ignore[no-untyped-call]
