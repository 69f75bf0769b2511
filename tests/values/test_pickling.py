"""Whether values can be pickled is told right, also where it is told without a pickle."""

import pickle
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.immutable_collections import immutable_dict, immutable_list

from fxlab.values.pickling import for_protocol, is_picklable


class Known:
    """Found by its name."""

    class Inner:
        """Found by its names."""


def known():
    """Be found by a name."""


def renamed():
    """Be found by no name."""


renamed.__qualname__ = "another"
Local = type("Local", (), {})
LEAVES = [1, 0.5, None, "text", b"bytes", 1j, True, ..., Known, Known.Inner, known, renamed, Local, Known()]
LEAVES += [lambda: None, torch.sin, torch.relu, torch.float32, torch.channels_last, len, type, torch.Tensor]
LEAVES += [torch.ops.aten.add.Tensor, slice(1, 2), range(3), object, int.__add__, known.__call__]
values = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(immutable_list)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2).map(immutable_dict)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2).map(OrderedDict)
    ),
)


@pytest.mark.parametrize("protocol", [2, None])
@given(values)
def test_a_value_is_said_to_be_picklable_if_it_is(protocol, value):
    try:
        pickle.dumps(value, protocol)
    except Exception:
        assert not is_picklable(value, protocol)
    else:
        assert is_picklable(value, protocol)
        assert for_protocol(value, 2) is not None or value is None


def test_what_holds_itself_is_picklable():
    value = [1]
    value.append(value)
    assert is_picklable(value)
