"""A recorded run is a small file of fingerprints, which is compared with other runs and with models."""

import copy
import functools
import json
import re
import sys
import textwrap
import threading
import zipfile

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab.comparison.recorded.recorded_run import read_run

X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.approximate, self.fails = "none", False

    def forward(self, x):
        if self.fails:
            raise RuntimeError("out of luck")
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate=self.approximate))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(4)), nn.Linear(16, 3)

    def forward(self, x):
        x = x.clone()
        x[:, 0] += 1  # a view is written
        for block in self.blocks:
            x = block(x)
        return {"logits": self.head(x).transpose(1, 2)}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def record(tmp_path):
    def recorded(model, inputs=X, name="a.run", **options):
        fxlab.runs.record_run(model, inputs, tmp_path / name, **options)
        return tmp_path / name

    return recorded


def with_mistake(model):
    wrong = copy.deepcopy(model)
    wrong.blocks[2].approximate = "tanh"
    return wrong


def test_a_run_names_values_modules_lines_and_leaves_the_model_alone(model, record):
    model.register_buffer("count", torch.zeros(()))
    model.register_forward_hook(lambda module, *_: module.count.add_(1))
    before = [dict(vars(module)) for module in model.modules()]
    random = torch.get_rng_state()
    run = read_run(record(model))
    assert [dict(vars(module)) for module in model.modules()] == before
    assert torch.equal(torch.get_rng_state(), random)
    assert model.count == 0
    assert repr(run) == "RecordedRun(Model: output)"
    gelu = run.table.loc["gelu_2"]
    assert (gelu["module"], gelu["shape"], gelu["dtype"]) == ("blocks.2", (2, 5, 32), "float32")
    assert "F.gelu" in gelu["line"]
    assert run.table.loc["clone", "line"] == "x = x.clone()"
    assert run.table.loc["blocks_2_up_weight", "max"] == pytest.approx(
        float(model.blocks[2].up.weight.detach().max())
    )
    assert run.is_measured
    # The clone is another value once its part is written.
    read = [*run.table.index]
    assert run.table.loc["after_write", "mean"] == pytest.approx(float(X.mean()) + 0.2, abs=1e-5)
    assert read.index("add_") < read.index("after_write") < read.index("native_layer_norm")


def test_only_the_second_run_rounds_its_results_again(model, record):
    table = read_run(record(model)).table
    assert 0 < table.loc["gelu_2", "moved"] < 1e-5
    half = read_run(record(copy.deepcopy(model).bfloat16(), X.bfloat16(), name="half.run"))
    assert 1e-3 < half.table.loc["gelu_2", "moved"] < 1
    assert table[["nan", "infinite"]].sum().tolist() == [0, 0]
    logits = model(X)["logits"].detach().double()
    assert table.iloc[-1]["mean"] == pytest.approx(float(logits.mean()), rel=1e-12)


def test_two_runs_part_where_the_mistake_is(model, record):
    before, same, wrong = (
        record(model),
        record(model, name="b.run"),
        record(with_mistake(model), name="c.run"),
    )
    assert "equal to the last bit" in str(fxlab.compare(before, same))
    found = fxlab.compare(before, wrong)
    assert not found.agrees
    assert (found.first.candidate, found.first.nodes) == ("blocks.2", ("gelu_2",))
    assert "not in float64" in str(found)
    assert found.modules.loc["blocks.1", "status"] == "agrees"


class Adds(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        return x + self.weight.exp().sum()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (torch.clone, "equal"),
        (lambda weight: weight.T.clone(), "transposed"),
        (lambda weight: weight.reshape(16, 5), "reshaped"),
        (lambda weight: weight.flatten().roll(3).view_as(weight), "reordered"),
        (lambda weight: weight.nextafter(weight + 1), "rounded"),
        (lambda weight: weight * 1.01, "other values"),
        (lambda weight: weight[:2], "only in the candidate"),
    ],
)
def test_weights_are_compared_by_their_fingerprints(record, change, status):
    before = record(Adds(X[0]))
    (weight,) = fxlab.compare(before, record(Adds(change(X[0])), name="b.run")).weights
    assert weight.status == status


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_agree_up_to_their_rounding(model, record, dtype):
    found = fxlab.compare(record(model), copy.deepcopy(model).to(dtype), X.to(dtype))
    assert found.agrees, str(found)
    assert {weight.status for weight in found.weights} <= {"equal", "rounded"}
    made = fxlab.nodes(found.alignment.transformed.module, op="call_function")
    assert {*made["dtype"].dropna()} == {str(dtype).removeprefix("torch.")}


def test_a_session_is_run_by_its_nodes(model, record):
    before = record(model)
    assert fxlab.compare(before, fxlab.Session(model, X)).agrees
    found = fxlab.compare(before, fxlab.Session(with_mistake(model), X))
    assert found.first.candidate == "blocks.2"


def test_a_smaller_mistake_than_single_precision_guesses_is_found(model, record):
    other = copy.deepcopy(model)
    other.blocks[1].norm.eps = 1e-4
    assert fxlab.compare(record(model), record(other, name="b.run")).first.candidate == "blocks.1.norm"


def test_a_run_that_raises_leaves_a_file_that_says_so(model, record, tmp_path):
    complete = record(model)
    model.blocks[2].fails = True
    with pytest.raises(RuntimeError, match="out of luck") as raised:
        record(model, name="b.run")
    assert "b.run" in raised.value.__notes__[0]
    assert "forward" not in vars(model.blocks[0])
    run = read_run(tmp_path / "b.run")
    assert "RuntimeError: out of luck (test_recorded_runs.py" in str(run)
    found = fxlab.compare(complete, run)
    assert not found.agrees
    assert found.first.reference == "blocks.2.norm"
    assert "the candidate's run raised" in str(found)
    assert not fxlab.compare(run, run).agrees


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.1


class WrongBackward(Block):
    def forward(self, x):
        return x + self.down(Backward.apply(F.gelu(self.up(self.norm(x)))))


def test_the_backward_pass_belongs_to_the_modules_too(model, record):
    wrong = copy.deepcopy(model)
    wrong.blocks[1].__class__ = WrongBackward
    found = fxlab.compare(record(model, backward=True), record(wrong, name="b.run", backward=True))
    assert found.first.candidate == "blocks.1"
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(ValueError, match="requires gradients"):
        record(model.requires_grad_(False), name="c.run", backward=True)


def step(model, x):
    loss = model(x)["logits"].square().mean()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    return loss


def test_functions_are_run_once_with_their_effects(model, record):
    right, wrong = copy.deepcopy(model), copy.deepcopy(model)
    wrong.blocks[2].norm.eps = 0.1
    before = record(functools.partial(step, right), (X,))
    assert not torch.equal(right.head.weight, model.head.weight)
    run = read_run(before)
    assert not run.is_measured
    assert {"blocks.3.up", "head"} <= {*run.table["module"]}
    found = fxlab.compare(before, record(lambda x: step(wrong, x), (X,), name="b.run"))
    assert found.first.candidate == "blocks.2.norm"


@torch.no_grad()
def test_code_that_is_compiled_is_said_to_be_unseen(model, record):
    before = record(model)
    compiled = copy.deepcopy(model)
    compiled.blocks[1].compile(backend="eager")
    compiled.blocks[2] = torch.compile(compiled.blocks[2], backend="eager")
    kept = compiled.blocks[1]._compiled_call_impl
    run = read_run(record(compiled, name="b.run"))
    assert compiled.blocks[1]._compiled_call_impl is kept
    assert sum("is compiled" in note for note in run.notes) == 2
    assert "blocks.1.up" not in {*run.table["module"]}
    assert fxlab.compare(before, run).agrees
    with torch.no_grad():
        compiled.blocks[2].up.weight[0, 0] += 1
    found = fxlab.compare(before, record(compiled, name="c.run"))
    assert found.first.candidate == "blocks.2"
    assert [weight.status for weight in found.odd_weights] == ["other values"]


def test_other_random_numbers_and_inputs_are_named(record):
    dropped = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.5))
    torch.manual_seed(0)
    before, again = record(dropped), record(dropped, name="b.run")
    assert fxlab.compare(before, again).agrees
    torch.manual_seed(1)
    assert "random numbers differ at" in str(fxlab.compare(before, record(dropped, name="c.run")))
    assert "other inputs: input_1" in str(fxlab.compare(before, record(dropped, X + 1, name="d.run")))


def test_an_input_that_is_given_twice_is_one_value(record):
    run = read_run(record(lambda x, y: x + y, (X, X)))
    assert [*run.table.index] == ["x", "add"]
    assert run.versions["on"] == "cpu"


def test_writes_into_inputs_are_outputs_of_a_run(record):
    def stepped(by):
        return lambda x: x.add_(by).mul(2).sub(2 * by)

    runs = [record(stepped(by), name=f"{number}.run") for number, by in enumerate((1, 1, 2))]
    assert fxlab.compare(runs[0], runs[1]).agrees
    found = fxlab.compare(runs[0], runs[2])
    assert {path for path, judged in found.verdict.outputs.items() if judged.status == "different"} == {
        "written input x"
    }
    words = str(fxlab.compare(runs[0], record(lambda x: (x + 1).mul(2).sub(2))))
    assert "only the reference has the outputs written input x, not compared" in words


def test_other_threads_are_not_recorded(model, record):
    other = threading.Thread(target=lambda: model.blocks[0](X))

    def both(x):
        other.start()
        other.join()
        return model.blocks[1](x)

    assert {path for path, _, _ in read_run(record(both, (X,))).calls if "." not in path[7:]} == {"blocks.1"}


def test_fast_paths_are_taken_as_without_a_recording(record):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    with torch.no_grad():
        assert "_transformer_encoder_layer_fwd" in read_run(record(layer)).names


DAMAGES = {
    "its format": (lambda d: d.update(format=7), "format 7"),
    "a step less": (lambda d: d["steps"].pop(), "damaged"),
    "a step that reads a later one": (lambda d: d["steps"][3].__setitem__(2, [{"step": 99}]), "damaged"),
    "no list": (lambda d: d["steps"][0].__setitem__(6, "values"), "damaged"),
    "no model": (lambda d: d.pop("model"), "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused_in_words(model, record, tmp_path, damage):
    path = record(model, measure=False)
    with zipfile.ZipFile(path) as members:
        document, numbers = json.loads(members.read("run.json")), members.read("numbers.npy")
    change, words = DAMAGES[damage]
    change(document)
    with zipfile.ZipFile(tmp_path / "b.run", "w") as members:
        members.writestr("run.json", json.dumps(document))
        members.writestr("numbers.npy", numbers)
    with pytest.raises(ValueError, match=words):
        fxlab.compare(path, tmp_path / "b.run")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="damaged"):
        fxlab.compare(path, model, X)


def test_a_file_runs_no_code(model, record, tmp_path):
    run = read_run(record(model, measure=False))
    for place, planted in enumerate(('x"); raise SystemExit #', "__import__('os').abort()", "a.b.c")):
        run.steps[place].target = planted
    run.model = "x; raise SystemExit"
    found = fxlab.compare(run, run)
    assert found.agrees
    fxlab.report(found.session, tmp_path / "both.html")
    with pytest.raises(RuntimeError, match="cannot run"):
        found.alignment.original.module(X)


def test_a_folder_of_runs_is_one_page_with_the_first_differences(model, record, tmp_path):
    record(model, name="a.run")
    record(model, name="b.run")
    record(with_mistake(model), name="c.run")
    table = fxlab.runs.compare_runs(tmp_path, tmp_path / "index.html")
    assert table["agrees"].to_dict() == {"b": True, "c": False}
    assert table.loc["c", "first"] == "blocks.2"
    text = (tmp_path / "index.html").read_text()
    index = json.loads(re.search(r'id="fxlab-contents">(.*?)</script>', text)[1])
    assert [row["verdict"] for row in index["graphs"]] == ["agrees", "differs from blocks.2 on"]
    assert index["title"] == "2 runs compared with a"
    assert (
        fxlab.runs.compare_runs([*tmp_path.glob("[ac].run")], reference="c").loc["a", "first"] == "blocks.2"
    )
    for wrong, error, words in (
        (tmp_path / "nowhere", ValueError, "there is no folder"),
        ([tmp_path / "a.run"], ValueError, "at least two runs"),
        ({"a": 1}, TypeError, "RecordedRun under each name"),
        (3, TypeError, "a folder, a list of files"),
    ):
        with pytest.raises(error, match=words):
            fxlab.runs.compare_runs(wrong)
    with pytest.raises(ValueError, match="no run 'd'"):
        fxlab.runs.compare_runs(tmp_path, reference="d")


SCRIPT = textwrap.dedent(
    """
    import sys
    import torch, torch.distributed as dist
    import fxlab

    rank, store, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), torch.randn(4, 8)

    def step(x):
        y = model[1](model[0](x) + (rank if sys.argv[4] == "wrong" else 0))
        dist.all_reduce(y)
        return y / 2

    fxlab.runs.record_run(step, x, f"{folder}/{rank}.run")
    dist.destroy_process_group()
    """
)


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("kind", ["right", "wrong"])
def test_ranks_are_compared(kind, tmp_path):
    from subprocess import Popen

    script = tmp_path / "ranks.py"
    script.write_text(SCRIPT)
    ranks = [
        Popen([sys.executable, script, str(rank), str(tmp_path / "store"), str(tmp_path), kind])
        for rank in (0, 1)
    ]
    assert [rank.wait(timeout=240) for rank in ranks] == [0, 0]
    found = fxlab.compare(tmp_path / "0.run", tmp_path / "1.run")
    assert "rank 0 of 2 and 1 of 2" in str(found)
    # The reduced values agree again, so that nothing behind them does harm.
    assert found.agrees
    assert ("add" in {*found.table.index[found.table["status"] != "agrees"]}) is (kind == "wrong")


@pytest.mark.parametrize(
    ("reference", "candidate", "status", "words"),
    [
        (lambda x: x * 2, lambda x: (x * 2).reshape(8, 4), "different", "the shapes differ"),
        (lambda x: x.argmax(-1), lambda x: x.argmax(-1).float(), "different", "the dtypes differ"),
        (lambda x: x * torch.nan, lambda x: x * torch.nan, "nothing compared", "no finite elements"),
        (lambda x: x[:0], lambda x: x[:0], "nothing compared", "no finite elements"),
    ],
)
def test_shapes_dtypes_and_results_without_numbers_are_judged(record, reference, candidate, status, words):
    x = torch.ones(4, 8).cumsum(0)
    found = fxlab.compare(record(reference, x), record(candidate, x, "b.run"))
    assert found.verdict.status == status
    assert words in found.verdict.reason
    assert not found.agrees
