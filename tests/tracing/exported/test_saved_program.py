"""Files of torch.export.save: data alone is loaded, what could run code is refused, what is broken is
named."""

import io
import operator
import string
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fxlab.tracing.exported import saved_program
from fxlab.tracing.exported.saved_program import MayRunCodeError, check_is_data, load_program
from fxlab.values.tensors import same_bits

MADE_BY_TORCH = {".data/version", "version", "byteorder", ".data/serialization_id"}
GRAPH = "models/model.json"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: -self.linear(x), (x,))
        return y.reshape(x.shape[0] * 3) * (x.shape[0] // 2) * torch.ones(x.shape[0] % 2 + 2).sum()


def saved(program):
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def quietly_exported():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # of torch, about itself
        rows = torch.export.Dim("rows", min=3, max=64)
        program = torch.export.export(Model(), (X,), dynamic_shapes=({0: rows},))
        return program, saved(program)


X = torch.randn(3, 4)
PROGRAM, SAVED = quietly_exported()


def rewritten(data, edit):
    """Return an archive with other records: ``edit`` is given the name and bytes of each, ``None`` drops
    one."""
    reader, result = torch._C.PyTorchFileReader(io.BytesIO(data)), io.BytesIO()
    writer = torch._C.PyTorchFileWriter(result)
    for name in reader.get_all_records():
        if name not in MADE_BY_TORCH and (record := edit(name, reader.get_record(name))) is not None:
            writer.write_record(name, record, len(record))
    writer.write_end_of_file()
    return result.getvalue()


def replacing(old, new, where=GRAPH):
    def edit(name, record):
        if name != where:
            return record
        assert old in record
        return record.replace(old, new)

    return edit


@pytest.mark.filterwarnings("ignore:.*LeafSpec")
@pytest.mark.parametrize("decomposed", [False, True])
def test_a_program_of_tensors_and_operators_is_loaded(tmp_path, decomposed):
    path = tmp_path / "model.pt2"
    program = PROGRAM.run_decompositions() if decomposed else PROGRAM
    path.write_bytes(saved(program))
    loaded = load_program(path)
    assert same_bits(loaded.module()(X), program.module()(X))
    assert loaded.state_dict.keys() == program.state_dict.keys()


def test_what_a_graph_may_call_of_python_is_the_arithmetic_of_numbers():
    of_numbers = {name for name in dir(operator) if hasattr(0, f"__{name.rstrip('_')}__")}
    allowed = {name for name in dir(operator) if saved_program._is_operator(f"_operator.{name}")}
    assert allowed ^ of_numbers == {"getitem", "not_", "index"}


class Trap:
    def __reduce__(self):
        return open, ("/nowhere/the file's code ran", "w")


def trap():
    buffer = io.BytesIO()
    torch.save(Trap(), buffer)
    return buffer.getvalue()


WEIGHTS = "data/weights/model_weights_config.json"
CALLED = b"torch.ops.aten.reshape.default"
ENUMERATION = b'{\\"__enum__\\": true, \\"fqn\\": \\"this:that\\"}'


def pickled_weights(name, record):
    if name.endswith("weight_0"):
        return trap()
    return replacing(b'"use_pickle": false', b'"use_pickle": 1', WEIGHTS)(name, record)


ATTACKS = {
    "a function of Python": replacing(CALLED, b"torch.os.system"),
    "a function of torch.ops": replacing(CALLED, b"torch.ops.load_library"),
    "an operator that reads files": replacing(CALLED, b"torch.ops.aten.from_file"),
    "a call in an expression": replacing(b'"expr_str": "', b'"expr_str": "eval(1)+'),
    "an attribute in an expression": replacing(b'"expr_str": "', b'"expr_str": "f.g+'),
    "code in a name": replacing(b'"name": "reshape"', b'"name": "x=print(1)"'),
    "code in an argument's name": replacing(b'"forward_arg_names": ["x"', b'"forward_arg_names": ["f()"'),
    "an enumeration of a module": replacing(b'\\"builtins.tuple\\"', ENUMERATION),
    "a pickle of inputs": lambda name, record: trap() if name == "data/sample_inputs/model.pt" else record,
    "a pickle of weights": pickled_weights,
    "an object": replacing(b'"weight_0"', b'"opaque_obj_0"', WEIGHTS),
    "a library": lambda name, record: record,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_file_that_could_run_code_is_refused(tmp_path, attack):
    data = rewritten(SAVED, ATTACKS[attack])
    if attack == "a library":
        data = with_record(data, "data/aotinductor/model/model.so")
    path = tmp_path / "model.pt2"
    path.write_bytes(data)
    with pytest.raises(MayRunCodeError, match="could run code") as raised:
        load_program(path)
    assert str(path) in str(raised.value)


def with_record(data, added):
    reader, result = torch._C.PyTorchFileReader(io.BytesIO(data)), io.BytesIO()
    writer = torch._C.PyTorchFileWriter(result)
    for name in reader.get_all_records():
        if name not in MADE_BY_TORCH:
            writer.write_record(name, reader.get_record(name), len(reader.get_record(name)))
    writer.write_record(added, b"x", 1)
    writer.write_end_of_file()
    return result.getvalue()


def test_the_attacks_differ_from_a_file_that_is_loaded():
    check_is_data(io.BytesIO(rewritten(SAVED, lambda name, record: record)))


@given(st.text(string.ascii_letters + "_.()[]'\"+= \n:,", min_size=1, max_size=20))
def test_whatever_a_name_holds_no_code_gets_into_the_graph(name):
    escaped = name.replace("\\", "").replace('"', "").replace("\n", "\\n").encode()
    data = rewritten(SAVED, replacing(b'"name": "reshape"', b'"name": "' + escaped + b'"'))
    if escaped.decode().isidentifier() or not escaped:
        check_is_data(io.BytesIO(data))
    else:
        with pytest.raises(MayRunCodeError):
            check_is_data(io.BytesIO(data))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no archive"),
        (b"a text", "no archive"),
        (SAVED[: len(SAVED) // 2], "no archive"),
        (rewritten(SAVED, lambda name, record: None if name == GRAPH else record), "no program in it"),
        (rewritten(SAVED, replacing(b"{", b"{{")), "JSONDecodeError"),
        (rewritten(SAVED, replacing(b'"graph_module"', b'"no_graph_module"')), "cannot be read"),
    ],
)
def test_a_broken_file_is_named(tmp_path, data, words):
    path = tmp_path / "model.pt2"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words) as raised:
        load_program(path)
    assert str(raised.value).startswith(f"{path}: expected a program saved by torch.export.save")


def test_a_trusted_file_is_not_checked(tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(rewritten(SAVED, replacing(b'"expr_str": "', b'"expr_str": "(lambda: 0)()+')))
    with pytest.raises(MayRunCodeError):
        load_program(path)
    assert load_program(path, trusted=True).graph_module is not None
