"""Models of transformers that generate on graphs: the same tokens as eagerly, from few graphs."""

import pytest
import torch
import transformers as hf

import fxlab
from fxlab import FuseAttention, MergeLinears

TINY = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 100}
TOKENS = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
IDS = torch.tensor([[5, 6, 7, 8, 9], [50, 40, 30, 20, 10]])
LEFT_PADDED = {
    "input_ids": torch.tensor([[0, 0, 7, 8, 9], [50, 40, 30, 20, 10]]),
    "attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]),
}


def llama(**config):
    torch.manual_seed(0)
    known = {**TINY, **TOKENS, "num_hidden_layers": 1, "num_key_value_heads": 1, **config}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**known)).eval()


def session_of(model, passes=()):
    inputs = {"input_ids": IDS, "use_cache": False}
    return fxlab.Session(model, inputs, passes=passes)


def layers(fast):
    """Return the rows of the graphs that hold the layers: masks, which depend on data, have others."""
    table = fast.graphs()
    graphs = table[table["runs"] == "graph"]
    return graphs[graphs["nodes"] > 30]


def assert_same_tokens(fast, model, steps=10, **kwargs):
    known = {"do_sample": False, "max_new_tokens": steps, **({"inputs": IDS} | kwargs)}
    if "input_ids" in kwargs:
        del known["inputs"]
    torch.manual_seed(0)
    expected = model.generate(**known)
    torch.manual_seed(0)
    assert torch.equal(fast.generate(**known), expected)


@pytest.fixture(scope="module")
def model():
    return llama()


@pytest.fixture(scope="module")
def session(model):
    return session_of(model, passes=[MergeLinears(), FuseAttention()])


@pytest.fixture(scope="module")
def fast(session):
    return session.as_model()


def test_prefill_and_decoding_are_a_graph_each(fast, model):
    assert isinstance(fast, hf.LlamaForCausalLM)
    assert_same_tokens(fast, model)
    assert layers(fast)["hits"].tolist() == [1, 9]


@pytest.mark.parametrize(
    "kwargs",
    [
        {"do_sample": True},
        {"num_beams": 3},
        {"num_beams": 2, "num_return_sequences": 2, "repetition_penalty": 1.5},
    ],
    ids=["sampling", "beams", "more beams"],
)
def test_the_same_graphs_serve_other_ways_to_generate(fast, model, kwargs):
    assert_same_tokens(fast, model)
    before = len(layers(fast))
    assert_same_tokens(fast, model, **kwargs)
    assert len(layers(fast)) == before


@pytest.mark.weekly
def test_without_a_cache(fast, model):
    before = layers(fast)["hits"].sum()
    assert_same_tokens(fast, model, steps=4, use_cache=False)
    assert layers(fast)["hits"].sum() == before + 4


@pytest.mark.weekly
@pytest.mark.slow
def test_padding_on_the_left(fast, model):
    before = layers(fast)["hits"].sum()
    assert_same_tokens(fast, model, **LEFT_PADDED)
    assert layers(fast)["hits"].sum() == before + 10


def test_a_pass_that_is_switched_on_serves_all_graphs(fast, model, session):
    assert_same_tokens(fast, model)
    before = layers(fast)["hits"]
    session.apply("merge-linears")
    try:
        assert_same_tokens(fast, model)
        table = layers(fast)
        served = table[table["hits"] > before]
        assert served["passes"].tolist() == ["merge-linears"] * 2
        assert set(served["verdict"]) <= {"same bits", "within the model's own rounding"}
    finally:
        session.revert("merge-linears")


@pytest.mark.weekly
@pytest.mark.slow
def test_assisted_generation(fast, model):
    assistant = llama(hidden_size=16)
    before = layers(fast)["hits"].sum()
    assert_same_tokens(fast, model, inputs=IDS[:1], steps=8, assistant_model=assistant)
    assert layers(fast)["hits"].sum() > before


@pytest.mark.weekly
@pytest.mark.slow
def test_a_static_cache():
    model = llama()
    fast = session_of(model).as_model()
    assert_same_tokens(fast, model, steps=6, cache_implementation="static")
    assert layers(fast)["hits"].tolist() == [5]  # the first call makes the cache, in Python


@pytest.mark.slow
@pytest.mark.weekly
def test_a_sliding_window_whose_counters_are_followed():
    config = {**TINY, **TOKENS, "num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 16}
    torch.manual_seed(0)
    model = hf.Gemma3ForCausalLM(
        hf.Gemma3TextConfig(**config, sliding_window=7, layer_types=["sliding_attention"])
    ).eval()
    fast = session_of(model).as_model()
    assert_same_tokens(fast, model, steps=12)
    table = layers(fast)
    assert len(table) <= 4
    assert table["hits"].sum() == 12


@pytest.mark.slow
@pytest.mark.weekly
def test_an_encoder_and_a_decoder():
    torch.manual_seed(0)
    config = hf.T5Config(
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=1,
        num_heads=2,
        vocab_size=100,
        decoder_start_token_id=0,
        eos_token_id=None,
    )
    model = hf.T5ForConditionalGeneration(config).eval()
    fast = fxlab.Session(model, {"input_ids": IDS, "decoder_input_ids": IDS, "use_cache": False}).as_model()
    assert_same_tokens(fast, model, steps=6)
    assert layers(fast)["hits"].sum() >= 6


@pytest.mark.weekly
@pytest.mark.slow
def test_a_classifier_is_trained_called_and_put_into_a_pipeline():
    torch.manual_seed(0)
    config = hf.BertConfig(**TINY, num_hidden_layers=1, hidden_dropout_prob=0.2)
    model = hf.BertForSequenceClassification(config).eval()
    session = fxlab.Session(model, {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)})
    fast = session.as_model()
    batch = {
        "input_ids": IDS,
        "attention_mask": LEFT_PADDED["attention_mask"],
        "labels": torch.tensor([0, 1]),
    }
    for module in (fast, model):
        module.train()
    losses = []
    for module in (fast, model):
        torch.manual_seed(0)
        loss = module(**batch).loss
        loss.backward()
        losses.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        model.zero_grad()
    assert len(losses[0]) > 20
    assert all(map(torch.equal, *losses))
    for module in (fast, model):
        module.eval()
    with torch.no_grad():
        assert torch.equal(fast(IDS, return_dict=False)[0], model(IDS, return_dict=False)[0])
        for module in (fast, model):
            module(IDS, output_hidden_states=True)  # transformers sets hooks up in the first such call
        output = fast(input_ids=IDS, output_hidden_states=True)
        expected = model(input_ids=IDS, output_hidden_states=True)
        assert all(map(torch.equal, output.hidden_states, expected.hidden_states))
    assert fast.graphs()["runs"].tolist()[0] == "graph"
    classify = hf.pipeline("text-classification", model=fast, tokenizer=tokenizer())
    expected = hf.pipeline("text-classification", model=model, tokenizer=tokenizer())
    assert classify(["a b", "b"]) == expected(["a b", "b"])


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "a": 1, "b": 2, "[UNK]": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return hf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
