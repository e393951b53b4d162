"""Ranks of correct keys, compared with a double loop in float64."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.metrics import matching as module
from coulomb.metrics.matching import (
    chance_survival,
    distinct_pairs,
    match_ranks,
    pair_retrieval,
    score_ranks,
)


def dense_ranks(queries, keys, correct):
    """The definition on the whole table of cosines in float64; equal to 12 digits is equal."""
    lengths = [np.linalg.norm(x.astype(float), axis=1, keepdims=True) for x in (queries, keys)]
    a, b = (x / np.where(length > 0, length, 1) for x, length in zip((queries, keys), lengths, strict=True))
    table = np.round(a.astype(float) @ b.astype(float).T, 12)
    ranks = []
    for i in range(len(queries)):
        right = {j for q, j in zip(*correct, strict=True) if q == i}
        if not right:
            ranks.append(-1)
            continue
        best = max(table[i, j] for j in right)
        ranks.append(1 + sum(table[i, j] >= best for j in range(len(keys)) if j not in right))
    return ranks


def pictures_and_captions(pictures=40, captions=5, width=6, noise=1.0, seed=0):
    draw = np.random.default_rng(seed)
    first = draw.normal(size=(pictures, width)).astype(np.float32)
    of = np.repeat(np.arange(pictures), captions)
    second = (first[of] + noise * draw.normal(size=(len(of), width))).astype(np.float32)
    return first, second, (of, np.arange(len(of)))


@pytest.fixture(params=["one tile", "many tiles", "all in fp64"])
def tiles(request, monkeypatch):
    if request.param == "many tiles":
        monkeypatch.setattr(module, "QUERIES", 7)
        monkeypatch.setattr(module, "TILE", 11)
    if request.param == "all in fp64":
        monkeypatch.setattr(module, "CROWDED", 10**9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ranks_are_those_of_the_table_in_float64(tiles, dtype):
    first, second, correct = pictures_and_captions()
    first, second = first.astype(dtype), (3 * second).astype(dtype)
    there, back = match_ranks(first, second, correct), match_ranks(second, first, correct[::-1])
    assert there.dtype == np.int64 and there.tolist() == dense_ranks(first, second, correct)
    assert back.tolist() == dense_ranks(second, first, correct[::-1])
    assert 1 < np.median(back) < 20 and there.max() > 3


def test_ranks_are_exact_where_fp32_cannot_order(tiles):
    """Keys whose cosines differ by 1e-9: products in fp32 order them at random."""
    draw = np.random.default_rng(0)
    queries = draw.normal(size=(30, 8))
    center = draw.normal(size=8)
    keys = center + 1e-9 * draw.normal(size=(50, 8))
    correct = np.arange(30), draw.integers(0, 50, 30)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, keys)]
    table = unit[0] @ unit[1].T
    expected = [1 + sum(table[i] > table[i, j]) for i, j in zip(*correct, strict=True)]
    assert match_ranks(queries, keys, correct).tolist() == expected
    single = functional_ranks_in_fp32(unit, correct)
    assert single != expected


def functional_ranks_in_fp32(unit, correct):
    table = unit[0].astype(np.float32) @ unit[1].astype(np.float32).T
    return [1 + sum(table[i] > table[i, j]) for i, j in zip(*correct, strict=True)]


def test_ties_count_against_the_query_unless_the_tied_key_is_correct(tiles):
    query = np.array([[1.0, 2.0, 3.0]], np.float32)
    keys = np.concatenate([np.repeat(query, 4, axis=0), -query])
    assert match_ranks(query, keys, ([0], [2])).tolist() == [4]
    assert match_ranks(query, keys, ([0, 0], [2, 0])).tolist() == [3]
    assert match_ranks(query, keys, ([0, 0, 0, 0], [0, 1, 2, 3])).tolist() == [1]
    assert match_ranks(query, keys, ([0], [4])).tolist() == [5]
    constant = np.full((300, 7), 0.1, np.float32)
    assert set(match_ranks(constant, 3 * constant, (np.arange(300), np.arange(300)))) == {300}
    zeros = np.zeros((5, 3), np.float32)
    assert set(match_ranks(zeros, zeros, (np.arange(5), np.arange(5)))) == {5}


def test_queries_without_a_correct_key_are_left_out_and_counted():
    first, second, (of, caption) = pictures_and_captions(pictures=20)
    kept = of != 7
    ranks = match_ranks(first, second, (of[kept], caption[kept]))
    assert ranks[7] == -1 and (np.delete(ranks, 7) > 0).all()
    found = pair_retrieval(first, second, (of[kept], caption[kept]))
    assert found["first_to_second"]["queries"] == 19 and found["first_to_second"]["queries_left_out"] == 1
    assert found["second_to_first"]["queries"] == 95 and found["second_to_first"]["queries_left_out"] == 5
    assert found["first_to_second"]["keys"] == 100 and found["second_to_first"]["keys"] == 20


relations = st.integers(0, 10_000).flatmap(
    lambda seed: st.tuples(st.just(seed), st.integers(1, 12), st.integers(1, 12), st.integers(1, 30))
)


def drawn(case):
    """Small integers as features, so that there are many exact ties."""
    seed, queries, keys, pairs = case
    draw = np.random.default_rng(seed)
    a, b = draw.integers(-2, 3, (queries, 2)), draw.integers(-2, 3, (keys, 2))
    correct = draw.integers(0, queries, pairs), draw.integers(0, keys, pairs)
    return a.astype(np.float32), b.astype(np.float32), correct, draw


@settings(deadline=None, max_examples=60)
@given(relations)
def test_properties_of_ranks(case):
    queries, keys, correct, draw = drawn(case)
    ranks = match_ranks(queries, keys, correct)
    assert ranks.tolist() == dense_ranks(queries, keys, correct)
    # The order of keys and pairs does not matter, nor the lengths of vectors, nor repeated pairs.
    order = draw.permutation(len(keys))
    place = np.argsort(order)
    pairs = draw.permutation(len(correct[0]))
    moved = correct[0][pairs], place[correct[1][pairs]]
    assert match_ranks(queries, keys[order], moved).tolist() == ranks.tolist()
    lengths = draw.integers(1, 50, (len(keys), 1)).astype(np.float32)
    assert match_ranks(7 * queries, lengths * keys, correct).tolist() == ranks.tolist()
    assert match_ranks(queries, keys, tuple(np.tile(each, 2) for each in correct)).tolist() == ranks.tolist()
    # One more wrong key never makes a rank better, one more correct pair never worse (for queries that had one).
    more = np.concatenate([keys, draw.integers(-2, 3, (1, 2)).astype(np.float32)])
    assert (match_ranks(queries, more, correct) >= ranks).all()
    added = np.append(correct[0], correct[0][0]), np.append(correct[1], draw.integers(0, len(keys)))
    assert (match_ranks(queries, keys, added) <= ranks).all()


@settings(deadline=None, max_examples=30)
@given(relations)
def test_scores_in_blocks_give_the_ranks_of_the_table(case):
    queries, keys, correct, _ = drawn(case)
    table = queries.astype(float) @ keys.astype(float).T
    for block in (1, 3, None):
        ranks = score_ranks(lambda rows: table[rows], len(queries), len(keys), correct, block=block)
        for i, rank in enumerate(ranks):
            right = {j for q, j in zip(*correct, strict=True) if q == i}
            best = max((table[i, j] for j in right), default=None)
            expected = -1 if best is None else 1 + sum(table[i, j] >= best for j in range(len(keys)) if j not in right)
            assert rank == expected


def test_figures_are_those_of_a_loop_over_queries():
    first, second, correct = pictures_and_captions(noise=1.5)
    found = pair_retrieval(first, second, correct, ks=(1, 5, 10))
    for direction, ranks in (
        ("first_to_second", np.array(dense_ranks(first, second, correct))),
        ("second_to_first", np.array(dense_ranks(second, first, correct[::-1]))),
    ):
        row = found[direction]
        assert row["recall_at"] == {str(k): pytest.approx(np.mean(ranks <= k)) for k in (1, 5, 10)}
        assert row["mrr"] == pytest.approx(np.mean(1 / ranks)) and row["median_rank"] == np.median(ranks)
    assert found["mean"]["mrr"] == pytest.approx(
        (found["first_to_second"]["mrr"] + found["second_to_first"]["mrr"]) / 2
    )
    assert 0.1 < found["mean"]["recall_at"]["1"] < found["mean"]["recall_at"]["5"] < 0.9
    json.dumps(found)


def test_chance_is_the_mean_of_random_orders():
    """Pictures with 1 to 4 captions, one of which belongs to two pictures."""
    of = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 0])
    caption = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9])
    draw = np.random.default_rng(0)
    ranks = []
    for _ in range(4000):
        place = draw.permutation(10) + 1
        ranks += [min(place[caption[of == picture]]) for picture in range(4)]
    ranks = np.array(ranks)
    chance = pair_retrieval(np.eye(4, 3), np.ones((10, 3)), (of, caption), ks=(1, 5, 20))["first_to_second"]["chance"]
    assert chance["recall_at"]["1"] == pytest.approx((2 + 2 + 3 + 4) / 40)
    assert chance["recall_at"]["5"] == pytest.approx(np.mean(ranks <= 5), abs=0.015)
    assert chance["recall_at"]["20"] == 1
    assert chance["mrr"] == pytest.approx(np.mean(1 / ranks), abs=0.01)
    assert chance["median_rank"] == np.median(ranks)


def test_chance_of_one_answer_is_uniform():
    assert chance_survival(1, 4) == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    assert chance_survival(4, 4) == pytest.approx([1, 0, 0, 0, 0])


def test_distinct_cells_are_in_the_order_of_rows():
    ids = np.array([[9, 4], [9, 5], [2, 4], [9, 4], [7, 1]])  # picture 9 has two captions, caption 4 two pictures
    found = distinct_pairs(ids)
    assert found.first_rows.tolist() == [0, 2, 4] and found.second_rows.tolist() == [0, 1, 4]
    assert list(zip(*(each.tolist() for each in found.correct), strict=True)) == [(0, 0), (0, 1), (1, 0), (2, 2)]
    assert distinct_pairs(torch.from_numpy(ids)).first_rows.tolist() == [0, 2, 4]
    for wrong in (ids[:, :1], ids[:0], ids.astype(float)):
        with pytest.raises(InputError, match="ids="):
            distinct_pairs(wrong)


def test_memory_is_that_of_a_tile(monkeypatch):
    monkeypatch.setattr(module, "QUERIES", 64)
    monkeypatch.setattr(module, "TILE", 32)
    seen = []
    original = module.product
    monkeypatch.setattr(module, "product", lambda a, b: seen.append(len(a) * len(b)) or original(a, b))
    first, second, correct = pictures_and_captions(pictures=200)
    match_ranks(first, second, correct)
    assert max(seen) <= 64 * 32 and sum(seen) == 200 * 1000


def test_invalid_input_is_refused():
    first, second, correct = pictures_and_captions(pictures=4, captions=2)
    with pytest.raises(InputError, match="queries_QF has 6 dimensions and keys_KF 5"):
        match_ranks(first, second[:, :5], correct)
    with pytest.raises(InputError, match="from 0 to 7 are out of range; there are 7"):
        match_ranks(first, second[:7], correct)
    with pytest.raises(InputError, match=r"correct=int64\[8\], float64\[8\]"):
        match_ranks(first, second, (correct[0], correct[1] * 1.0))
    with pytest.raises(InputError, match="NaN"):
        match_ranks(first * np.nan, second, correct)
    with pytest.raises(InputError, match=r"ks=\(0,\)"):
        pair_retrieval(first, second, correct, ks=(0,))
    with pytest.raises(InputError, match="no pair"):
        pair_retrieval(first, second, (correct[0][:0], correct[1][:0]))
    with pytest.raises(InputError, match=r"\[4, 8\]"):
        score_ranks(lambda rows: np.zeros((4, 7)), 4, 8, correct)
