import math

import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.kinds.text import Tokens
from coulomb.models import build_pair, load_encoder, save_encoder
from coulomb.models.build_pair import is_pair, pair_facts

transformers = pytest.importorskip("transformers")
from pair_folders import saved_pair  # noqa: E402
from tiny_texts import TEXTS, batch, bert  # noqa: E402


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_features_are_those_of_transformers(kind, tmp_path):
    model, tokenizer, processor = saved_pair(tmp_path, kind)
    assert is_pair(str(tmp_path))
    pair = build_pair(str(tmp_path))
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    normalized = (images - torch.tensor(processor.image_mean)[:, None, None]) / torch.tensor(processor.image_std)[
        :, None, None
    ]
    ids, mask = batch(tokenizer, fixed=kind == "siglip")
    with torch.no_grad():
        expected = [
            getattr(each, "pooler_output", each)
            for each in (
                model.get_image_features(normalized),
                model.get_text_features(ids, mask if kind == "clip" else None),
            )
        ]
        column = pair.text.tokenize(TEXTS)
        found = pair.image.eval()(images), pair.text.eval()(column.stack(range(4)))
        alone = torch.cat([pair.text(column.stack([row])) for row in range(4)])
        stack = column.stack(range(4))
        other_padding = pair.text(Tokens(stack.ids.masked_fill(~stack.mask, 5), stack.mask))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    torch.testing.assert_close(alone, found[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(other_padding, found[1], rtol=0, atol=1e-5)
    assert pair.text.longest == 9 and column.cut.tolist() == [False, False, True, False]
    assert pair.temperature == pytest.approx(math.exp(-3.0)) and pair.bias == (None if kind == "clip" else -7)
    assert pair.image.preprocessing is not None and pair.image.image_size == 16
    assert pair_facts(str(tmp_path)) == (16, pair.temperature, pair.bias)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_both_towers_are_saved_and_loaded_exactly(kind, tmp_path):
    saved_pair(tmp_path, kind)
    pair = build_pair(str(tmp_path))
    images, tokens = torch.rand(2, 3, 16, 16), pair.text.tokenize(TEXTS).stack(range(4))
    for encoder, cells, name in ((pair.image, images, "image"), (pair.text, tokens, "text")):
        save_encoder(encoder.eval(), tmp_path / name)
        assert torch.equal(load_encoder(tmp_path / name)(cells), encoder(cells))


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_random_weights(kind, tmp_path):
    saved_pair(tmp_path, kind)
    first, again = (build_pair(str(tmp_path), weights=False, seed=3) for _ in range(2))
    tokens = first.text.tokenize(TEXTS).stack(range(4))
    assert torch.equal(first.text.eval()(tokens), again.text.eval()(tokens))
    assert first.image.feature_dim == first.text.feature_dim and first.bias == (None if kind == "clip" else -10)


def test_models_of_one_kind_are_no_pair(tmp_path):
    bert(tmp_path)
    assert not is_pair(str(tmp_path)) and not is_pair(None) and not is_pair("static")
    with pytest.raises(InputError, match="no text_config"):
        build_pair(str(tmp_path))
    with pytest.raises(InputError, match="model for images and texts"):
        build_pair("static")
