"""Indexes of texts: the same questions as of images, answered with texts."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.ground.errors import InputError
from coulomb.index.texts import PREVIEW, describe_text, open_texts, plain
from coulomb.models import build_text_encoder
from coulomb.models.text_encoder import TextEncoder
from index_cases import age, folder, tiny

pytest.importorskip("tokenizers")
TEXTS = [
    "a red flower",
    "a blue flower",
    "two cats on a sofa",
    "  a red flower ",
    "two cats sleep on a red sofa",
    "the train leaves at noon",
    "caf\u00e9 noir",
    "cafe\u0301 noir",
]


def words(seed=0):
    return TextEncoder(build_text_encoder("static-random", texts=TEXTS * 3, seed=seed), "words")


def build(data, out, **options):
    return coulomb.Index.build(data, out, **{"columns": "text", "encoder": words(), "progress": False} | options)


def content(index):
    return index.features.tobytes(), index.table.to_pydict()


def counts(index):
    return tuple(index.info["last_update"][name] for name in ("new", "changed", "kept", "dropped"))


@pytest.fixture
def index(tmp_path):
    return build(TEXTS, tmp_path / "i")


def test_the_table_holds_each_text_as_it_is_compared(index):
    assert (len(index), index.kind, index.info["texts"]) == (8, "text", 8)
    assert index.table.column_names == ["id", "text", "label", "bytes", "sha256", "characters", "cut"]
    assert index.table.slice(3, 1).to_pylist()[0] | {"sha256": ""} == {
        "id": "3", "text": "a red flower", "label": None, "bytes": 12, "sha256": "", "characters": 12, "cut": False,
    }  # fmt: skip
    assert index.table.column("sha256")[6] == index.table.column("sha256")[7]  # after NFC
    wanted = words().encode([plain(text) for text in TEXTS], normalize_embeddings=True)
    assert torch.allclose(torch.from_numpy(index.features.astype(np.float32)), wanted, atol=1e-3)
    assert index.paths == [None] * 8
    assert repr(index).endswith("8 texts)")


def test_a_long_text_is_shown_by_its_beginning_and_counted_where_it_is_cut(tmp_path):
    facts = describe_text("x" * 201)
    assert (len(facts.text), facts.text[-1], facts.characters) == (PREVIEW, "…", 201)
    assert describe_text("x" * 200).text == "x" * 200
    index = build(["a red flower " * 300, "cats"], tmp_path / "i")
    assert index.info["cut"] == 1
    assert index.info["data"]["notes"] == ["1 text of 2 has more than 256 tokens; the rest of each is not indexed."]


def test_texts_are_found_by_words_and_by_rows(index):
    found = index.search(text=" a blue flower")
    assert (found[0]["id"], found[0]["text"]) == ("1", "a blue flower")
    assert found[0]["similarity"] == pytest.approx(1, abs=1e-3)
    assert list(found[0]) == ["id", "text", "similarity", "label"]
    assert [row["id"] for row in index.search(ids="0", top=1)] == ["3"]
    first = index.search(text="two cats on a sofa", without_text="a red sofa", top=1)
    assert first[0]["id"] == "2"
    with pytest.raises(InputError, match="no query; give words as text"):
        index.search()
    with pytest.raises(InputError, match="most similar id is '0'|not in the index"):
        index.search(ids="90")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"text": " "}, "text=' ': has no words"),
        ({"text": "flower", "without_text": ["red", ""]}, "without_text='': has no words"),
        ({"without_text": "people"}, "without='people': is subtracted from a query, and there is none"),
        ({"without_ids": ["0"]}, "without='0': is subtracted"),
    ],
)
def test_queries_that_ask_for_nothing_are_one_sentence(index, query, message):
    with pytest.raises(InputError, match=message):
        index.search(**query)


def test_an_index_of_texts_is_searched_by_images_if_its_run_has_them(tmp_path, index):
    Image.new("RGB", (20, 20), "red").save(tmp_path / "a.png")
    with pytest.raises(
        InputError, match="compares texts, not images; to search by images, train one on images with cap"
    ):
        index.search(str(tmp_path / "a.png"))


def test_equal_texts_are_copies_and_the_longest_of_a_group_is_kept(tmp_path):
    texts = ["a red flower", "two cats", "a red flower", "a red flower flower", "a red flower flower red"]
    index = build(texts, tmp_path / "i")
    found = index.duplicates(0.8)
    assert [(group["keep"], [m["id"] for m in group["members"]]) for group in found["copies"]] == [("0", ["2"])]
    assert found["copies"][0]["members"][0]["reason"] == "the same text"
    assert found["copies"][0]["text"] == "a red flower"
    (group,) = found["groups"]
    assert (group["keep"], group["text"], group["reason"]) == ("4", texts[4], "longer text")
    assert {member["id"] for member in group["members"]} == {"0", "3"}
    frame = found.to_pandas()
    assert "text" in frame and "path" not in frame


def test_of_equally_long_texts_the_first_is_kept(tmp_path):
    index = build(["red flower a", "a red flower", "cats"], tmp_path / "i")
    (group,) = index.duplicates(0.9)["groups"]
    assert (group["keep"], group["reason"]) == ("0", "first of the data")


def test_texts_that_are_also_in_another_index(tmp_path, index):
    other = build(["a blue flower", "cats"], tmp_path / "other")
    found = index.duplicates(0.99, against=other)
    assert [(group["text"], group["members"][0]["id"]) for group in found["groups"]] == [("a blue flower", "1")]
    images = coulomb.Index.build(folder(tmp_path / "photos"), tmp_path / "p", encoder=tiny(), workers=0, progress=False)
    with pytest.raises(InputError, match="is an index of images, and .* is one of texts"):
        index.duplicates(against=images)


def test_outliers_clusters_choice_and_classes_show_texts(index):
    outliers = index.outliers(2)
    assert "nearest texts" in outliers[0]["reason"] or "nearest text" in outliers[0]["reason"]
    assert not {"3", "7"} & {row["id"] for row in index.outliers(None)}  # of equal texts, the first
    clusters = index.cluster(2)
    assert {"text", "name"} <= set(clusters[0])
    for number in (0, 1):
        members = [row for row in clusters if row["cluster"] == number]
        assert {row["name"] for row in members} == {members[0]["text"]}
    assert "text" in index.choose(2)[0]
    found = index.classify({"0": "flower", "1": "flower", "2": "cat", "4": "cat"})
    assert "text" in found["images"][0] and "path" not in found["images"][0]
    with pytest.raises(InputError, match="is an index of texts, and classification by names is for images only"):
        index.classify(names="a,b")
    with pytest.raises(InputError, match="is an index of texts, and a thumbnail is for images only"):
        index.thumbnail(0)


def test_labels_of_the_table_are_those_of_the_index(tmp_path):
    path = tmp_path / "notes.csv"
    path.write_text("text,label\n" + "".join(f"{text},{'ab'[row % 2]}\n" for row, text in enumerate(TEXTS)))
    index = build(path, tmp_path / "i")
    assert index.labels == ["a", "b"] * 4
    assert isinstance(index.label_errors(cutoff=0), list)


def test_an_update_embeds_new_texts_only_and_equals_a_new_index(tmp_path, monkeypatch):
    from coulomb.models.text_network import TextNetwork

    path = tmp_path / "notes.txt"
    path.write_text("\n".join(TEXTS))
    build(path, tmp_path / "i")
    embedded = []
    tokenize = TextNetwork.tokenize
    monkeypatch.setattr(
        TextNetwork, "tokenize", lambda self, texts, *rest: embedded.extend(texts) or tokenize(self, texts, *rest)
    )
    path.write_text("\n".join(["a new text", *TEXTS[:5]]))
    age(path)
    updated = coulomb.Index.build(path, tmp_path / "i", encoder=words(), progress=False)  # the column is known
    assert embedded == ["a new text"]
    assert counts(updated) == (0, 1, 5, 2)
    assert content(updated) == content(build(path, tmp_path / "again"))
    same = build(path, tmp_path / "i")
    assert same.info["generation"] == updated.info["generation"] == 2


def test_a_build_that_breaks_off_keeps_its_features(tmp_path, monkeypatch):
    from coulomb.models.text_network import TextNetwork

    inner, seen = TextNetwork.tokenize, []

    def breaks(self, texts, *rest):
        seen.extend(texts)
        if len(seen) > 6:
            raise KeyboardInterrupt
        return inner(self, texts, *rest)

    monkeypatch.setattr("coulomb.index.embed_texts.ROWS", 3)
    monkeypatch.setattr("coulomb.index.work.ROWS", 3)
    monkeypatch.setattr(TextNetwork, "tokenize", breaks)
    texts = [f"text {number}" for number in range(9)]
    with pytest.raises(KeyboardInterrupt):
        build(texts, tmp_path / "i")
    with pytest.raises(InputError, match="half-written"):
        coulomb.Index.open(tmp_path / "i")
    seen.clear()
    resumed = build(texts, tmp_path / "i")
    assert seen == texts[6:]
    monkeypatch.undo()
    assert content(resumed) == content(build(texts, tmp_path / "whole"))


def test_other_texts_do_not_replace_an_index_by_mistake(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo")
    (tmp_path / "b.txt").write_text("three\nfour")
    build(tmp_path / "a.txt", tmp_path / "i")
    with pytest.raises(InputError, match="is the index of 'a.txt', and none of its 2 texts is in 'b.txt'"):
        build(tmp_path / "b.txt", tmp_path / "i")


def test_empty_texts_are_counted_and_named(tmp_path):
    index = build({"text": ["a red flower", "", None, "  ", "cats"]}, tmp_path / "i")
    assert index.ids == ["0", "4"]
    assert any("in 3 rows" in note or "row" in note for note in index.info["data"]["notes"])


def test_an_index_is_reopened_with_its_encoder_only(tmp_path, index):
    opened = coulomb.Index.open(index.path, encoder=words())
    assert opened.search(text="cats", top=3) == index.search(text="cats", top=3)
    with pytest.raises(InputError, match="are not those that the index was built with"):
        _ = coulomb.Index.open(index.path, encoder=words(seed=1)).encoder
    with pytest.raises(InputError, match="takes images; texts need static"):
        _ = coulomb.Index.open(index.path, encoder=tiny()).encoder
    with pytest.raises(InputError, match="the texts of this index are not files in a folder"):
        coulomb.Index.open(index.path, root=tmp_path)


def test_what_is_asked_of_texts_must_fit(tmp_path, index):
    for options, message in (
        ({"image_size": 32}, "image_size=32: has no meaning for texts"),
        ({"workers": 2}, "workers=2: has no meaning for texts"),
        ({"columns": "text,other"}, "an index has one column"),
        ({"columns": "txt"}, "did you mean 'text'|no such column"),
        ({"encoder": tiny()}, "takes images; texts need static"),
    ):
        with pytest.raises(InputError, match=message):
            build({"text": TEXTS, "other": TEXTS}, tmp_path / "new", **options)
        assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="holds vectors, and an index of a column is one of texts"):
        open_texts({"v": [[1.0, 2.0], [2.0, 1.0]]}, "v", None)
    with pytest.raises(InputError, match="has no such column"):
        build(folder(tmp_path / "photos"), tmp_path / "new")
    coulomb.Index.build(tmp_path / "photos", tmp_path / "p", encoder=tiny(), workers=0, progress=False)
    with pytest.raises(InputError, match="is an index of images, and these are texts"):
        build(TEXTS, tmp_path / "p")
    with pytest.raises(InputError, match="is an index of the column 'text', not 'other'"):
        build({"text": TEXTS, "other": TEXTS}, index.path, columns="other")
    (tmp_path / "notes.txt").write_text("a red flower")
    with pytest.raises(InputError, match="a file of texts; to index its lines, give columns='text'"):
        coulomb.Index.build(tmp_path / "notes.txt", tmp_path / "new")


def test_all_files_are_checked(tmp_path, index):
    found = coulomb.Index.check(index.path)
    assert (found["texts"], found["files"]) == (8, ["features.npy", "texts.parquet"])
    table = next(index.path.glob("generation-*/texts.parquet"))
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"texts\.parquet has changed"):
        coulomb.Index.check(index.path)


def test_texts_are_no_files_to_delete_or_copy(tmp_path):
    from coulomb.index.copies import copy_into_folders
    from coulomb.index.lists import write_script

    index = build(["red", "red", "blue"], tmp_path / "i")
    with pytest.raises(InputError, match="texts are no files that a script could delete"):
        write_script(tmp_path / "drop.sh", index.duplicates())
    with pytest.raises(InputError, match="texts are no files that could be copied"):
        copy_into_folders(index.cluster(1), tmp_path / "folders")


def test_features_and_texts_are_exported_as_a_table(tmp_path, index):
    from coulomb.export import to_csv

    to_csv(index, tmp_path / "e.csv")
    head, first = (tmp_path / "e.csv").read_text().splitlines()[:2]
    assert head.startswith(('"id","text","label","f0"', "id,text,label,f0"))
    assert "a red flower" in first


def test_unknown_kinds_are_refused(index):
    path = index.path / "index.json"
    from coulomb.index.folder import IndexFolder

    place = IndexFolder(index.path)
    info = json.loads(path.read_text())
    place.write_info(info | {"column": {"name": "x", "kind": "sound"}})
    with pytest.raises(InputError, match="image or text"):
        coulomb.Index.open(index.path)
