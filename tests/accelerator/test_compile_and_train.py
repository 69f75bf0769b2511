"""Compiling and training on an accelerator, recorded, judged and the same as without fxlab."""

import contextlib
import importlib.util

import pytest
import torch
import transformers as hf
from accelerator_models import Model, made
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import fxlab

pytestmark = [pytest.mark.accelerator, pytest.mark.filterwarnings("ignore")]


def gpt2(device, **settings):
    torch.manual_seed(0)
    config = hf.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_positions=64, **settings)
    return hf.GPT2LMHeadModel(config).to(device)


def llama(device, **settings):
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        vocab_size=100,
        **settings,
    )
    return hf.LlamaForCausalLM(config).eval().to(device)


def trained(device, *, autocast=None, mode=None):
    """Return the losses of three steps of a compiled GPT-2 with dropout."""
    torch.compiler.reset()
    model = gpt2(device, attn_pdrop=0.0).train()  # the kernels of CUDA draw inside
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device.type, enabled=autocast == torch.float16)
    compiled = torch.compile(model, mode=mode)
    generator, losses = torch.Generator().manual_seed(1), []
    torch.manual_seed(0)
    for _ in range(3):
        batch = torch.randint(0, 100, (2, 16), generator=generator).to(device)
        around = contextlib.nullcontext() if autocast is None else torch.autocast(device.type, autocast)
        with around:
            loss = compiled(input_ids=batch, labels=batch).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def agree(record):
    verdicts = {name: session.verdict() for name, session in record.sessions.items()}
    wrong = {name: str(verdict) for name, verdict in verdicts.items() if not verdict.agrees}
    return verdicts and not wrong, wrong


@pytest.mark.parametrize("autocast", [None, torch.float16, torch.bfloat16], ids=str)
def test_a_compiled_training_loop_computes_what_it_did_and_is_judged(device, autocast):
    expected = trained(device, autocast=autocast)
    with fxlab.compiler.record_compile() as record:
        losses = trained(device, autocast=autocast)
    assert losses == pytest.approx(expected, rel=1e-3)  # some kernels add up in any order
    right, wrong = agree(record)
    assert right, wrong
    assert len(record.story())


def test_graphs_of_cuda_are_recorded(device):
    mode = "reduce-overhead" if device.type == "cuda" else None
    expected = trained(device, mode=mode)
    with fxlab.compiler.record_compile() as record:
        losses = trained(device, mode=mode)
    assert losses == pytest.approx(expected, rel=1e-3)
    right, wrong = agree(record)
    assert right, wrong


def test_first_divergence_accuses_no_intact_compile(device, ids):
    for training in (False, True):
        model = made(device).train(training)
        options = {"fallback_random": True}
        session = fxlab.compiler.compile_session(model, ids, training=training, options=options)
        assert session.verdict().agrees, session.verdict()
        assert fxlab.first_divergence(session.original, session.graph_module, session.inputs) is None
        session.generate_code()
        assert session.verdict().agrees, session.verdict()
        assert fxlab.first_divergence(session.original, session.graph_module, session.inputs) is None


def test_a_wrong_pass_of_a_compile_is_named(device, ids):
    def wrong(graph):
        (product, *_) = graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
        product.update_kwarg("alpha", 1.01)

    session = fxlab.compiler.compile_session(made(device), ids, options={"post_grad_custom_post_pass": wrong})
    assert not session.verdict().agrees
    assert "wrong" in str(fxlab.bisect(session)) or "post_grad_custom_post_pass" in str(fxlab.bisect(session))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_passes_over_a_padded_llama(device, dtype, attention):
    model = llama(device, attn_implementation=attention).to(dtype)
    tokens = torch.randint(0, 100, (3, 12), generator=torch.Generator().manual_seed(1)).to(device)
    mask = torch.ones_like(tokens)
    mask[1, :5], mask[2, 9:] = 0, 0
    session = fxlab.Session(model, {"input_ids": tokens, "attention_mask": mask, "use_cache": False})
    on = []
    for name in ("FuseAttention", "RemoveRepeatedHeads", "FuseRMSNorm", "MergeLinears", "FuseActivation"):
        with contextlib.suppress(ValueError):
            session.apply(getattr(fxlab, name)())
            on.append(name)
        verdict = session.verdict()
        assert verdict.agrees, (on, str(verdict))
    assert fxlab.first_divergence(session.original, session.graph_module, session.inputs) is None


def test_a_model_in_use_trains_as_eager(device):
    model, other = (
        gpt2(device, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
        gpt2(device, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    )
    batch = torch.randint(0, 100, (2, 16), generator=torch.Generator().manual_seed(1)).to(device)
    session = fxlab.Session(model.train(), {"input_ids": batch, "labels": batch})
    model.compile(backend=fxlab.as_backend(session))
    losses = []
    for each in (model, other.train()):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        for _ in range(3):
            loss = each(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-4)


def test_batches_of_a_loader_are_evaluated(device):
    loader = DataLoader(torch.randint(0, 50, (16, 32), generator=torch.Generator().manual_seed(1)), 4)
    model = made(device)
    session = fxlab.Session(model, next(iter(loader)).to(device))
    session.apply(fxlab.MergeLinears())
    assert session.evaluate(batch.to(device) for batch in loader).agrees


def test_times_and_memory_have_tables(device, ids):
    session = fxlab.Session(made(device), ids)
    session.apply(fxlab.MergeLinears())
    assert fxlab.benchmark(session, rounds=3).speedup > 0
    assert len(fxlab.profile(session))
    assert fxlab.memory(session).peak > 0


KERNEL = """
import triton
from triton import language as tl

@triton.jit
def scaled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(out + at, values * tl.sigmoid(values), mask=at < n)
"""


def test_a_kernel_of_triton_is_a_node_and_judged(device, tmp_path):
    if device.type != "cuda":
        pytest.skip("Triton needs a GPU")
    triton = pytest.importorskip("triton")
    path = tmp_path / "kernels.py"  # Triton reads the source of a kernel from its file
    path.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("kernels", path)
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)

    @torch.library.triton_op("accelerator::swish", mutates_args={})
    def swish(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernels.scaled)[(triton.cdiv(x.numel(), 256),)](
            x, out, x.numel(), BLOCK=256
        )
        return out

    class Swishes(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x):
            return swish(self.first(x)) + swish(self.second(x))

    torch.manual_seed(0)
    session = fxlab.Session(Swishes().to(device).eval(), torch.randn(32, 64, device=device))
    session.apply(fxlab.MergeLinears())
    assert session.verdict().agrees, session.verdict()
    written = fxlab.from_pattern(
        lambda x: torch.ops.accelerator.swish(x), lambda x: F.silu(x), name="written"
    )
    session.apply(written)
    assert session.verdict().agrees, session.verdict()


def test_a_moved_model_is_traced_on_its_device(device):
    model = Model()
    session = fxlab.Session(model.to(device).eval(), torch.zeros(2, 8, dtype=torch.long, device=device))
    placed = {node.meta["val"].device.type for node in session.graph_module.graph.nodes if "val" in node.meta}
    assert placed <= {device.type}
