import pickle

import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.kinds import UnreadableCell
from coulomb.kinds.text import Text, tokenize

tokenizers = pytest.importorskip("tokenizers")

WORDS = {word: place for place, word in enumerate("[PAD] [UNK] [CLS] [SEP] a red flower and its leaf".split())}


def words(special=False):
    """A tokenizer of the words above; with ``special``, each text is [CLS] … [SEP]."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    if special:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return tokenizer


TEXTS = ["a red flower", "leaf", "  and its\n", "a red flower and its red leaf"]


def test_a_column_reads_as_its_texts_do():
    """Through `Text`, from the column and string by string; and as one stack."""
    column, kind = tokenize(TEXTS, words(), longest=5), Text(words(), longest=5)
    read = [kind.read(column, row) for row in range(4)]
    plain = [kind.read(TEXTS, row) for row in range(4)]
    assert [cell.value.ids.tolist() for cell in read] == [cell.value.ids.tolist() for cell in plain]
    assert [cell.rounded for cell in read] == [cell.rounded for cell in plain] == [False, False, False, True]
    rows = [2, 0, 3, 2]
    stack, joined = column.stack(rows), kind.stack([read[row].value for row in rows])
    assert stack.ids.tolist() == joined.ids.tolist() and stack.mask.tolist() == joined.mask.tolist()
    assert kind.preview(read[0].value) == "a red flower"


def test_texts_that_are_cut_are_counted_and_keep_their_last_special_token():
    column = tokenize(TEXTS, words(special=True), longest=5)
    assert column.cut.tolist() == [False, False, False, True]
    assert column.ids[column.offsets[3] : column.offsets[4]].tolist() == [2, 4, 5, 6, 3]
    assert column.notes == ["1 text of 4 had more than 5 tokens and was cut there"]
    assert tokenize(TEXTS[:3], words(), longest=5).notes == []


def test_the_limits_of_the_tokenizer_itself_do_not_matter_and_stay():
    tokenizer = words()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    before = tokenizer.to_str()
    column = tokenize(TEXTS, tokenizer, longest=5)
    assert column.lengths.tolist() == [3, 1, 2, 5]
    assert tokenizer.to_str() == before


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (None, "no text"),
        ("", "empty"),
        (" \t", "empty"),
        (b"leaf", "bytes"),
        (7, "a int instead"),
        ("a\ud800", "no Unicode"),
    ],
)
def test_cells_without_text_have_a_reason_and_no_tokens(cell, reason):
    column = tokenize(["leaf", cell, "a"], words(), longest=5)
    assert column.lengths.tolist() == [1, 0, 1] and list(column.reasons) == [1]
    with pytest.raises(UnreadableCell, match=reason):
        Text(words()).read(column, 1)


def test_many_texts_are_tokenized_in_parts_and_reported(monkeypatch):
    monkeypatch.setattr("coulomb.kinds.text.tokens.CHUNK", 3)
    done = []
    column = tokenize([*TEXTS, None, "a"], words(), longest=5, advance=done.append)
    assert done == [3, 3] and column.lengths.tolist() == [3, 1, 2, 5, 0, 1] and list(column.reasons) == [4]


def test_a_column_is_picklable():
    column = pickle.loads(pickle.dumps(tokenize(TEXTS, words(), longest=5)))
    assert np.array_equal(column.ids, tokenize(TEXTS, words(), longest=5).ids) and list(column.texts) == TEXTS


def test_a_limit_without_room_for_text_is_refused():
    with pytest.raises(InputError, match="longest=2: must be at least 3"):
        tokenize(TEXTS, words(special=True), longest=2)
