import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.models import build_text_encoder, wordllama

pytest.importorskip("tokenizers")

TEXTS = [
    "a red flower and its leaves",
    "two cats on a sofa",
    "the sofa is red",
    "a cat and a flower",
    "leaves of a tree",
] * 3
INSTALLED = pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="no wordllama")
OWN = ("static-random", "transformer-small")


@pytest.mark.parametrize("name", OWN)
def test_the_same_texts_and_seed_give_the_same_network(name):
    state = torch.get_rng_state()
    first, again, other = (build_text_encoder(name, texts=TEXTS, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.tokenizer.to_str() == again.tokenizer.to_str()
    for (key, one), two, three in zip(
        first.state_dict().items(), again.state_dict().values(), other.state_dict().values(), strict=True
    ):
        assert torch.equal(one, two)
        if one.ndim > 1:
            assert not torch.equal(one, three), key


@pytest.mark.parametrize("name", OWN)
def test_texts_are_needed_for_a_vocabulary(name):
    for texts in (None, [], [None, " ", 3]):
        with pytest.raises(InputError, match="texts=.*vocabulary"):
            build_text_encoder(name, texts=texts)


def test_a_trained_vocabulary_reads_any_text():
    network = build_text_encoder("static-random", texts=TEXTS)
    strange = "Ein Löwe 日本語 \U0001f981"
    ids = network.tokenizer.encode(strange).ids
    assert network.tokenizer.decode(ids).strip() == strange.lower()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("transformer", {}, "did you mean 'transformer-small'"),
        ("static-random", {"depth": 2}, "depth=2"),
        ("static-random", {"width": 0}, "width=0"),
        ("transformer-small", {"width": 30}, "multiple of heads"),
        ("transformer-small", {"depth": 10**6}, "depth=1000000"),
        ("transformer-small", {"longest": 0}, "longest=0"),
        ("static-random", {"longest": 2.5}, "longest=2.5"),
    ],
)
def test_wrong_arguments(name, options, message):
    with pytest.raises(InputError, match=message):
        build_text_encoder(name, texts=TEXTS, **options)


@INSTALLED
def test_static_vectors_are_those_of_wordllama():
    network = build_text_encoder("static").eval()
    vectors = wordllama.read_vectors()
    column = network.tokenize(["A red flower", "leaf"])
    features = network(column.stack([0, 1]))
    for row in range(2):
        ids = column.ids[column.offsets[row] : column.offsets[row + 1]]
        torch.testing.assert_close(features[row], vectors[np.asarray(ids, dtype=np.int64)].mean(0))
    assert network.tokenizer.encode("leaf").tokens[0] != "<s>"
    random = build_text_encoder("static", weights=False)
    assert random.vocabulary == network.vocabulary
    assert not torch.allclose(random.backbone.vectors.weight, vectors)


@pytest.mark.slow
@INSTALLED
def test_wordllama_is_read_and_not_imported():
    code = "import sys\nfrom coulomb.models import build_text_encoder\nbuild_text_encoder('static')\n"
    code += "assert not [name for name in sys.modules if name.split('.')[0] in ('wordllama', 'transformers')]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_without_wordllama_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("coulomb.models.wordllama.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install wordllama .*static-random"):
        build_text_encoder("static")


def test_without_tokenizers_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match=r"pip install 'coulomb\[text\]'"):
        build_text_encoder("static-random", texts=TEXTS)


def test_configurations_are_json():
    config = build_text_encoder("transformer-small", texts=TEXTS, depth=1, longest=16).config
    assert json.loads(json.dumps(config)) == config and config["longest"] == 16
