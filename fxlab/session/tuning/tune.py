"""Choose the passes that make a model faster and keep what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from torch.fx import GraphModule
from tqdm import tqdm

from fxlab.checks import described, duration, flag, positive_int
from fxlab.models.running import Inputs
from fxlab.session.session import Session
from fxlab.session.tuning.result import Tuning
from fxlab.session.tuning.search import Search
from fxlab.sources import inputs_or_examples
from fxlab.transformations import Transformation
from fxlab.validation.arguments import check_runs, passes_of
from fxlab.validation.cost.in_turns import seconds_in_turns


def tune(
    session: Session,
    inputs: Inputs | None = None,
    *,
    passes: Iterable[Transformation | str] | None = None,
    exclusions: bool = True,
    rounds: int = 15,
    min_seconds: float = 0.02,
    clock: Callable[[], float] | None = None,
) -> Tuning:
    """Switch on the passes that make a model faster beyond noise and compute the same, and say why.

    Passes are chosen one after the other. Each that is left is timed on top of those that are chosen, all in
    turns as by :func:`fxlab.benchmark`, without gradients. The fastest is measured once more against them
    alone, and is kept if it is *faster* both times and the :func:`verdict` on the whole stack agrees. Then
    candidates are excluded where that is faster, and passes that do not pay everywhere are tried at one
    kind of place alone.

    The session gets the chosen stack as one change, which :meth:`Session.undo` takes back. Until then it is
    as it was: also after an error, or an interrupt (Ctrl-C).

    Parameters
    ----------
    session
        The model and the passes on offer. Those that it excludes candidates from go on doing so.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor, of the sizes that the
        model will be used with; times and verdicts are those on them. Left out, the session's.
    passes
        The passes to choose from, or their names; other passes stay as they are. Left out, all on offer.
    exclusions
        Whether to try parts of the candidates of a pass: those in the same place of equal layers, where there
        are at most four such groups.
    rounds
        How often each stack is timed.
    min_seconds
        How long a round runs the model at least; short models are called several times.
    clock
        A function that returns seconds. Left out, it is the time that passes. On one thread of a busy CPU
        ``time.process_time`` tells more, which stands still while other processes run.

    Returns
    -------
    Tuning
        Its ``table()`` has a row for each trial: what is kept, the ratio with its spread, and the reason.
        ``ratio`` and ``verdict`` are those of the whole stack.

    Raises
    ------
    TypeError
        If ``session`` is no session of fxlab's passes, or an argument is not what is expected.
    ValueError
        If a name is not that of a pass, or the model does not run or has no weights.

    Notes
    -----
    How many measurements that takes is linear in the number of passes, for each that is kept. Passes that are
    only faster together are not found. Times are of this machine and of these inputs.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d, tune
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> session = Session(model, torch.randn(1, 3, 8, 8), passes=[FuseBatchNorm2dInConv2d()])
    >>> tuning = tune(session, rounds=3, min_seconds=0.001)
    >>> tuning.table()[["pass", "where"]].values.tolist()
    [['fuse-batch-norm2d-in-conv2d', 'everywhere']]
    >>> tuning.kept == tuple(pass_.name for pass_ in session.applied)
    True
    """
    if type(session) is not Session:
        raise TypeError(
            f"session: expected an fxlab.Session, got {described(session)}. Make one of the model: "
            "fxlab.Session(model, inputs). What passes of torch.compile buy, an eager run does not show."
        )
    flag(exclusions, "exclusions")
    positive_int(rounds, "rounds")
    duration(min_seconds, "min_seconds")
    if clock is not None and not callable(clock):
        raise TypeError(f"clock: expected a function that returns seconds, got {described(clock)}.")
    check_runs(session.original, "session.original")
    given = inputs_or_examples(session.inputs if inputs is None else inputs, session.original)
    chosen_passes = session.passes if passes is None else passes_of(session.passes, passes)
    names = tuple(str(pass_.name) for pass_ in chosen_passes)
    with tqdm(total=0, disable=None, leave=False, unit="timing") as bar:

        def measure(words: str, models: Mapping[str, GraphModule]) -> dict[str, list[float]]:
            bar.total += rounds * len(models)
            bar.set_description_str(words)
            return seconds_in_turns(models, given, rounds, min_seconds, bar.update, clock)

        switches = session._switches
        start = replace(switches, on=switches.on - {*names})
        search = Search(session.original, session._offer.limited, start, names, given, measure)
        tuning, chosen = search.run(exclusions=exclusions)
    session._switch_to(chosen, among=names)
    return tuning
