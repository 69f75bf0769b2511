"""Where models of other origin part: ``python -m benchmarks.comparisons``.

Ports of six architectures by hand, each without a mistake and with five; kinds of attention, LoRA merges,
exported, decomposed, captured and quantized copies, other dtypes, and mistakes in some of them. A mistake is
in one layer, so it is known which module has to be named. A run writes ``docs/measured/comparisons.csv`` and
its row of ``docs/measured.md``.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
from torch import nn
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks import measured
from benchmarks.comparison_models import AT, PORTS, inputs_of, reference


def main() -> None:
    """Compare all pairs, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="compare only pairs with these words, and write nothing")
    options = parser.parse_args()
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    chosen = [case for case in cases() if all(word in case[0] for word in options.words)]
    table = pd.DataFrame([_compared(*case) for case in tqdm(chosen, unit="pair")])
    print(table.to_string())
    intact, wrong = table[table["mistake in"] == ""], table[table["mistake in"] != ""]
    figure = (
        f"{int(wrong['right'].sum())} of {len(wrong)} mistakes: the right module first; "
        f"{int((~intact['right']).sum())} of {len(intact)} intact pairs accused"
    )
    print(figure)
    print(table[~table["right"]].to_string())
    if not options.words:
        measured.write("python -m benchmarks.comparisons", figure, {"comparisons": table})


Pair = tuple[Any, ...]
"""Two models, the inputs of the first, and those of the second where they are others."""
Case = tuple[str, str, Callable[[], Pair]]
"""The words of a pair, the module of the candidate that has the mistake, and what makes the pair."""


def cases() -> Iterator[Case]:
    """Yield the pairs."""
    for name, (_, port) in PORTS.items():
        for mistake in ("", *port.block.mistakes):
            module = f"blocks.{AT}" if mistake else ""
            yield f"port of {name}, {mistake or 'right'}", module, lambda n=name, m=mistake: _ported(n, m)
    for name in ("Llama", "BERT", "ViT"):
        yield f"{name}, eager beside sdpa", "", lambda n=name: _attention(n, "")
        layer = _layer(name)
        yield f"{name}, eager beside sdpa, a weight", layer, lambda n=name, at=layer: _attention(n, at)
        yield f"{name}, bfloat16 beside float32", "", lambda n=name: _cast(n, torch.bfloat16, "")
        yield f"{name}, bfloat16, a weight", layer, lambda n=name, at=layer: _cast(n, torch.bfloat16, at)
        yield f"{name}, float64 beside float32", "", lambda n=name: _cast(n, torch.float64, "")
    for name in ("Llama", "BERT", "ViT"):
        yield f"LoRA in {name}, merged", "", lambda n=name: _lora(n, "")
        for mistake in ("scale", "transposed", "forgotten"):
            yield f"LoRA in {name}, {mistake}", _layer(name), lambda n=name, m=mistake: _lora(n, m)
    for name in ("Llama", "BERT", "ResNet", "ViT"):
        for form in ("exported", "decomposed", "captured", "passes"):
            yield f"{name}, {form}", "", lambda n=name, f=form: _captured(n, f, "")
        layer = _layer(name)
        yield f"{name}, decomposed, a weight", layer, lambda n=name, at=layer: _captured(n, "decomposed", at)
    for form in ("eager", "exported", "decomposed"):
        for name, (path, _) in _POSITIONS.items():
            yield f"{name}, {form}, other positions", path, lambda n=name, f=form: _positioned(n, f)
    for name in ("BERT", "ViT"):
        yield f"{name}, one layer quantized", _layer(name), lambda n=name: _quantized(n)


def _compared(words: str, module: str, make: Callable[[], Pair]) -> dict[str, Any]:
    original, candidate, inputs, *others = make()
    start = time.process_time()
    try:
        found = fxlab.compare(original, candidate, inputs, candidate_inputs=others[0] if others else None)
    except Exception as error:  # a pair that cannot be compared is a row as well
        return {
            "pair": words,
            "mistake in": module,
            "first": f"{type(error).__name__}: {error}",
            "right": False,
        }
    seconds = time.process_time() - start
    first = "" if found.first is None else found.first.candidate
    other = next((w.candidate for w in found.odd_weights if w.status == "other values"), "")
    is_right = f"{first or other}.".startswith(f"{module}.") if module else found.agrees and not first
    alone = len(found.alignment.unaligned)
    return {
        "pair": words,
        "mistake in": module,
        "first": first or other or ("agrees" if found.agrees else "none named"),
        "right": is_right,
        "without a partner": f"{alone} of {len(found.alignment.transformed.values)}",
        "seconds": round(seconds, 1),
    }


def _ported(name: str, mistake: str) -> Pair:
    model = reference(name)
    return model, PORTS[name][1](model, mistake).eval(), inputs_of(name)


def _layer(name: str) -> str:
    """Return the path of the layer with the mistake in the architecture itself."""
    lists = (path for path, module in reference(name).named_modules() if isinstance(module, nn.ModuleList))
    first = {"ResNet": "encoder.stages.1.layers"}.get(name) or next(lists)
    return f"{first}.{0 if name == 'ResNet' else AT}"


def _with_a_mistake(model: nn.Module, layer: str) -> nn.Module:
    """Change a row of the first matrix of a layer, if there is a layer."""
    if layer:
        weight = next(p for p in model.get_submodule(layer).parameters() if p.dim() > 1)
        with torch.no_grad():
            weight[0] *= 1.5
    return model


def _attention(name: str, layer: str) -> Pair:
    eager, sdpa = reference(name), reference(name)
    eager.set_attn_implementation("eager")
    sdpa.set_attn_implementation("sdpa")
    return eager, _with_a_mistake(sdpa, layer), inputs_of(name)


def _cast(name: str, dtype: torch.dtype, layer: str) -> Pair:
    model = reference(name)
    inputs = inputs_of(name)
    other = _with_a_mistake(copy.deepcopy(model).to(dtype), layer)
    cast = {key: v.to(dtype) if v.is_floating_point() else v for key, v in inputs.items()}
    return model, other, inputs, cast


class _Adapter(nn.Module):
    """A linear layer with a low-rank adapter."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.base = linear
        self.a = nn.Parameter(torch.randn(4, linear.in_features) * 0.3)
        self.b = nn.Parameter(torch.randn(linear.out_features, 4) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the adapter gives."""
        return self.base(x) + 0.5 * (x @ self.a.T @ self.b.T)

    def merged(self, mistake: str) -> nn.Linear:
        """Return one linear layer."""
        linear = copy.deepcopy(self.base)
        product = self.a.T @ self.b.T if mistake == "transposed" else (self.b @ self.a)
        with torch.no_grad():
            if mistake != "forgotten":
                linear.weight += (1.0 if mistake == "scale" else 0.5) * product
        return linear


def _lora(name: str, mistake: str) -> Pair:
    model = reference(name)
    merged = copy.deepcopy(model)
    layer = model.get_submodule(_layer(name)[: -len(str(AT))].rstrip("."))
    for place, block in enumerate(layer):  # type: ignore[arg-type]
        path = next(path for path, m in block.named_modules() if _is_square(m))
        adapter = _Adapter(block.get_submodule(path))
        block.set_submodule(path, adapter)
        target = f"{_layer(name)[: -len(str(AT))]}{place}.{path}"
        merged.set_submodule(target, adapter.merged(mistake if place == AT else ""))
    return model, merged, inputs_of(name)


def _is_square(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and module.in_features == module.out_features


def _captured(name: str, form: str, layer: str) -> Pair:
    model, inputs = reference(name), inputs_of(name)
    other = _with_a_mistake(copy.deepcopy(model), layer)
    if form == "captured":
        found = fxlab.Capture()
        torch.compile(other, backend=found)(**inputs)
        return model, found.graphs[0], inputs
    if form == "passes":
        session = fxlab.Session(other, inputs)
        for pass_ in session.passes:
            if pass_.preserves_computation:
                session.apply(pass_)
        return model, session, inputs
    program = torch.export.export(other, (), inputs)
    return model, program.run_decompositions() if form == "decomposed" else program, inputs


_POSITIONS: dict[str, tuple[str, Callable[[nn.Module], object]]] = {
    "Llama": ("model.rotary_emb", lambda rotary: setattr(rotary, "attention_scaling", 1.05)),
    "BERT": ("embeddings", lambda embeddings: embeddings.position_ids.add_(1)),
}
"""Where the positions of a model are made, and what makes others of them."""


def _positioned(name: str, form: str) -> Pair:
    model, inputs = reference(name), inputs_of(name)
    other = copy.deepcopy(model)
    path, change = _POSITIONS[name]
    change(other.get_submodule(path))
    if form == "eager":
        return model, other, inputs
    model, other = (torch.export.export(each, (), inputs) for each in (model, other))
    if form == "decomposed":
        model, other = model.run_decompositions(), other.run_decompositions()
    return model, other, inputs


def _quantized(name: str) -> Pair:
    """Round the weights of a layer to eight bits."""
    model = reference(name)
    other = copy.deepcopy(model)
    for module in other.get_submodule(_layer(name)).modules():
        if isinstance(module, nn.Linear):
            with torch.no_grad():
                scale = module.weight.abs().max() / 127
                module.weight.copy_((module.weight / scale).round() * scale)
    return model, other, inputs_of(name)


if __name__ == "__main__":
    main()
