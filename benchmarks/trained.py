"""Models whose trained weights packages carry: ``python -m benchmarks.trained`` writes ``trained.csv``.

Each is traced in float32 and in bfloat16, every pass that applies is switched on, and the result is judged on
real input (voices made by code, a photograph, a sentence) and its variants. People decide by its numbers:
which pitch, whether somebody speaks, whose voice, whether it is a face, where a word begins. A decision that
differs afterwards has to lie within twice the distance of the original's numbers from those of float64.
The packages are in an environment of their own, with the versions of ``constraints-trained.txt``, which sees
the development environment's packages; it is made in ``.venv-trained`` when it is not there.
"""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.utils import _pytree as pytree

import fxlab
from benchmarks import measured
from benchmarks.environments import ROOT, python_with
from benchmarks.peers import let_torchvision_be_imported
from fxlab.operators.node_info import dtype_name

RATE = 16_000
PITCHES = 100.0, 103.0, 160.0, 165.0, 250.0, 257.0
SENTENCE = (
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม "
    "และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ"
)
"""The first article of the Universal Declaration of Human Rights; Thai has no spaces between words."""

AGREE = "same bits", "within the model's own rounding"


@dataclass(frozen=True)
class Trained:
    """A model, its input, and the scores of choices, of which its users take the highest."""

    model: nn.Module
    inputs: tuple[Any, ...]
    scores: Callable[[Any], torch.Tensor]
    decision: str


def voice(pitch: float, seconds: float = 1.0) -> torch.Tensor:
    """Return a vowel with a vibrato, and silence after it."""
    time = torch.arange(int(RATE * seconds)) / RATE
    phase = torch.cumsum(2 * math.pi * pitch * (1 + 0.02 * torch.sin(10 * math.pi * time)) / RATE, 0)
    sound = torch.zeros_like(time)
    for harmonic in range(1, 30):
        formants = ((700, 1.0), (1220, 0.5), (2600, 0.25))
        loudness = sum(gain / (1 + ((harmonic * pitch - at) / 150) ** 2) for at, gain in formants)
        sound += loudness * torch.sin(harmonic * phase)
    return 0.3 * sound / sound.abs().max() * (time < 0.7 * seconds)


def photograph(left: int, top: int, width: int, size: int) -> torch.Tensor:
    """Return a square of the portrait of Grace Hopper that matplotlib carries."""
    import numpy
    from matplotlib import cbook
    from PIL import Image

    with Image.open(cbook.get_sample_data("grace_hopper.jpg")) as picture:  # type: ignore[arg-type]
        square = picture.convert("RGB").crop((left, top, left + width, top + width)).resize((size, size))
    return (torch.from_numpy(numpy.array(square)).float().permute(2, 0, 1) - 127.5) / 128


def against(value: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the scores of a decision by a threshold."""
    return torch.stack([torch.full_like(value, threshold), value], -1).flatten(0, -2)


def torchcrepe() -> Trained:
    """A tracker of pitch: convolutions, each with relu and batch norm."""
    import torchcrepe

    torchcrepe.load.model("cpu", "tiny")
    frames = voice(220.0).unfold(0, 1024, 320)
    frames = frames - frames.mean(1, keepdim=True)
    frames = frames / frames.std(1, keepdim=True).clamp(min=1e-10)
    return Trained(torchcrepe.infer.model, (frames,), lambda bins: bins, "pitch of a frame")


class SileroVad(nn.Module):
    """The network for 16 kHz that silero-vad carries as TorchScript, which has no Python to record."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1, self.conv2 = nn.Conv1d(129, 128, 3, padding=1), nn.Conv1d(128, 64, 3, 2, padding=1)
        self.conv3, self.conv4 = nn.Conv1d(64, 64, 3, 2, padding=1), nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell, self.final_conv = nn.LSTMCell(128, 128), nn.Conv1d(128, 1, 1)

    def forward(self, sound: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> Any:
        """Return the probability of speech, and the state for the next 32 ms."""
        x = self.stft_conv(F.pad(sound, (0, 64), "reflect").unsqueeze(1))
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(layer(x))
        hidden, cell = self.lstm_cell(x.squeeze(-1), (hidden, cell))
        return torch.sigmoid(self.final_conv(F.relu(hidden).unsqueeze(-1))).mean((1, 2)), hidden, cell


def silero_vad() -> Trained:
    """A detector of speech: convolutions and a cell of an LSTM."""
    from silero_vad import load_silero_vad

    model, weights = SileroVad(), load_silero_vad()._model.state_dict().values()
    model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
    parts = torch.cat([F.pad(voice(pitch), (64, 0)).unfold(0, 576, 512) for pitch in (110.0, 180.0)])
    state = torch.zeros(len(parts), 128), torch.zeros(len(parts), 128)
    return Trained(model, (parts, *state), lambda found: against(found[0], 0.5), "speech or none")


def resemblyzer() -> Trained:
    """An encoder of voices: an LSTM of three layers."""
    import resemblyzer

    mels = [resemblyzer.wav_to_mel_spectrogram(voice(pitch, 1.6).numpy())[:160] for pitch in PITCHES]
    inputs = (torch.stack([torch.from_numpy(mel) for mel in mels]),)
    encoder, itself = resemblyzer.VoiceEncoder("cpu", verbose=False), 2 * torch.eye(len(mels))
    return Trained(encoder, inputs, lambda codes: codes @ codes.T - itself.to(codes), "nearest voice")


def torchfcpe() -> Trained:
    """A tracker of pitch: a conformer."""
    import torchfcpe

    tracker = torchfcpe.spawn_bundled_infer_model("cpu")
    mel = tracker.wav2mel(voice(220.0)[None, :, None], RATE)
    return Trained(tracker.model, (mel,), lambda bins: bins.flatten(0, 1), "pitch of a frame")


def face_net(name: str) -> Trained:
    """One of the three networks of MTCNN, on squares of the photograph."""
    from facenet_pytorch.models import mtcnn

    squares = ((150, 80, 230), (0, 0, 200), (200, 350, 150), (130, 60, 270))
    size, threshold = {"PNet": (96, 0.6), "RNet": (24, 0.7), "ONet": (48, 0.7)}[name]
    pixels = torch.stack([photograph(*square, size) for square in squares])
    net = getattr(mtcnn, name)()
    return Trained(net, (pixels,), lambda found: against(found[-1][:, 1], threshold), "face or none")


def lpips() -> Trained:
    """A measure of how different pictures are to people, by trained heads on AlexNet with random weights."""
    import lpips

    torch.manual_seed(0)
    model = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    picture = torch.stack([photograph(left, 60, 256, 64) for left in (60, 110, 160)])
    inputs = picture.repeat(2, 1, 1, 1), torch.cat([F.avg_pool2d(picture, 3, 1, 1), picture.roll(1, -1)])
    return Trained(model, inputs, lambda far: -far.view(2, -1).T, "nearer picture")


def attacut(name: str) -> Trained:
    """A splitter of Thai text into words: embeddings and convolutions, some with batch norms."""
    from attacut.tokenizer import Tokenizer

    tokenizer = Tokenizer(name)
    inputs = (tokenizer.dataset.make_feature(SENTENCE)[1],)
    return Trained(tokenizer.model, inputs, lambda logits: against(logits, 0.0), "word begins or not")


MODELS: dict[str, tuple[str, str, Callable[[], Trained]]] = {
    "torchcrepe, tiny": ("torchcrepe", "MIT", torchcrepe),
    "silero-vad, 16 kHz": ("silero-vad", "MIT", silero_vad),
    "resemblyzer": ("resemblyzer", "Apache-2.0", resemblyzer),
    "torchfcpe": ("torchfcpe", "MIT", torchfcpe),
    **{
        f"MTCNN, {net}": ("facenet-pytorch", "MIT", partial(face_net, net))
        for net in ("PNet", "RNet", "ONet")
    },
    "lpips, heads": ("lpips", "BSD-2-Clause", lpips),
    **{name: ("attacut", "MIT", partial(attacut, name)) for name in ("attacut-sc", "attacut-c")},
}
"""Package, licence and how to make each model."""


def python() -> Path:
    """Return the Python of the environment that has the packages."""
    return python_with(".venv-trained", ["-r", str(ROOT / "constraints-trained.txt")])


def rows() -> Iterator[dict[str, Any]]:
    """Yield the rows of all models, which run in the environment that has the packages."""
    command = [str(python()), "-W", "ignore", "-m", "benchmarks.trained", "--here"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")


def judged(name: str, dtype: torch.dtype) -> dict[str, Any]:
    """Return the row of a model in a dtype."""
    package, licence, make = MODELS[name]
    trained = make()
    model, inputs = trained.model.eval().to(dtype), cast(trained.inputs, dtype)
    session = fxlab.Session(model, inputs)
    for pass_ in session.passes:
        session.apply(pass_)
    changed = [pass_.name for pass_ in session.applied if session.changes(pass_).rewrites]
    verdict, times = session.verdict(variants=True), fxlab.benchmark(session, rounds=5)
    with torch.no_grad():
        graphs = session.original, session.graph_module
        before, after = (trained.scores(graph(*inputs)).double() for graph in graphs)
        exact = trained.scores(copy.deepcopy(model).double()(*cast(inputs, torch.float64)))
    own_error = (before - exact).abs().max()
    differs = before.argmax(-1) != after.argmax(-1)
    margins = before.topk(2).values
    unexplained = differs & ~(margins[:, 0] - margins[:, 1] <= 2 * own_error)
    return {
        "model": name,
        "package": measured.versions(package),
        "licence": licence,
        "dtype": dtype_name(dtype),
        "passes": ", ".join(changed),
        "verdict": str(verdict.status),
        "inputs": len(verdict.by_inputs),
        "not compared": "; ".join(verdict.not_compared),
        "decision": trained.decision,
        "decisions": len(differs),
        "differ": int(differs.sum()),
        "unexplained": int(unexplained.sum()),
        "own_error": float(own_error),
        "time": float(times.table["ratio"].iloc[-1]) if changed else 1.0,
    }


def cast(inputs: Any, dtype: torch.dtype) -> Any:
    """Return inputs whose floating-point tensors have a dtype."""
    return pytree.tree_map_only(torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, inputs)


def main() -> None:
    """Judge all models, print the table and write it; with ``--here``, judge in this environment."""
    if sys.argv[1:2] != ["--here"]:
        write(pd.DataFrame(rows()))
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    let_torchvision_be_imported()
    # It reads files, by a library for another build of torch.
    sys.modules |= {"torchaudio": MagicMock(), "torchaudio.transforms": MagicMock()}
    for name in sys.argv[2:] or MODELS:
        for dtype in (torch.float32, torch.bfloat16):
            print(json.dumps(judged(name, dtype)), flush=True)


def write(table: pd.DataFrame) -> None:
    """Write the table, and the row of the page."""
    agree = table["verdict"].isin(AGREE).sum()
    inputs, decisions, differ, more = table[["inputs", "decisions", "differ", "unexplained"]].sum()
    figure = (
        f"{agree} of {len(table)} stacks of passes agree, on {inputs} inputs; of {decisions:,} decisions "
        f"{differ} differ, {more} of them by more than the original's own rounding"
    )
    made_with = measured.versions("torch")
    measured.write("python -m benchmarks.trained", figure, {"trained": table}, made_with=made_with)


if __name__ == "__main__":
    main()
