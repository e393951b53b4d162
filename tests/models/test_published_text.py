import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from coulomb.ground.errors import InputError
from coulomb.models import build_text_encoder, load_encoder, save_encoder
from coulomb.models.published_text import bands
from coulomb.models.saving import random_encoder
from coulomb.models.tuning import Tune

pytest.importorskip("transformers")
from tiny_texts import TEXTS, bert, sentence_layout, words
from tiny_texts import batch as library_batch


def features(network, texts=TEXTS):
    with torch.no_grad():
        return network.eval()(network.tokenize(texts).stack(range(len(texts))))


def states(model, texts=TEXTS, longest=16):
    ids, mask = library_batch(words(), texts, longest)
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask).last_hidden_state, mask.bool()


def mean(states, mask):
    return torch.stack([each[keep].mean(0) for each, keep in zip(states, mask, strict=True)])


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "modernbert", "t5", "llama"])
def test_folders_of_transformers_give_the_mean_over_tokens(kind, tmp_path):
    names = {
        "distilbert": {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
        "roberta": {"pad_token_id": 0},
        "modernbert": {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3},
        "t5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "llama": {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
    }
    model = bert(tmp_path, kind, **names.get(kind, {}))
    model = model.encoder if kind == "t5" else model
    network = build_text_encoder(str(tmp_path))
    assert network.feature_dim == 32 and network.name.startswith(f"hf:{kind}") and network.training
    torch.testing.assert_close(features(network), mean(*states(model)), rtol=0, atol=1e-5)


def test_roberta_has_fewer_positions_than_embeddings(tmp_path):
    bert(tmp_path, "roberta", pad_token_id=0)
    network = build_text_encoder(str(tmp_path))
    assert network.longest == 15
    assert features(network, ["a " * 40]).shape == (1, 32)


POOLINGS = {
    "cls": ({"pooling_mode_cls_token": True}, lambda states, mask: states[:, 0]),
    "mean": ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, mean),
    "max": ({"pooling_mode": "max"}, lambda states, mask: states.masked_fill(~mask[..., None], -9).amax(1)),
    "last": (
        {"pooling_mode_lasttoken": True},
        lambda states, mask: torch.stack([each[keep][-1] for each, keep in zip(states, mask, strict=True)]),
    ),
}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_is_read_from_the_files(pooling, tmp_path):
    model = bert(tmp_path)
    entries, formula = POOLINGS[pooling]
    sentence_layout(tmp_path, ("Transformer", "Pooling", "Normalize"), entries)
    network = build_text_encoder(str(tmp_path))
    expected = torch.nn.functional.normalize(formula(*states(model)), dim=1)
    torch.testing.assert_close(features(network), expected, rtol=0, atol=1e-5)


def test_dense_layers_are_read_from_the_files(tmp_path):
    model = bert(tmp_path)
    sentence_layout(tmp_path, ("Transformer", "Pooling", "Dense"))
    torch.manual_seed(1)
    layer = torch.nn.Linear(32, 8)
    entries = {
        "in_features": 32,
        "out_features": 8,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    (tmp_path / "2_Dense" / "config.json").write_text(json.dumps(entries))
    save_file(
        {f"linear.{key}": value for key, value in layer.state_dict().items()},
        tmp_path / "2_Dense" / "model.safetensors",
    )
    network = build_text_encoder(str(tmp_path))
    assert network.feature_dim == 8
    expected = layer(mean(*states(model))).tanh()
    torch.testing.assert_close(features(network), expected, rtol=0, atol=1e-5)
    save_encoder(network, tmp_path / "saved")
    assert torch.equal(features(load_encoder(tmp_path / "saved")), features(network))


def test_static_vectors_of_sentence_transformers(tmp_path):
    table = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    save_file({"embedding.weight": table}, tmp_path / "model.safetensors")
    words().save(str(tmp_path / "tokenizer.json"))
    sentence_layout(tmp_path, ("StaticEmbedding", "Normalize"))
    network = build_text_encoder(str(tmp_path))
    expected = torch.nn.functional.normalize(torch.stack([table[[4, 5, 6]].mean(0), table[10]]), dim=1)
    torch.testing.assert_close(features(network, TEXTS[:2]), expected)
    save_encoder(network, tmp_path / "saved")
    assert torch.equal(features(load_encoder(tmp_path / "saved")), features(network))


def test_limits_of_tokens(tmp_path):
    bert(tmp_path)
    assert build_text_encoder(str(tmp_path)).longest == 16
    sentence_layout(tmp_path, sentence_bert_config={"max_seq_length": 9})
    network = build_text_encoder(str(tmp_path))
    assert network.longest == 9 and network.tokenize(TEXTS).cut.tolist() == [False, False, True, False]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 7, "pad_token": "[PAD]"}))
    assert build_text_encoder(str(tmp_path)).longest == 7
    assert build_text_encoder(str(tmp_path), longest=5).longest == 5
    with pytest.raises(InputError, match="longest=8: .* at most 7"):
        build_text_encoder(str(tmp_path), longest=8)


def test_texts_are_made_lower_case_where_the_files_say_so(tmp_path):
    bert(tmp_path)
    sentence_layout(tmp_path, sentence_bert_config={"do_lower_case": True})
    network = build_text_encoder(str(tmp_path))
    assert torch.equal(features(network, ["A Red Flower"]), features(network, ["a red flower"]))


def test_the_other_texts_do_not_change_features_in_large_batches(tmp_path):
    bert(tmp_path)
    network = build_text_encoder(str(tmp_path))
    many = [text for each in range(20) for text in (*TEXTS, "cat " * (each % 9 + 1))]
    alone = torch.cat([features(network, [text]) for text in many])
    torch.testing.assert_close(features(network, many), alone, rtol=0, atol=1e-5)


def test_saving_and_loading_is_exact_and_downloads_nothing(tmp_path):
    source, saved = tmp_path / "source", tmp_path / "saved"
    bert(source)
    sentence_layout(source, ("Transformer", "Pooling", "Normalize"))
    network = build_text_encoder(str(source))
    network.attach_adapter({"kind": "linear", "in": 32, "out": 4})
    save_encoder(network, saved)
    assert str(tmp_path) not in (saved / "encoder.json").read_text()
    expected = features(network)
    for file in sorted(source.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    assert torch.equal(features(load_encoder(saved)), expected)
    again = build_text_encoder(str(saved))
    assert again.training and torch.equal(features(again), expected)
    first, second = (random_encoder(saved, seed) for seed in (1, 1))
    assert torch.equal(features(first), features(second)) and first.feature_dim == 32


def test_random_weights_of_the_same_architecture(tmp_path):
    bert(tmp_path)
    state = torch.get_rng_state()
    first, again, other = (build_text_encoder(str(tmp_path), weights=False, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(features(first), features(again)) and not torch.allclose(features(first), features(other))


def test_a_model_type_learns_its_vocabulary():
    network = build_text_encoder("hf:distilbert", texts=TEXTS * 3, longest=16)
    assert network.longest == 16 and network.vocabulary == network.backbone.model.get_input_embeddings().num_embeddings
    assert features(network).shape == (4, 768)
    with pytest.raises(InputError, match="texts=None"):
        build_text_encoder("hf:distilbert")
    with pytest.raises(InputError, match="model type and has no weights"):
        build_text_encoder("hf:distilbert@weights")


@pytest.mark.parametrize(
    ("tune", "names"),
    [("none", ()), ("last:1", ("layer.1.",)), ("norm", ("LayerNorm",))],
)
def test_tuning(tune, names, tmp_path):
    bert(tmp_path)
    network = build_text_encoder(str(tmp_path))
    Tune.parse(tune).apply(network)
    for name, parameter in network.backbone.named_parameters():
        assert parameter.requires_grad is any(part in name for part in names), name


def test_lora(tmp_path):
    pytest.importorskip("peft")
    bert(tmp_path)
    network = build_text_encoder(str(tmp_path))
    before = features(network)
    assert "12 linear layers" in Tune.parse("lora:2").apply(network)
    torch.testing.assert_close(features(network), before)


def drop(folder, name):
    (folder / name).unlink()


DAMAGES = {
    "modules": (lambda f: sentence_layout(f, ("Transformer", "Pooling", "LSTM")), "LSTM at this place"),
    "order": (lambda f: sentence_layout(f, ("Pooling", "Transformer")), "begins with Pooling"),
    "no pooling": (lambda f: sentence_layout(f, ("Transformer",)), "no Pooling"),
    "pooling": (lambda f: sentence_layout(f, pooling={"pooling_mode_weightedmean_tokens": True}), "weightedmean"),
    "two poolings": (
        lambda f: sentence_layout(f, pooling={"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}),
        "cls and mean|mean and cls",
    ),
    "prompt": (
        lambda f: sentence_layout(f, config_sentence_transformers={"default_prompt_name": "query"}),
        "default prompt 'query'",
    ),
    "dense": (lambda f: sentence_layout(f, ("Transformer", "Pooling", "Dense")), "no sizes of the dense layer"),
    "outside": (
        lambda f: (f / "modules.json").write_text('[{"type": "x.Transformer", "path": "../other"}]'),
        "'../other', which is outside",
    ),
    "absolute": (
        lambda f: (f / "modules.json").write_text('[{"type": "x.Transformer", "path": "/etc"}]'),
        "'/etc', which is outside",
    ),
    "not a list": (lambda f: (f / "modules.json").write_text('{"a": 1}'), "modules.json is damaged"),
    "not JSON": (lambda f: (f / "modules.json").write_text("{"), "modules.json is damaged"),
    "tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json"),
    "no tokenizer": (lambda f: drop(f, "tokenizer.json"), "no tokenizer.json"),
    "weights": (lambda f: drop(f, "model.safetensors"), "could not be downloaded or loaded"),
    "damaged weights": (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "cannot be built"),
    "config": (lambda f: (f / "config.json").write_text("{"), "no such configuration"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders_are_one_sentence(damage, tmp_path):
    bert(tmp_path)
    change, message = DAMAGES[damage]
    change(tmp_path)
    with pytest.raises(InputError, match=message) as raised:
        build_text_encoder(str(tmp_path))
    assert str(tmp_path) in str(raised.value) and "\n" not in str(raised.value)


def test_code_in_a_folder_is_never_run(tmp_path):
    bert(tmp_path)
    entries = json.loads((tmp_path / "config.json").read_text())
    entries |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(entries))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(InputError, match="no such configuration"):
        build_text_encoder(str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_tokenizers_with_more_ids_than_the_model_are_refused(tmp_path):
    bert(tmp_path, vocab_size=7)
    with pytest.raises(InputError, match="ids up to 11, and the network has 7"):
        build_text_encoder(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "there is no folder"),
        ("timm:resnet18", "timm has no encoders of texts"),
        ("hf:", "hf:NAME"),
        ("run:nowhere", "there is no folder"),
    ],
)
def test_names_without_an_encoder_of_texts(name, message):
    with pytest.raises(InputError, match=message):
        build_text_encoder(name)


def test_a_folder_without_any_description(tmp_path):
    with pytest.raises(InputError, match=r"no config\.json, modules\.json or encoder\.json"):
        build_text_encoder(str(tmp_path))


def test_an_encoder_of_images_is_no_encoder_of_texts(tmp_path):
    from coulomb.models import build_encoder

    save_encoder(build_encoder("convnet", channels=3, image_size=8, width=2), tmp_path)
    with pytest.raises(InputError, match="takes images; an encoder of texts is needed"):
        build_text_encoder(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pooling": "sum"}, "no encoder of texts"),
        ({"dense": [{"width_in": 32}]}, "width_out"),
        ({"dense": [{"width_in": 32, "width_out": 8, "bias": True, "activation": "Linear"}]}, "no encoder of texts"),
        ({"architecture": {"model_type": "bart-simpson"}}, "no model type"),
        ({"architecture": {}}, "no model type"),
        ({"normalize": 1}, "normalize"),
    ],
)
def test_damaged_descriptions_are_refused(change, message, tmp_path):
    bert(tmp_path / "source")
    save_encoder(build_text_encoder(str(tmp_path / "source")), tmp_path / "saved")
    path = Path(tmp_path / "saved" / "encoder.json")
    description = json.loads(path.read_text())
    description["options"] |= change
    path.write_text(json.dumps(description))
    with pytest.raises(InputError, match=message):
        load_encoder(tmp_path / "saved")


def test_other_files_of_a_tokenizer_are_converted(tmp_path):
    bert(tmp_path)
    drop(tmp_path, "tokenizer.json")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "flower", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    column = build_text_encoder(str(tmp_path)).tokenize(["a red Flower", "a cat"])
    assert column.ids.tolist() == [2, 5, 6, 7, 3, 2, 5, 8, 3]


def test_texts_of_similar_lengths_form_bands():
    assert bands([]) == [0] and bands([3] * 40) == [40]
    lengths = [5] * 3 + [6] * 7 + [8] * 9 + [30] * 2 + [60]
    assert bands(lengths) == [10, 9, 3] and sum(bands(lengths)) == len(lengths)
