"""A first picture in a fresh process: processor seconds from a loaded model to an SVG, imports included.

People meet a viewer once for each kernel that they start, so each run is a new process. torchvista ends with
its page, Model Explorer with the JSON that its page reads, made of a program of ``torch.export``. fxlab's
check of the graph follows while its picture is looked at. IPython is there, as in every kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial

from benchmarks.measure import Comparison, Seconds

MODELS = {
    "BERT-base": "BertModel(BertConfig())",
    "ViT-base": "ViTModel(ViTConfig())",
    "ResNet-50": "ResNetModel(ResNetConfig())",
    "Llama of 32 layers (on meta)": "LlamaModel(LlamaConfig(num_hidden_layers=32, use_cache=False))",
}
_INPUTS = {
    "ViTModel": "{'pixel_values': torch.zeros(2, 3, 224, 224)}",
    "ResNetModel": "{'pixel_values': torch.zeros(2, 3, 224, 224)}",
}
_TEXT = "{name: torch.ones(2, 12, dtype=torch.int64) for name in ('input_ids', 'attention_mask')}"
_TOOLS = {
    "fxlab": """
        import fxlab
        assert "<svg" in fxlab.inspect(model, inputs).svg
    """,
    "torchvista": """
        import contextlib, inspect, io
        from torchvista import trace_model
        with contextlib.redirect_stdout(io.StringIO()):
            trace_model(model, inspect.signature(model.forward).bind(**inputs).args, export_path="graph.html")
    """,
    "torch.export and Model Explorer": """
        from model_explorer.pytorch_exported_program_adapter_impl import PytorchExportedProgramAdapterImpl
        program = torch.export.export(model, (), inputs, strict=False)
        if next(model.parameters()).is_meta:
            program.example_inputs = None
        PytorchExportedProgramAdapterImpl(program, {"const_element_count_limit": 16}).convert()
    """,
}
_PROGRAM = """
from benchmarks.peers import let_torchvision_be_imported
let_torchvision_be_imported()
import contextlib, os, tempfile, time
import IPython, torch
from transformers import {cls}, {config}
os.chdir(tempfile.mkdtemp())
torch.manual_seed(0)
with torch.device("{device}"):
    model, inputs = {model}.eval(), {inputs}
start = time.process_time()
{code}
print(time.process_time() - start)
"""


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    for name in MODELS:
        on_meta = name.endswith("(on meta)")
        for tool in [*_TOOLS][2 if on_meta else 1 :]:
            ours, peer = (partial(processor_seconds, name, one) for one in ("fxlab", tool))
            yield Comparison(
                f"from {name} to a first picture, in a fresh process", tool, ours, peer, rounds=5
            )


def processor_seconds(name: str, tool: str) -> Seconds:
    """Return the seconds that a new process spends on a picture of a model that it has loaded."""
    model = MODELS[name]
    cls = model.partition("(")[0]
    program = _PROGRAM.format(
        cls=cls,
        config=cls.replace("Model", "Config"),
        device="meta" if name.endswith("(on meta)") else "cpu",
        model=model,
        inputs=_INPUTS.get(cls, _TEXT),
        code=textwrap.dedent(_TOOLS[tool]),
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    # Python keeps what it has compiled, as on anybody's machine.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return Seconds(ran.stdout.splitlines()[-1])
