"""What each weight of one model is in another: the same, in another form, or wrong."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fxlab
from fxlab.comparison import weights as weights_module
from fxlab.comparison.weights import find_weights, in_words


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 6)
        self.scale = nn.Parameter(torch.ones(6))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))


def holder(**tensors):
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_parameter(name, nn.Parameter(tensor))
    return module


def told(reference, candidate):
    rows = find_weights(reference, candidate)
    return {row.candidate or row.reference[0]: row for row in rows}


@pytest.fixture
def models():
    torch.manual_seed(0)
    model, other = Model(), Model()
    other.load_state_dict(model.state_dict())
    return model, other


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda w: w * 2, "scaled"),
        (lambda w: -w, "scaled"),
        (lambda w: w.flip(0), "permuted"),
        (lambda w: w.flip(1), "permuted"),
        (lambda w: w.flatten().roll(1).view_as(w), "reordered"),
        (lambda w: w + 1e-8, "rounded"),
        (lambda w: w.bfloat16().float(), "other values"),
        (lambda w: w + torch.eye(*w.shape), "other values"),
    ],
)
def test_a_changed_weight_is_told(models, change, status):
    model, other = models
    with torch.no_grad():
        other.layers[2].first.weight.copy_(change(model.layers[2].first.weight))
    odd = {name: row for name, row in told(model, other).items() if row.status != "equal"}
    assert {name: row.status for name, row in odd.items()} == {"layers.2.first.weight": status}
    assert odd["layers.2.first.weight"].reference == ("layers.2.first.weight",)


def test_exchanged_layers_are_told(models):
    model, other = models
    other.layers[1], other.layers[3] = other.layers[3], other.layers[1]
    rows = told(model, other)
    wrong = {name for name, row in rows.items() if row.status == "wrong layer"}
    assert wrong == {
        f"layers.{i}.{n}.{p}" for i in (1, 3) for n in ("first", "second") for p in ("weight", "bias")
    }
    assert "layers.1.first.weight stands at its place" in rows["layers.1.first.weight"].detail
    assert in_words(rows.values())[0] == "layers.1 and layers.3 are exchanged"
    other.layers[3] = model.layers[3]
    assert in_words(find_weights(model, other))[0] == "layers.1 has the weights of layers.3"


def test_other_numbers_of_layers_are_learnt():
    model = Model()
    names = {f"h_{i}": layer for i, layer in enumerate(model.layers)}

    class Port(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleDict({str(i + 1): layer for i, layer in enumerate(names.values())})

    assert {row.status for row in told(model, Port()).values()} == {"equal"}


def test_forms_are_told():
    a, b, c = torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 6)
    x, y, z = torch.randn(4), torch.randn(4), torch.randn(4)
    three = holder(q=a, k=b, v=c, x=x, y=y, z=z)
    one = holder(qkv=torch.cat([a, b, c]).T.contiguous(), bias=torch.cat([x, y, z]))
    merged = told(three, one)
    assert (merged["qkv"].status, merged["qkv"].reference) == ("merged", ("q", "k", "v"))
    assert (merged["bias"].status, merged["bias"].reference) == ("merged", ("x", "y", "z"))
    assert len(merged) == 2
    parts = told(one, three)
    assert {row.status for row in parts.values()} == {"part"}
    assert told(holder(w=a), holder(w=a.T.contiguous()))["w"].status == "transposed"
    assert told(holder(w=a), holder(w=a.reshape(2, 12)))["w"].status == "reshaped"
    assert told(holder(w=x), holder(w=x.flip(0)))["w"].status == "permuted"
    assert told(holder(w=x), holder(w=x * -3))["w"].detail == "-3 times as large"
    assert told(holder(v=torch.ones(4)), holder(w=torch.ones(4)))["w"].status == "equal"
    assert not told(holder(w=a.to("meta")), holder(w=a.to("meta")))


def test_a_weight_that_is_not_tied_any_more_is_told():
    tied, apart = nn.Module(), nn.Module()
    tied.a, tied.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    tied.b.weight = tied.a.weight
    apart.a, apart.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        for linear in (apart.a, apart.b):
            linear.weight.copy_(tied.a.weight)
    assert told(tied, apart)["a.weight, b.weight"].status == "not tied"


def test_what_one_does_not_have_is_told():
    a, b = torch.randn(4, 6), torch.randn(5, 6)
    rows = told(holder(a=a, b=b), holder(a=a))
    assert (rows["b"].status, rows["b"].candidate) == ("only in the reference", "")
    rows = told(holder(a=a), holder(a=a, b=b))
    assert rows["b"].status == "only in the candidate"


def test_weights_by_name_and_in_files_are_compared_as_those_of_models(models, tmp_path):
    model, other = models
    with torch.no_grad():
        other.layers[1].first.weight.mul_(1.5)
    expected = fxlab.compare_weights(model, other).sort_index()
    assert set(expected["status"]) == {"equal", "scaled"}
    torch.save(model.state_dict(), tmp_path / "a.pt")
    torch.save({"state_dict": other.state_dict(), "epoch": 3}, tmp_path / "b.ckpt")
    save_file(dict(other.state_dict()), tmp_path / "model.safetensors")
    for reference in (model.state_dict(), tmp_path / "a.pt"):
        for candidate in (
            other.state_dict(),
            str(tmp_path / "b.ckpt"),
            tmp_path / "model.safetensors",
            tmp_path,
        ):
            assert fxlab.compare_weights(reference, candidate).sort_index().equals(expected)
    assert fxlab.compare_weights(model, tmp_path).sort_index().equals(expected)


def test_files_that_hold_no_weights_are_refused(models, tmp_path):
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(ValueError, match=r"reference: .*text\.pt holds no weights that torch\.load can read"):
        fxlab.compare_weights(tmp_path / "text.pt", models[0])
    with pytest.raises(TypeError, match=r"candidate: expected tensors by name, .* 'steps' is none"):
        fxlab.compare_weights(models[0], {"steps": 3})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (torch.arange(5), torch.arange(5) + 1),
        (torch.tensor([True, False]), torch.tensor([True, True])),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 3j])),
        (torch.arange(5).to(torch.uint16), (torch.arange(5) + 1).to(torch.uint16)),
        (torch.tensor([2**60, 5, 6, 7]), torch.tensor([2**60 + 1, 5, 6, 7])),
        (torch.tensor([1.0, torch.inf]), torch.tensor([2.0, torch.inf])),
        (torch.tensor([1.0, torch.nan, 3.0]), torch.tensor([torch.nan, 1.0, 3.0])),
    ],
)
def test_weights_of_every_dtype_are_compared_by_their_values(ours, theirs):
    assert told({"w": ours}, {"w": theirs})["w"].status == "other values"
    assert told({"w": ours}, {"w": ours.clone()})["w"].status == "equal"


def test_the_size_of_a_difference_is_left_out_where_the_reference_is_zero():
    assert told({"w": torch.zeros(3)}, {"w": torch.ones(3)})["w"].detail == "3 of 3 elements"


class Own(torch.Tensor):
    """Has numbers, as a quantized weight of torchao, in a class of its own."""


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    "stored",
    [
        torch.Tensor.to_sparse,
        lambda x: torch.quantize_per_tensor(x, 1, 0, torch.qint8),
        lambda x: x.as_subclass(Own),
    ],
)
def test_weights_in_other_layouts_and_classes_are_compared_by_their_values(stored):
    weight = torch.arange(12.0).reshape(3, 4)
    for pair in ({"a": weight}, {"a": stored(weight)}), ({"a": stored(weight)}, {"a": weight}):
        assert fxlab.compare_weights(*pair)["status"].tolist() == ["equal"]


@pytest.mark.parametrize(
    "weight", [torch.arange(16).reshape(4, 4) + 2**60, torch.arange(16.0).reshape(4, 4) * (1 + 1j)]
)
def test_an_element_in_two_parts_counts_once(weight):
    other = weight.clone()
    other[0, 0] += 100
    detail = fxlab.compare_weights({"a": weight}, {"a": other})["detail"].item()
    assert detail.startswith("1 of 16 elements")


@pytest.mark.parametrize("of", [lambda linear: linear, nn.Module.state_dict])
def test_weights_without_numbers_are_refused(of):
    with pytest.raises(ValueError, match="on the meta device are weight, bias"):
        fxlab.compare_weights(of(nn.Linear(2, 2, device="meta")), nn.Linear(2, 2))


def test_many_weights_of_one_shape_are_not_compared_with_one_another(monkeypatch):
    asked = []

    def counted(a, b, is_near=weights_module._is_near):
        asked.append(1)
        return is_near(a, b)

    monkeypatch.setattr(weights_module, "_is_near", counted)
    weights = {f"{number}.weight": torch.randn(8, 8) for number in range(100)}
    other = {name: weight + 0.01 * torch.randn(8, 8) for name, weight in weights.items()}
    other["7.weight"] = -3 * weights["9.weight"]
    table = fxlab.compare_weights(weights, other)
    assert table.loc["7.weight"].tolist() == ["9.weight", "scaled", "-3 times as large"]
    assert len(asked) < 1000


@pytest.mark.parametrize("dtype", ["float4_e2m1fn_x2", "uint4", "float8_e8m0fnu"])
def test_numbers_that_torch_does_not_compute_with_are_compared(dtype, tmp_path):
    dtype = getattr(torch, dtype)
    bits = torch.arange(32, dtype=torch.uint8).reshape(4, 8)
    other = bits.clone()
    other[1, 2] += 64
    weights = [{"w": each.view(dtype)} for each in (bits, bits.clone(), other)]
    if dtype is not torch.uint4:  # safetensors has no name for it
        for place, each in enumerate(weights):
            save_file(each, tmp_path / f"{place}.safetensors")
        weights = [tmp_path / f"{place}.safetensors" for place in range(3)]
    same, changed = (fxlab.compare_weights(weights[0], each).loc["w"] for each in weights[1:])
    assert same["status"] == "equal"
    assert changed["status"] == "other values"
    assert changed["detail"].startswith("1 of 32 elements")
