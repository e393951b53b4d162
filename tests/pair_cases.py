"""Pairs of two columns for tests: features of towers that share some factors, and their ids."""

import numpy as np

from coulomb.evaluation.pairs import Embedded, PairInputs


def two_views(rows, shared=6, own=6, widths=(20, 15), noise=0.3, seed=0):
    """Features [N, F] and [N, G] that are linear in ``shared`` common factors and in factors of their own."""
    draw = np.random.default_rng(seed)
    mixing = np.random.default_rng(99)
    common = draw.normal(size=(rows, shared))
    sides = []
    for width in widths:
        factors = np.concatenate([common, draw.normal(size=(rows, own))], axis=1)
        weights = mixing.normal(size=(shared + own, width))
        sides.append((factors @ weights + noise * draw.normal(size=(rows, width)) + 1.0).astype(np.float32))
    return sides, common


def pair_inputs(held_out=120, training=300, captions=2, skill=1.0, seed=0, weights="lite0 and MiniLM", **others):
    """A run on pictures with several captions; ``skill`` 0: trained embeddings are noise, larger: they are better."""
    pictures = held_out + training
    (image, _), common = two_views(pictures, seed=seed)
    of = np.repeat(np.arange(pictures), captions)
    draw = np.random.default_rng(seed + 1)
    mixing = np.random.default_rng(98).normal(size=(6, 15))
    text = (common[of] @ mixing + draw.normal(size=(len(of), 15))).astype(np.float32)
    ids = np.stack([of, np.arange(len(of))], axis=1)
    embedded = [
        (skill * common[of] + draw.normal(size=(pictures, 6))[of]).astype(np.float32),
        (skill * common[of] + draw.normal(size=(len(of), 6))).astype(np.float32),
    ]
    test, train = of < held_out, of >= held_out
    return PairInputs(
        columns=("image", "caption"),
        ids=ids[test],
        trained=Embedded(*(x[test] for x in embedded)),
        untouched=Embedded(image[of][test], text[test]),
        untouched_train=Embedded(image[of][train], text[train]),
        train_ids=ids[train],
        weights=weights,
        seed=seed,
        **others,
    )
