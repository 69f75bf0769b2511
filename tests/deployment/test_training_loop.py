"""A model on graphs in a loop like that of a ``Trainer``, and with attention weights among its outputs."""

import copy
import warnings

import pytest
import torch
import transformers as hf

import fxlab
from fxlab import MergeLinears

BATCHES = [
    {
        "input_ids": torch.randint(1, 50, (2, 5), generator=torch.Generator().manual_seed(step)),
        "attention_mask": torch.ones(2, 5, dtype=torch.long),
        "labels": torch.tensor([step % 2, 1]),
    }
    for step in range(4)
]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = hf.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        vocab_size=50,
        attn_implementation="eager",
    )
    return hf.BertForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def session(model):
    inputs = {name: value for name, value in BATCHES[0].items() if name != "labels"}
    session = fxlab.Session(model, inputs, passes=[MergeLinears()])
    session.apply("merge-linears")
    return session


def trained(model):
    """Train in steps of two batches, with clipping and a schedule, and evaluate after each."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    losses = []
    for step, batch in enumerate(BATCHES):
        model.train()
        loss = model(**batch)["loss"] / 2
        loss.backward()
        if step % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            model.zero_grad()
        model.eval()
        with torch.no_grad():
            losses += [loss.detach(), model(**batch)["loss"]]
    return losses


@pytest.mark.weekly
@pytest.mark.slow
def test_a_loop_of_training_and_evaluation_goes_as_eagerly(session, model):
    fast, eager = copy.deepcopy(session.as_model()), copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*which an optimizer would not train", RuntimeWarning)
        losses = trained(fast)
    expected = trained(eager)
    assert all(map(torch.allclose, losses, expected))
    for name, parameter in eager.named_parameters():
        assert torch.equal(fast.get_parameter(name), parameter), name
    table = fast.graphs()
    assert table[table["mode"] == "training, gradients"].sort_values("nodes")["hits"].iloc[-1] == 4
    # Merged weights follow each step of the optimizer.
    merged = table[table["passes"] == "merge-linears"]
    assert set(merged["mode"]) == {"evaluation, no gradients"}
    assert merged["hits"].sum() == 4


@pytest.mark.weekly
@pytest.mark.slow
def test_attention_weights_are_among_the_outputs(session, model):
    fast, ids = session.as_model(), BATCHES[0]["input_ids"]
    with torch.no_grad():
        for module in (fast, model):
            module(ids, output_attentions=True)  # transformers sets hooks up in the first such call
        for kwargs in ({}, {"output_hidden_states": True}, {"return_dict": False}):
            output = fast(ids, output_attentions=True, **kwargs)
            expected = model(ids, output_attentions=True, **kwargs)
            assert type(output) is type(expected)
            actual, wanted = (
                values if isinstance(values, tuple) else values.to_tuple() for values in (output, expected)
            )
            assert len(actual) == len(wanted)
            assert torch.allclose(actual[-1][0], wanted[-1][0], atol=1e-6)
            assert actual[-1][0].shape == (2, 2, 5, 5)
    assert "graph" in fast.graphs()["runs"].tolist()
