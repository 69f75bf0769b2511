"""Judging a model that does not fit in memory (``python -m benchmarks.larger_than_memory --gigabytes 30``).

A synthetic Llama in bfloat16 is written to disk, shard by shard, and judged by a process that may have a
limited memory of its own, as against files that are mapped. It merges its linears, and once more with a
mistake of 1% in one layer, which has to be found by its name. Printed are the largest memory that the
process had, and the times as multiples of reading the files once.

Before, tensors of fxlab's own read weights anew for each operation. Of 4 GB, merged and judged (2026-11-29),
those took 1.67 GB of own memory and 52 s of the processor; mapped files 3.72 GB, as merged weights grow with
the model; mapped files with new weights in files 1.38 GB and 31 s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GB = 10**9
SHARD = 2 * GB
"""The most bytes of a shard, all but the largest tensor."""
WRONG = "layers.{}.mlp"
PARTS = {
    "self_attn.q_proj": ("hidden", "hidden"),
    "self_attn.k_proj": ("keys", "hidden"),
    "self_attn.v_proj": ("keys", "hidden"),
    "self_attn.o_proj": ("hidden", "hidden"),
    "mlp.gate_proj": ("inner", "hidden"),
    "mlp.up_proj": ("inner", "hidden"),
    "mlp.down_proj": ("hidden", "inner"),
    "input_layernorm": ("hidden",),
    "post_attention_layernorm": ("hidden",),
}


def main() -> None:
    """Write the model if it is not there, and measure in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=30.0, help="of the weights on disk")
    parser.add_argument("--limit", type=float, default=4.0, help="GB of own memory that it may have")
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--folder", type=Path, help="where the weights are, or are written and kept")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--mistake-alone", action="store_true", help="do not judge it without the mistake")
    parser.add_argument(
        "--wrong-layer", type=int, help="the layer with a mistake, the middle one if left out"
    )
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        judge(options)
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fxlab-"))
    try:
        if not (folder / "config.json").exists():
            write_model(folder, options.gigabytes, options.hidden)
        files = sorted(folder.glob("*.safetensors"))
        size, read = sum(file.stat().st_size for file in files), reading(files)
        print(f"{size / GB:.1f} GB in {len(files)} files, read once in {read:.1f} s")
        command = [sys.executable, "-m", "benchmarks.larger_than_memory", "--judge", "--folder", str(folder)]
        command += ["--limit", str(options.limit), "--threads", str(options.threads)]
        command += ["--mistake-alone"] if options.mistake_alone else []
        command += [] if options.wrong_layer is None else ["--wrong-layer", str(options.wrong_layer)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                task, seconds, text = json.loads(line)
                times = f" ({seconds / read:.1f} times reading the files)" if seconds else ""
                print(f"{task}: {f'{seconds:.1f} s' if seconds else ''}{times} {text}", flush=True)
        if process.returncode:
            sys.exit(f"The process that judges ended with {process.returncode}.")
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


def write_model(folder: Path, gigabytes: float, hidden: int) -> None:
    """Write a configuration, and random weights of about that size, one shard after the other."""
    import torch
    from safetensors.torch import save_file

    sizes = {"hidden": hidden, "keys": hidden // 4, "inner": hidden * 11 // 4, "words": 32000}
    in_layer = sum(2 * _count(sizes[name] for name in shape) for shape in PARTS.values())
    layers = max(2, round((gigabytes * GB - 4 * 32000 * hidden) / in_layer))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": sizes["inner"],
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 128,
        "num_key_value_heads": hidden // 512,
        "vocab_size": 32000,
        "torch_dtype": "bfloat16",
        "use_cache": False,
        "tie_word_embeddings": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {"model.embed_tokens.weight": ("words", "hidden"), "model.norm.weight": ("hidden",)}
    shapes |= {"lm_head.weight": ("words", "hidden")}
    for layer in range(layers):
        shapes |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in PARTS.items()}
    generator = torch.Generator().manual_seed(0)
    shard: dict[str, torch.Tensor] = {}
    index: dict[str, str] = {}
    number = 0

    def flush() -> None:
        name = f"model-{number:05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        index.update(dict.fromkeys(shard, name))
        shard.clear()

    for name, shape in shapes.items():
        given = [sizes[each] for each in shape]
        values = torch.randn(given, generator=generator, dtype=torch.float32).mul_(hidden**-0.5)
        shard[name] = (values if len(given) > 1 else values.add_(1)).to(torch.bfloat16)
        if sum(tensor.nbytes for tensor in shard.values()) > SHARD / 2:
            flush()
            number += 1
    if shard:
        flush()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "config.json").write_text(json.dumps(config))


def _count(sizes: Iterator[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def reading(files: list[Path]) -> float:
    """Return how many seconds it takes to read files once, from the disk and not from memory."""
    forget(files)
    start = time.perf_counter()
    buffer = bytearray(2**24)
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while stream.readinto(buffer):
                pass
    return time.perf_counter() - start


def forget(files: list[Path]) -> None:
    """Let the system forget what it has read of files."""
    for file in files:
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def judge(options: argparse.Namespace) -> None:
    """Judge the model in this process, and print a line of JSON for each thing that is measured."""
    folder = options.folder
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    import fxlab

    logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    files = sorted(folder.glob("*.safetensors"))

    class WrongMerge(fxlab.MergeLinears):
        """Merges linears, and is 1% off in one of them."""

        def rewrite(self, candidate: Any, edit: Any) -> Any:
            merged = super().rewrite(candidate, edit)
            if wrong in str(merged.target):
                linear = edit.graph_module.get_submodule(merged.target)
                rows = linear.out_features // 2
                with torch.no_grad():
                    parts = linear.weight[:rows] * 1.01, linear.weight[rows:]
                    linear.weight = torch.nn.Parameter(torch.cat(parts))
            return merged

    def timed(task: str, do: Callable[[], Any], say: Callable[[Any], str] = str) -> Any:
        forget(files)
        memory.anonymous = 0
        start = time.perf_counter()
        result = do()
        seconds = time.perf_counter() - start
        assert memory.anonymous < options.limit * GB, f"{task}: {memory.anonymous / GB:.2f} GB"
        print(json.dumps([task, seconds, f"{memory.anonymous / GB:.2f} GB. {say(result)}"]), flush=True)
        return result

    with Memory() as memory:
        with torch.device("meta"):
            model = LlamaForCausalLM._from_config(LlamaConfig.from_pretrained(folder), dtype=torch.bfloat16)
        layer = options.wrong_layer
        wrong = WRONG.format(model.config.num_hidden_layers // 2 if layer is None else layer)
        inputs = fxlab.example_inputs(model.eval(), batch_size=1, sequence_length=4)
        passes: list[fxlab.Transformation] = [fxlab.FuseRMSNorm(), fxlab.MergeLinears(), WrongMerge()]
        session = timed(
            "session", lambda: fxlab.Session(model, inputs, passes=passes, weights=folder), lambda s: ""
        )
        session.apply("fuse-rms-norm")
        if not options.mistake_alone:
            timed("merged", lambda: session.apply("merge-linears"), lambda _: "")
            assert timed("verdict", session.verdict).agrees
            nodes = len(session.graph_module.graph.nodes)
            timed(
                "compare_nodes",
                lambda: fxlab.compare_nodes(session.original, session.graph_module, session.inputs),
                lambda t: f"{len(t)} of {nodes} nodes",
            )
            session.revert("merge-linears")
        session.apply("wrong-merge")
        found = timed(
            "first_divergence",
            lambda: fxlab.first_divergence(session.original, session.graph_module, session.inputs),
        )
        assert re.search(rf"layers_{wrong.split('.')[1]}_mlp", found.node), found
        assert not timed("verdict with a mistake of 1%", session.verdict).agrees
    print(json.dumps(["largest", 0, f"{memory.largest / GB:.2f} GB of memory, with what is mapped"]))


class Memory:
    """The largest memory of this process's own, looked up every hundredth of a second."""

    def __enter__(self) -> Memory:
        self.anonymous = self.all = 0
        self._done = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def largest(self) -> int:
        """The most bytes that the process ever had in memory, with those of files that it maps."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self._look()

    def _look(self) -> None:
        status = Path("/proc/self/status").read_text()
        sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", status, re.MULTILINE))
        self.anonymous = max(self.anonymous, int(sizes["RssAnon"]) * 1024)


if __name__ == "__main__":
    main()
