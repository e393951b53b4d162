"""Objects as encoders of texts: library models are copied with their architecture, other modules keep their own code."""

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.models import load_encoder, save_encoder
from coulomb.models.text_encoder import TextEncoder
from coulomb.models.text_objects import build_text_object, name_objects
from sentence_models import tiny_model
from tiny_texts import TEXTS, Mean, bert, words


def encoded(network, texts=TEXTS):
    return TextEncoder(network, "mine").encode(texts, convert_to_numpy=True)


def test_a_sentence_transformer_gives_its_own_features_and_stays_as_it_is(tmp_path):
    model = tiny_model(tmp_path / "model", pooling="cls").eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    network = build_text_object(model, "model:SentenceTransformer")
    np.testing.assert_allclose(encoded(network), model.encode(TEXTS), atol=1e-5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("tokenizer", ["tokenizers", "transformers"])
def test_a_model_of_transformers_with_its_tokenizer_is_the_mean_over_its_tokens(tmp_path, tokenizer):
    transformers = pytest.importorskip("transformers")
    model, own = bert(tmp_path), words()
    if tokenizer == "transformers":
        own = transformers.PreTrainedTokenizerFast(tokenizer_object=words(), pad_token="[PAD]", model_max_length=16)
    network = build_text_object((model, own), "model:BertModel")
    with torch.no_grad():
        states = [model(torch.tensor([words().encode(text).ids])).last_hidden_state[0].mean(0) for text in TEXTS]
    np.testing.assert_allclose(encoded(network), torch.stack(states), atol=1e-5)
    save_encoder(network, tmp_path / "saved")
    np.testing.assert_allclose(encoded(load_encoder(tmp_path / "saved")), torch.stack(states), atol=1e-5)


def test_a_model_with_a_head_gives_the_features_before_it(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = bert(tmp_path).config
    model = transformers.BertForMaskedLM(config).eval()
    network = build_text_object((model, words()), "model:BertForMaskedLM")
    ids = torch.tensor([words().encode(TEXTS[0]).ids])
    with torch.no_grad():
        expected = model.bert(ids).last_hidden_state.mean(1)
    np.testing.assert_allclose(encoded(network, TEXTS[:1]), expected, atol=1e-5)


@pytest.mark.parametrize("pooled", [False, True])
def test_any_module_with_a_tokenizer_is_the_network_itself(tmp_path, pooled):
    module = Mean(pooled=pooled)
    network = build_text_object((module, words()), "custom:Mean")
    ids = [words().encode(text).ids for text in TEXTS]
    expected = torch.stack(
        [(module.vectors.weight[each] + module.positions.weight[: len(each)]).mean(0) for each in ids]
    )
    np.testing.assert_allclose(encoded(network), expected.detach(), atol=1e-6)
    assert network.backbone.module is module
    save_encoder(network, tmp_path)
    other = Mean(pooled=pooled)
    np.testing.assert_allclose(encoded(load_encoder(tmp_path, other)), expected.detach(), atol=1e-6)
    assert torch.equal(other.vectors.weight, module.vectors.weight)
    with pytest.raises(InputError, match=r"holds the weights of your module 'Mean': pass an instance"):
        load_encoder(tmp_path)


def test_the_tokenizer_may_be_an_attribute_and_limits_the_tokens():
    module = Mean()
    module.tokenizer = words()
    module.tokenizer.enable_truncation(5)
    assert build_text_object(module, "custom:Mean").longest == 5
    assert build_text_object(module, "custom:Mean", longest=3).longest == 3


def test_names_stand_for_objects_by_their_identity():
    first, second, tokenizer = Mean(), Mean(), words()
    name, objects = name_objects(
        {"a": "static", "b": (first, tokenizer), "c": (second, tokenizer), "d": (first, tokenizer)}
    )
    assert name == "a=static,b=custom:Mean,c=custom:Mean-2,d=custom:Mean"
    assert objects["custom:Mean"][0] is first and objects["custom:Mean-2"][0] is second
    assert name_objects("lite0") == ("lite0", {}) and name_objects(None) == (None, {})
    assert name_objects(first) == ("custom:Mean", {"custom:Mean": first})


class Wrong(Mean):
    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids, attention_mask), attention_mask


def test_wrong_objects_are_one_sentence():
    with pytest.raises(InputError, match=r"encoder='custom:Mean': has no tokenizer; .* give \(model, tokenizer\)"):
        build_text_object(Mean(), "custom:Mean")
    with pytest.raises(InputError, match=r"its tokenizer is a str"):
        build_text_object((Mean(), "bert"), "custom:Mean")
    with pytest.raises(InputError, match=r"encoder=Wrong: returned tuple for 2 texts"):
        build_text_object((Wrong(), words()), "custom:Wrong")
    with pytest.raises(InputError, match=r"encoder='Mean': failed on two texts of 512 tokens.*give longest="):
        build_text_object((Mean(positions=20), words()), "custom:Mean")
    with pytest.raises(InputError, match=r"encoder=int: must be a name, a torch.nn.Module"):
        name_objects(3)
    with pytest.raises(InputError, match=r"encoder=\{\}: is empty"):
        name_objects({})
