"""What Python can learn of a tensor, against all that tensors answer."""

import pytest
import torch
from torch.fx import Graph

from fxlab.operators import describes, reads_layout, returns_number
from fxlab.operators.python_functions import ADDRESSES, DATA, DTYPE_READS, FACTS, GRADIENT_READS, LAYOUT_READS

ANSWERS = (bool, int, float, str, torch.Size, torch.dtype, torch.layout, torch.device)
VALUES = torch.arange(6.0).view(2, 3)
LAYOUTS = {
    "strides": lambda: VALUES.t().contiguous().t(),
    "offset": lambda: torch.cat([VALUES, VALUES])[2:],
    "sparse": lambda: VALUES.to_sparse_csr(),
}
COMPLEX = VALUES.to(torch.complex64)
SAYS_ANYTHING = {"__hash__", "const_data_ptr", *ADDRESSES, *DATA}
"""Memory is refused, and data are held by themselves."""


def answers(make):
    """Return what a tensor answers without arguments, by attributes and methods that are public."""
    found = {}
    for name in dir(torch.Tensor):
        if name in ("__class__", "__doc__", "__init__") or name.startswith("_") != name.endswith("__"):
            continue
        try:
            value = getattr(make(), name)
            value = value() if callable(value) else value
        except Exception:  # what needs arguments, or another kind of tensor
            continue
        is_sizes = type(value) is tuple and all(type(item) is int for item in value)
        if isinstance(value, ANSWERS) or is_sizes:
            found[name] = value
    return found


def told_apart(a, b):
    one, other = answers(a), answers(b)
    return {name for name in one.keys() & other.keys() if one[name] != other[name]}


def known(reads):
    return {read if isinstance(read, str) else read.__self__.__name__ for read in reads}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_whatever_tells_layouts_apart_is_known_for_it(layout):
    found = told_apart(VALUES.clone, LAYOUTS[layout]) - SAYS_ANYTHING
    texts = {"type", "nbytes"} if layout == "sparse" else set()  # of another class of tensors
    of_sparse = {"sparse_dim", "dense_dim", "__repr__", "__str__"} if layout == "sparse" else set()
    assert found
    assert found <= known(LAYOUT_READS) | texts | of_sparse


@pytest.mark.filterwarnings("ignore")
def test_whatever_tells_a_lazy_conjugate_is_known_for_it():
    found = told_apart(COMPLEX.clone, lambda: COMPLEX.clone().conj().resolve_conj().conj()) - SAYS_ANYTHING
    assert "is_conj" in found
    assert found - {"__repr__", "__str__"} <= known(LAYOUT_READS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.complex64])
def test_whatever_tells_dtypes_apart_is_known_for_it(dtype):
    found = told_apart(VALUES.clone, lambda: VALUES.to(dtype)) - SAYS_ANYTHING - {"__repr__", "__str__"}
    answered = answers(VALUES.clone)
    of_dtype = {name for name in found if isinstance(answered[name], torch.dtype)}
    assert "dtype" in of_dtype
    assert found - of_dtype <= known(DTYPE_READS) | {"type"}


@pytest.mark.filterwarnings("ignore")
def test_whatever_tells_that_gradients_are_computed_is_known_for_it():
    leaf = told_apart(VALUES.clone, lambda: VALUES.clone().requires_grad_())
    result = told_apart(VALUES.clone, lambda: VALUES.clone().requires_grad_() * 1)
    assert (leaf | result) - SAYS_ANYTHING - {"__repr__", "__str__"} <= {*GRADIENT_READS.values()}


def node(name):
    graph = Graph()
    value = graph.placeholder("x")
    if callable(getattr(torch.Tensor, name)):
        return graph.call_method(name, (value,))
    return graph.call_function(getattr, (value, name))


@pytest.mark.filterwarnings("ignore")
def test_what_describes_a_tensor_does_not_depend_on_its_elements_or_its_layout():
    for other in (lambda: VALUES + 1, LAYOUTS["strides"], LAYOUTS["offset"]):
        assert not [name for name in told_apart(VALUES.clone, other) if describes(node(name))]
    described = {name for name in answers(VALUES.clone) if describes(node(name))}
    assert described >= {"size", "dim", "numel", "shape", "ndim", "dtype", "device"}
    assert all(returns_number(node(name)) or name in FACTS for name in described)


def test_orders_of_dimensions_are_a_layout():
    assert reads_layout(node("dim_order"))
