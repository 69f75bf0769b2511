"""The widget: a session on a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from fxlab.checks import described, positive_int
from fxlab.drawing.rendering.layout import lay_out
from fxlab.html_report.static_view import static_view
from fxlab.notebook.messages import answers
from fxlab.notebook.stack_messages import StackScreen
from fxlab.overlays import Overlay, from_table
from fxlab.validation.arguments import is_session
from fxlab.view_model.graph_view.panes import Selection
from fxlab.view_model.search.query import QueryError
from fxlab.view_model.session_state import model_name, outputs_state

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session
    from fxlab.transformations import Transformation


class Inspector(StackScreen):
    """A session on the screen: the graph, a switch for each pass, and what the passes changed.

    Parameters
    ----------
    session
        What to show. Several inspectors can show one session, and follow its changes from Python.
    height
        Height of the screen in CSS pixels.

    Raises
    ------
    TypeError
        If ``session`` is not a session; :func:`fxlab.inspect` takes models too.
    RuntimeError
        If the package was installed without its front end.
    """

    def __init__(self, session: Session, *, height: int = 720) -> None:
        if not is_session(session):
            raise TypeError(
                f"session: expected an fxlab.Session, got {described(session)}. "
                "fxlab.inspect(model) makes the session too."
            )
        positive_int(height, "height")
        try:
            super().__init__(session, height=height)
        except traitlets.TraitError as error:
            raise ValueError(f"height: {error}") from None

    # What a person does from Python; the page asks for some of it too.

    @property
    def selected(self) -> str | None:
        """Name of the selected node, or path of the selected group. Set a node's name to show the node."""
        return self._selection.name if self._selection else None

    @selected.setter
    def selected(self, name: str | None) -> None:
        if name is None:
            self._select(None)
        elif not isinstance(name, str):
            raise TypeError(f"selected: expected the name of a node or None, got {described(name)}.")
        elif name in self._scene.hierarchy.groups and name not in self._scene.hierarchy.position_of:
            self._select(Selection("group", name))
        else:
            self._select_node(name)

    def toggle(self, pass_: Transformation | str) -> None:
        """Switch a pass of the session on or off."""
        self.session.toggle(pass_)

    @answers("open", "Opening the group")
    def open_group(self, path: str) -> None:
        """Show the inside of a group, such as ``"encoder.layer.0"``."""
        with self._panes.tentative():
            self._panes.open(path)
            self._redraw()

    @answers("close", "Closing the group")
    def close_group(self, path: str) -> None:
        """Hide the inside of a group."""
        with self._panes.tentative():
            self._panes.close(path)
            self._redraw()

    def show_stage(self, number: int, compared: str | int = "", *, beside: bool = False) -> None:
        """Show a stage of the stack: 0 is the original, 1 the model after the first pass that is on.

        Parameters
        ----------
        number
            Of the stage.
        compared
            ``"below"``, ``"original"`` or the number of an earlier stage to see in one graph what is
            different from it.
        beside
            Whether to show the two side by side instead.

        Raises
        ------
        ValueError
            If there is no such stage, or it cannot be compared with that.
        """
        self._stages.go_to(number, compared, beside=beside)
        self._show_chosen()
        self._measure_overlay_again()

    def preview(self, pass_: Transformation | str) -> None:
        """Show what a pass would do to the present model; :meth:`end_preview` goes back.

        The session is not changed by it.

        Raises
        ------
        fxlab.TransformationError
            If the pass raises.
        """
        try:
            with self._panes.tentative():
                self._stages.preview(self.session.find(pass_))
                self._show_chosen()
        except BaseException:
            self.end_preview()
            raise
        self._focus(list(self._stages.marks), gently=True)
        self._measure_overlay_again()

    @answers("end-preview", "Ending the preview")
    def end_preview(self) -> None:
        """Show again what was shown before :meth:`preview`."""
        self._stages.end_preview()
        self._show_chosen()
        self._measure_overlay_again()

    def filter(self, query: str | None) -> None:
        """Light up in the graph what a query finds, and dim the rest.

        Closed groups say how many of the nodes are in them. It stays while groups are opened and closed and
        passes switched.

        Parameters
        ----------
        query
            As in :func:`fxlab.find_nodes`, such as ``"by:merge-linears"`` or ``"path:input_ids..output"``;
            ``None`` to end it.

        Raises
        ------
        TypeError
            If it is neither text nor ``None``.
        ValueError
            If the query cannot be answered, for example because it names a node that is not there.
        """
        if query is not None and not isinstance(query, str):
            raise TypeError(f"query: expected a str or None, got {described(query)}.")
        with self._panes.tentative(), self._filter.tentative():
            self._filter.choose(query or "")
            if self._filter.message:
                raise QueryError(self._filter.message)
            self._redraw()
        self._focus_found()

    def overlay(self, overlay: str | pd.Series[Any] | pd.DataFrame | Overlay | None) -> None:
        """Colour the graph by a value of each node; groups by the sum, or the largest, of their nodes'.

        Parameters
        ----------
        overlay
            The name of one of :data:`fxlab.overlays.SOURCES`, such as ``"output-error"``, ``"time"`` or
            ``"flops"``, which is measured; a Series or a DataFrame indexed by node names, whose columns are
            then offered in the page as well; an :class:`fxlab.overlays.Overlay`; or ``None`` for the colours
            of kinds of nodes.

        Raises
        ------
        TypeError
            If it is none of these.
        ValueError
            If there is no overlay of that name, or it cannot be measured.
        """
        if overlay is None or isinstance(overlay, str):
            return self._choose_overlay(overlay)
        own = [overlay] if isinstance(overlay, Overlay) else from_table(overlay)
        if not own:
            raise ValueError("overlay: expected a column, got a DataFrame without any.")
        self._overlay.offer(own)
        return self._choose_overlay(own[0].name)

    @property
    def svg(self) -> str:
        """The graph as it is shown, in the colours of paper."""
        overlay = next(iter(self._overlay.shown), None)
        return self._svg if overlay is None else self._scene.draw(self._stages.signatures, overlay).svg

    # What the page alone asks for.

    @answers("preview", "Previewing a pass")
    def _preview(self, signature: str) -> None:
        self._change(signature, "Previewing", self.preview)

    @answers("refresh", "Refreshing the inspector", is_slow=True)
    def _refresh_all(self) -> None:
        self._refresh()

    @answers("judge", "Measuring the model's own rounding in float64", is_slow=True)
    def _judge(self) -> None:
        self.session.verdict()
        self._shown_tables = {**self._shown_tables, "outputs": outputs_state(self.session)}

    @answers("measure", "Measuring")
    def _measure(self, name: str) -> None:
        self._measured.make(name, self._scene.hierarchy.position_of, self._busy)

    @answers("show-overlay", "Measuring the overlay", is_slow=True)
    def _show_overlay(self, name: str) -> None:
        self._choose_overlay(name or None)

    @answers("overview", "Closing the groups")
    def _overview(self) -> None:
        with self._panes.tentative():
            self._scene.overview()
            self._redraw()

    @answers("reveal-pass", "Showing the changes of a pass")
    def _reveal_pass(self, signature: str) -> None:
        p = self._offered(signature)
        names = self._changed_by(p)
        with self._panes.tentative():
            self._scene.uncover(names, p.name)
            self._draw()
        self._focus(names)

    @answers("search", "Searching")
    def _search(self, query: str, request: str) -> None:
        self.send({"type": "found", "request": request, **self._filter.find(query)})

    @answers("filter", "Filtering the graph")
    def _show_filter(self, query: str) -> None:
        """Do as :meth:`filter`; a query that cannot be answered is shown with the reason."""
        with self._panes.tentative(), self._filter.tentative():
            self._filter.choose(query)
            self._redraw()
        self._focus_found()

    @answers("export-dot", "Exporting DOT")
    def _export_dot(self, request: str) -> None:
        self.send({"type": "dot", "request": request, "text": self._dot()})

    @answers("export-pdf", "Exporting a PDF", is_slow=True)
    def _export_pdf(self, request: str) -> None:
        self.send({"type": "pdf", "request": request}, buffers=[lay_out(self._dot(), "pdf")])

    @answers("show-stage", "Showing the stage")
    def _show_stage(self, stage: int, compared: str | int, beside: bool) -> None:
        with self._panes.tentative():
            self.show_stage(stage, compared, beside=beside)

    @answers("show-node", "Showing the node")
    def _show_node(self, name: str, stage: int) -> None:
        """Bring a node into sight: in what is shown if it is there, and at its stage otherwise."""
        if not any(self._panes.holds(Selection("node", name, before)) for before in (False, True)):
            with self._panes.tentative():
                self._stages.walk_to(stage)
                self._show_chosen()
            self._measure_overlay_again()
        self._select_node(name)

    def _dot(self) -> str:
        return self._panes.dot(self._overlay.shown)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Add the picture and the tables, which viewers of saved notebooks show without a kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        nodes = len(self._scene.graph_module.graph.nodes)
        words = f"fxlab inspector: {model_name(self.session)}, {nodes} nodes"
        svg = self.svg
        static = {
            "text/html": static_view(words, svg, self._shown_tables),
            "image/svg+xml": svg,
            "text/plain": f"<{words}>",
        }
        return {**data, **static}, metadata
