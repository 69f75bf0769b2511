"""The compiler of a session: compiles its model again on each switch, and judges Dynamo's capture of it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fxlab.base.author_frames import from_author_on, placed_words
from fxlab.base.interrupts import RestoringStack, interruptible
from fxlab.base.words import error_words, listed
from fxlab.compiler.compiling.hooks import caches_kept, compile_once, fresh, generating, unfrozen
from fxlab.compiler.graphs.flat import Frame
from fxlab.compiler.graphs.held_modules import holder_of, modules_read_by
from fxlab.compiler.graphs.python_function import owner_of, plain_function
from fxlab.compiler.graphs.torch_private import lost_origins
from fxlab.compiler.recording.recorder import Recorder
from fxlab.compiler.recording.snapshot import NodeOrigin
from fxlab.compiler.recording.steps import ATEN, BORDER, WHOLE, Crash
from fxlab.models.running.arguments import Inputs, call_arguments, given_arguments, named_arguments
from fxlab.models.running.autocast import autocast_set, autocast_state
from fxlab.models.running.running import asks_for_gradients, generators_kept, seed_generators
from fxlab.models.state.model_state import state_kept
from fxlab.models.state.tensor_state import named_tensors
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.shapes.fake_state import put_back_after
from fxlab.transformations.candidate_filter import Limit
from fxlab.validation import Verdict, verdict
from fxlab.validation.outputs.computed_tensors import GRADIENT, INPUT, STATE
from fxlab.values.tensors import is_floating, same_bits, tensors_by_path

_MOST_CRASHES = 8
"""Passes that are left out because they raise, before the compile is given up."""


class CrashedError(RuntimeError):
    """A pass has raised in the first compile."""

    def __init__(self, message: str, crash: Crash) -> None:
        super().__init__(message)
        self.crash = crash


@dataclass
class Compile:
    """A compile, and the request for it."""

    off: frozenset[str]
    limits: Mapping[str, Limit]
    recorder: Recorder


class Compiler:
    """Compiles one model on its inputs, without generating code, and with gradients if it is ``training``."""

    def __init__(
        self,
        model: Callable[..., Any],
        inputs: Inputs,
        *,
        training: bool,
        options: Mapping[str, Any],
        dynamic: bool | None = None,
    ) -> None:
        self._called, self._inputs = model, inputs
        self._autocast = autocast_state()
        if isinstance(model, nn.Module):
            self._model, self._name = model, type(model).__name__
        else:
            function, given = plain_function(model), self._named(*given_arguments(inputs))
            self._model = holder_of(modules_read_by(model, given), function.__code__)
            self._name = function.__name__
        self.settings: dict[str, Any] = {
            "training": training,
            "options": {name.replace("-", "_"): value for name, value in options.items()},
            "dynamic": dynamic,
        }
        self.remarks: list[str] = []
        self.frames: list[Frame] = []
        self._crashes: list[Crash] = []
        """The passes that have raised in the first compile, and without which it was done again."""
        self.first = self._first()
        self.capture = self._judged_capture()
        """The verdict on Dynamo's capture beside the model's own run; ``None`` if all bits are the same."""

    def _first(self) -> Compile:
        """Compile for the first time; a pass that raises is left out, if that can be, and is a remark.

        Gradients are compiled as well if the model does not run without them.
        """
        while True:
            try:
                return self.compile(0, "", frozenset(), {})
            except CrashedError as error:
                crash = error.crash
                if not crash.can_skip or crash in self._crashes or len(self._crashes) >= _MOST_CRASHES:
                    raise RuntimeError(str(error)) from error.__cause__
                self._crashes.append(crash)
                self.remarks.append(f"{crash}. It was compiled without this pass, and what follows is shown.")
            except RuntimeError as error:
                if self.settings["training"] or not asks_for_gradients(error):
                    raise
                self.settings["training"] = True
                self.remarks.append("It takes derivatives itself, so gradients are compiled: training=True.")

    def _judged_capture(self) -> Verdict | None:
        """Run the model itself as it was run to be captured, and judge the capture if any bit differs."""
        args, kwargs = call_arguments(self._inputs)
        training = bool(self.settings["training"])
        around = generators_kept(), self._state_kept(args, kwargs), autocast_set(self._autocast)
        try:
            with RestoringStack(*around, torch.set_grad_enabled(training)):
                seed_generators(0)
                outcome = Outcome(self._model, self._named(args, kwargs))
                own = outcome.of(self._called(*args, **kwargs), gradients=training)
            captured = self._captured
            if captured.keys() == own.keys() and all(same_bits(captured[path], own[path]) for path in own):
                return None
            with RestoringStack(caches_kept(), autocast_set(self._autocast)):
                compiled = torch.compile(fresh(self._called), backend="eager")
                found = interruptible(verdict, self._called, compiled, self._inputs, gradients=training)
        except Exception as error:  # the model may raise anything where it is not compiled
            self.remarks.append(
                f"Dynamo's capture is not compared with the model itself: {error_words(error)}"
            )
            return None
        if not found.agrees:
            self.remarks.append(f"Dynamo's capture is not what the model computes ({CAPTURE}): {found}")
        return found

    @contextmanager
    def _state_kept(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
        """Restore all that a call may write: modules, and other state that its code reaches by names."""
        called, others = self._called, list[Any]()
        if not (is_module := isinstance(called, nn.Module)):
            values = (owner_of(called), *args, *kwargs.values())
            stateless = torch.Tensor | nn.Module | int | float | str | None
            others = [plain_function(called), *(each for each in values if not isinstance(each, stateless))]
        around = Surroundings(self._model, *others)
        everything = nn.ModuleList([self._model, *around.modules]) if around.modules else self._model
        tensors = *everything.parameters(), *around.outside
        # A step writes its parameters. Dynamo would see a mode that watches, and capture another graph.
        written = [each for each in tensors if not (is_module and isinstance(each, nn.Parameter))]
        kept = state_kept(everything, watch=False, parameters=written, others=around.tensors)
        with put_back_after(around), kept:
            yield

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return named_arguments(self._called, args, kwargs)

    capture: Verdict | None = None
    """``None`` also of recorded scripts, whose model is not at hand."""
    recorded_by = ""
    """The Python that records code which cannot be compiled again here; empty if it can be."""

    def compile(
        self,
        number: int,
        kind: str,
        off: frozenset[str],
        limits: Mapping[str, Limit],
        *,
        generates: bool = False,
    ) -> Compile:
        """Compile once, with passes of one stack of one graph off or limited."""

        def is_meant(of: str) -> bool:
            return of == kind and len(recorder.recordings) == number + 1

        crashed = {(*crash.graph, crash.pass_) for crash in self._crashes}

        def may_run(of: str, name: str) -> bool:
            has_crashed = (len(recorder.recordings) - 1, of, name) in crashed
            return not (has_crashed or (is_meant(of) and name in off))

        def may_match(of: str, name: str, anchor: str, made: Mapping[str, NodeOrigin]) -> bool:
            limit = limits.get(name) if is_meant(of) else None
            if limit is None:
                return True
            return limit.why_not([self.frames[number].names.of(ATEN, anchor, made)]) is None

        recorder = Recorder(may_run, may_match, runs_each=True)
        args, kwargs = call_arguments(self._inputs)
        try:
            with RestoringStack(generators_kept(), self._state_kept(args, kwargs)) as stack:
                if generates:
                    stack.enter_context(generating())
                seed_generators(0)
                options = self.settings | {"generates": generates}
                stack.enter_context(autocast_set(self._autocast))
                outcome = Outcome(self._model, self._named(args, kwargs))
                result, remarks = interruptible(compile_once, self._called, args, kwargs, recorder, **options)
                if not self.frames:
                    self._captured = outcome.of(result, gradients=options["training"])
        except Exception as error:
            failure = _failure(self._name, error)
            if recorder.crash is not None and not self.frames:
                failure = CrashedError(str(failure), recorder.crash)
            raise failure from error.with_traceback(from_author_on(error))
        recorder.finish()
        if not self.frames:
            frozen = unfrozen(self.settings["options"], training=self.settings["training"])
            steps = (step for one in recorder.recordings for step in one.stacks[WHOLE].steps)
            lost = [lost_origins(step.after.graph) for step in steps if step.name == BORDER]
            self.remarks += dict.fromkeys(filter(None, [*remarks, frozen, *lost, *recorder.remarks]))
            ran = _without_modules(self._named(args, kwargs))
            given = _without_modules(self._named(*call_arguments(self._inputs)))
            for place, recording in enumerate(recorder.recordings):
                # A later graph of the model takes results of the graphs before it and of Python.
                known = ({}, {}) if place else (given, ran)
                self.frames.append(frame := Frame(self._model, *known, recording))
                self.remarks += [words for words in frame.remarks if words not in self.remarks]
        return Compile(off, dict(limits), recorder)


def _without_modules(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if not isinstance(value, nn.Module)}


_LONGEST = 1200
"""The most characters of a compiler's own message: that of C++ has all of its code in it."""
_KERNEL = re.compile(r"(?:cpp|triton)_\w*fused\w*")


def _failure(name: str, error: Exception) -> RuntimeError:
    words = placed_words(error)
    if len(words) > _LONGEST:
        # Inductor knows kernels by name: those that were compiled where the exception was raised.
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        values = (value for frame in frames for value in [*frame.f_locals.values()])
        kernels = listed(dict.fromkeys(v for v in values if isinstance(v, str) and _KERNEL.fullmatch(v)))
        told = [line.strip() for line in words.splitlines() if "error:" in line]
        first = "\n".join(told[:3] or words.splitlines()[:3])[:_LONGEST]
        words = f"{words.splitlines()[0][:200]}{f' in {kernels}' if kernels else ''}:\n{first}"
    return RuntimeError(f"Compiling {name} failed, and nothing was changed. {words}")


CAPTURE = "capture"
"""The name of the stage that Dynamo's capture is: what the model's Python computes becomes graphs."""


class Outcome:
    """The tensors that a call returns and writes, and gradients.

    ``module``: holds the modules that the call reads. ``arguments``: those of the call, by name.
    """

    def __init__(self, module: nn.Module, arguments: Mapping[str, Any]) -> None:
        self._module, self._arguments = module, arguments
        self._versions = {name: tensor._version for name, tensor in self._held()}

    def _held(self) -> list[tuple[str, torch.Tensor]]:
        held = [(STATE + name, tensor) for name, tensor in named_tensors(self._module)]
        held += [(INPUT + name, tensor) for name, tensor in tensors_by_path(self._arguments).items()]
        return [(name, tensor) for name, tensor in held if not tensor.is_inference()]

    def of(self, result: Any, *, gradients: bool) -> dict[str, torch.Tensor]:
        """Return copies of the tensors that the call has returned and written, and gradients if asked for."""
        returned = tensors_by_path(result)
        written = {name: t for name, t in self._held() if self._versions.get(name) != t._version}
        found = {path: tensor.detach().clone() for path, tensor in (returned | written).items()}
        return found | (self._gradients(returned) if gradients else {})

    def _gradients(self, returned: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        heads = {path: t for path, t in returned.items() if t.requires_grad and is_floating(t)}
        leaves = {name: tensor for name, tensor in self._held() if tensor.requires_grad and tensor.is_leaf}
        if not heads or not leaves:
            return {}
        generator = torch.Generator().manual_seed(0)
        drawn = [torch.randn(t.shape, generator=generator, device="cpu").to(t) for t in heads.values()]
        try:
            found = torch.autograd.grad([*heads.values()], [*leaves.values()], drawn, allow_unused=True)
        except RuntimeError:  # the model has run its backward pass itself
            return {}
        return {GRADIENT + name: g for name, g in zip(leaves, found, strict=True) if g is not None}
