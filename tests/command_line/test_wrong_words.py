"""Options that are given but say nothing, and files that are not what they should be."""

import pytest

from fxlab.command_line.answer import CommandError
from fxlab.command_line.chosen_passes import chosen_names
from fxlab.command_line.model_source import given_inputs


@pytest.mark.parametrize("words", ["", " ", ",", " , "])
def test_an_empty_list_of_passes_is_no_choice(words):
    with pytest.raises(CommandError, match="--passes: expected names"):
        chosen_names(words, ["merge-linears"])


def test_a_text_file_is_no_inputs_in_one_sentence(tmp_path):
    import torch

    path = tmp_path / "in.txt"
    path.write_text("1 2 3")
    with pytest.raises(CommandError, match=r"--inputs .*: expected a \.safetensors or \.npz file") as raised:
        given_inputs(path, torch.device("cpu"))
    assert "weights_only" not in str(raised.value)
    assert "\n" not in str(raised.value)
