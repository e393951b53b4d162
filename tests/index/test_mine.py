"""Hard negatives written beside their pairs."""

import io

import numpy as np
import pytest
from PIL import Image

import coulomb
from coulomb.ground.errors import InputError
from coulomb.report.mined import render_mined
from coulomb.tables import open_columns

pq = pytest.importorskip("pyarrow.parquet")

QUESTIONS = {
    "question": ["which color is the sky", "which color is the sky", "which color is grass", "who barks", "who meows"],
    "answer": ["the sky is blue", "blue sky", "the grass is green", "a dog barks", "a cat meows"],
    "topic": ["color", "color", "color", "animal", "animal"],
}


class Words(coulomb.TextEncoder):
    """A bag of words."""

    def __init__(self, name="words"):
        self.name = name

    def encode(self, texts, *_, **__):
        words = sorted({word for each in QUESTIONS.values() for text in each for word in text.split()})
        return np.array([[float(word in text.split()) for word in words] for text in texts], np.float32)


def cosine(a, b):
    x, y = Words().encode([a, b])
    return x @ y / np.sqrt((x @ x) * (y @ y))


def expected(row, margin, wrong):
    """The most similar answers of other questions, below the best right one."""
    question = QUESTIONS["question"][row]
    right = [a for q, a in zip(QUESTIONS["question"], QUESTIONS["answer"], strict=True) if q == question]
    best = max(cosine(question, a) for a in right)
    allowed = [a for a in QUESTIONS["answer"] if a not in right and wrong(a) and cosine(question, a) < best - margin]
    return max((cosine(question, a) for a in allowed), default=None)


@pytest.mark.parametrize("same", [(), "topic"])
def test_negatives_are_the_most_similar_wrong_cells(tmp_path, same):
    out = tmp_path / "hard.parquet"
    found = coulomb.mine(QUESTIONS, Words(), columns="question,answer", out=out, margin=0.1, same=same)
    table = pq.read_table(out)
    assert table.column_names == ["question", "answer", "topic", "negative_1"]
    assert {name: table.column(name).to_pylist() for name in QUESTIONS} == QUESTIONS
    topics = dict(zip(QUESTIONS["answer"], QUESTIONS["topic"], strict=True))
    for row, negative in enumerate(table.column("negative_1").to_pylist()):
        best = expected(row, 0.1, lambda a, row=row: not same or topics[a] != QUESTIONS["topic"][row])
        given = None if negative is None else cosine(QUESTIONS["question"][row], negative)
        assert given == (best if best is None else pytest.approx(best))
    assert found["rows"] == 5 and found["negatives"] + found["without"] == 5


def test_rows_with_too_few_negatives_are_counted_and_kept(tmp_path):
    out = tmp_path / "hard.parquet"
    found = coulomb.mine(QUESTIONS, Words(), columns="question,answer", out=out, number=3, margin=0.3)
    negatives = [pq.read_table(out).column(f"negative_{place}").to_pylist() for place in (1, 2, 3)]
    assert found["short"] == sum(each is None for each in negatives[2]) > 0
    assert found["negatives"] == sum(each is not None for column in negatives for each in column)
    complete = open_columns(out, "question,answer,negative_3:negative")
    assert len(complete) == 5 - found["short"]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (5, {"number": 100}, r"number=100: no row has that many negatives .*; give at most [1-4]$"),
        (5, {"skip": 10}, r"none of 5 rows has a negative: .*skip=10"),
        (1, {}, r"none of 1 row has a negative: .* give more rows"),
    ],
)
def test_a_file_that_train_would_leave_out_is_not_written(tmp_path, rows, options, message):
    data = {name: values[:rows] for name, values in QUESTIONS.items()}
    out = tmp_path / "hard.parquet"
    with pytest.raises(InputError, match=message):
        coulomb.mine(data, Words(), columns="question,answer", out=out, margin=0, **options)
    assert not out.exists()


def png(color):
    file = io.BytesIO()
    Image.new("RGB", (16, 16), color).save(file, "PNG")
    return file.getvalue()


def test_a_run_finds_negatives_that_train_reads(tmp_path):
    colors = {"red": (230, 20, 20), "green": (20, 220, 20), "blue": (20, 20, 230), "gray": (120, 120, 120)}
    pictures, captions = [], []
    for shade in range(4):
        for name, color in colors.items():
            pictures.append(png(tuple(max(0, value - 10 * shade) for value in color)))
            captions.append(f"{name} {shade}")
    data = {"image": pictures, "caption": captions, "shade": list(range(4)) * 4}
    options = {"batch_size": 4, "epochs": 1, "image_size": 16, "precision": "32", "workers": 0, "embedding_dim": 8}
    options |= {"progress": False, "evaluate": False}
    encoder = "image=convnet,caption=static-random"
    run = coulomb.train(data, columns="image,caption", encoder=encoder, out=str(tmp_path / "run"), **options)
    data["image"][3] = pictures[3][:40]  # cannot be decoded
    out = tmp_path / "hard.parquet"
    found = coulomb.mine(
        data, str(run.path), columns="image,caption", out=out, number=2, margin=0, workers=0, progress=False
    )
    assert [each["id"] for each in found["failed"]] == ["3"] and found["rows"] == 15
    table = pq.read_table(out)
    assert [each["bytes"] for each in table.column("image").to_pylist()] == [*pictures[:3], *pictures[4:]]
    kept = [*captions[:3], *captions[4:]]
    opened = [Image.open(io.BytesIO(each["bytes"])) for each in table.column("image").to_pylist()]
    cosines = run.similarity(opened, kept).numpy()
    below = np.where(cosines < np.diag(cosines)[:, None] - 1e-6, cosines, -2)
    nearest = [kept[place] if below[row, place] > -2 else None for row, place in enumerate(below.argmax(1))]
    assert table.column("negative_1").to_pylist() == nearest
    columns = "image,caption,negative_1:negative,negative_2:negative"
    again = coulomb.train(str(out), columns=columns, encoder=encoder, out=str(tmp_path / "again"), **options)
    assert again.columns["negative_2"]["kind"] == "text"
    for each in found["hardest"] + found["random"]:
        row = table.slice(each["row"], 1).to_pylist()[0]
        place = kept.index(row["caption"])
        given = [cosines[each["row"], kept.index(row[name])] for name in ("negative_1", "negative_2") if row[name]]
        assert each["negatives"] == pytest.approx(given, abs=1e-4)
        assert each["positive"] == pytest.approx(cosines[each["row"], place], abs=1e-4)
    first = [each["negatives"][0] for each in found["hardest"]]
    assert first == sorted(first, reverse=True) and len(first) == min(12, 15 - found["without"])
    page = render_mined(found)
    assert page.count('class="miss"') == len(found["hardest"] + found["random"])
    assert page.count('class="thumb sheet0') == page.count('class="miss"') and kept[0].split()[0] in page
    twice = coulomb.mine(out, run, columns="image,caption", out=tmp_path / "twice.parquet", margin=0, workers=0)
    assert pq.read_table(tmp_path / "twice.parquet").column_names == ["image", "caption", "shade", "negative_1"]
    assert any("negative_1, negative_2" in each for each in twice["notes"])
    vectors = {"captions": ["a", "b"], "x": np.eye(2)}
    with pytest.raises(InputError, match=r"'x'.*image \(image\), caption"):
        coulomb.mine(vectors, run, columns="captions,x", out=tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": "question"}, "two columns"),
        ({"columns": "question,answer,topic"}, "two columns"),
        ({"columns": "question,anwser"}, "answer"),
        ({"columns": "question,answer:vector"}, "answer"),
        ({"out": "hard.csv"}, "hard.csv"),
        ({"out": "nowhere/hard.parquet"}, "nowhere"),
        ({"same": "topics"}, "topics.*topic"),
        ({"margin": None}, "margin=None"),
        ({"margin": -1}, "margin=-1"),
        ({"number": 0}, "number=0"),
        ({"skip": -1}, "skip=-1"),
    ],
)
def test_wrong_options_are_named_and_nothing_is_written(tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    options = {"columns": "question,answer", "out": "hard.parquet"} | changes
    with pytest.raises(InputError, match=message):
        coulomb.mine(QUESTIONS, Words(), **options)
    assert not list(tmp_path.iterdir())


def test_an_encoder_of_images_does_not_read_texts(tmp_path):
    with pytest.raises(InputError, match="'question' holds texts"):
        coulomb.mine(QUESTIONS, "lite0", columns="question,answer", out=tmp_path / "hard.parquet")
