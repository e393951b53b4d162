import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.kinds import UnreadableCell
from coulomb.kinds.text import Text


def letters(text):
    return [ord(each) for each in text]


def stack_of(kind, *texts):
    return kind.stack([kind.read(texts, row).value for row in range(len(texts))])


def test_texts_are_padded_to_the_longest_with_a_mask():
    stack = stack_of(Text(letters, padding=-1), "ab", "abcd", "é")
    assert stack.ids.tolist() == [[97, 98, -1, -1], [97, 98, 99, 100], [233, -1, -1, -1]]
    assert stack.mask.tolist() == [[True, True, False, False], [True] * 4, [True, False, False, False]]
    assert stack.ids.dtype == torch.int64 and len(stack) == 3


def test_no_texts_are_an_empty_stack():
    assert len(Text(letters).stack([])) == 0


def test_long_texts_are_cut_and_counted():
    kind = Text(letters, longest=3)
    assert [kind.read(["abc", "abcd"], row).rounded for row in (0, 1)] == [False, True]
    assert stack_of(kind, "abcdef").ids.tolist() == [[97, 98, 99]]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [(None, "no text"), ("", "empty"), (" \n\t", "empty"), (3.5, "a float instead of a text"), ("?", "no tokens")],
)
def test_cells_without_text_are_unreadable(cell, reason):
    kind = Text(lambda text: [] if text == "?" else [1])
    with pytest.raises(UnreadableCell, match=reason):
        kind.read(["fine", cell], 1)


def test_a_tokenizer_of_the_tokenizers_library():
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"a": 5, "cat": 7, "?": 0}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    assert stack_of(Text(tokenizer), "a cat", "a dog cat").ids.tolist() == [[5, 7, 0], [5, 0, 7]]


def test_views_are_the_same_tokens_and_draw_nothing():
    kind, draw = Text(letters), torch.Generator().manual_seed(0)
    before = draw.get_state()
    stack = stack_of(kind, "ab", "c")
    views = kind.views(stack, draw, n=3)
    assert len(views) == 3 and all(torch.equal(view.ids, stack.ids) for view in views)
    assert torch.equal(draw.get_state(), before) and kind.views.plain(stack) is stack


def test_a_preview_is_escaped():
    kind = Text(letters)
    assert kind.preview(kind.read(["<b>&"], 0).value) == "&lt;b&gt;&amp;"


@pytest.mark.parametrize("options", [{"tokenizer": 3}, {"tokenizer": letters, "longest": 0}])
def test_options_are_checked(options):
    with pytest.raises(InputError, match=f"{list(options)[-1]}="):
        Text(**options)
