"""Runs on columns whose encoders are objects: a library's model, a module with a tokenizer, and names beside them."""

import numpy as np
import pytest
import torch

import coulomb
from coulomb.ground.errors import InputError
from sentence_models import tiny_model
from tiny_texts import WORDS, Mean, words

QUICK = {"epochs": 2, "batch_size": 8, "progress": False, "seed": 0}


def sentences(count=40):
    known = [word for word in WORDS if word.isalpha()]
    return [" ".join(np.random.default_rng(row).choice(known, 4)) for row in range(count)]


def pairs():
    first = sentences()
    return {"question": first, "answer": [" ".join(reversed(text.split())) for text in first]}


def test_a_sentence_transformer_is_trained_and_its_run_needs_no_object(tmp_path):
    model = tiny_model(tmp_path / "model").eval()
    before = model.encode(["a red leaf"])
    run = coulomb.train(pairs(), columns="question,answer", encoder=model, tune="all", out=tmp_path / "run", **QUICK)
    assert "model:SentenceTransformer" in (tmp_path / "run" / "config.yaml").read_text()
    assert run.columns["question"]["tower"] == run.columns["answer"]["tower"] == "question"  # one object, one tower
    assert run.evaluation["starting_point"]
    np.testing.assert_array_equal(model.encode(["a red leaf"]), before)
    again = coulomb.load(tmp_path / "run").encode("a red leaf", column="question")
    assert not np.allclose(again / again.norm(), before / np.linalg.norm(before), atol=1e-3)
    data = pairs()
    assert coulomb.evaluate(tmp_path / "run", data=data)["trained"] == run.evaluation["trained"]
    coulomb.train(data, resume_from=tmp_path / "run", progress=False)
    scored = {"first": sentences()[:9], "second": sentences()[9:18], "score": np.linspace(0, 1, 9)}
    assert "starting_point" in coulomb.evaluate(tmp_path / "run", pairs=scored)


def own(seed):
    torch.manual_seed(seed)
    return Mean()


def test_a_module_of_ones_own_is_passed_again(tmp_path):
    given = {"question": "static-random", "answer": (own(0), words())}
    options = {"columns": "question,answer", "out": tmp_path / "run", **QUICK}
    run = coulomb.train(pairs(), encoder=given, longest=16, **options)
    assert "question=static-random,answer=custom:Mean" in (tmp_path / "run" / "config.yaml").read_text()
    expected = run.encode("a red leaf", column="answer")
    for module in (own(1), {"answer": own(1)}):
        found = coulomb.load(tmp_path / "run", module=module).encode("a red leaf", column="answer")
        torch.testing.assert_close(found, expected)
    again = {"answer": (own(2), words())}
    assert coulomb.evaluate(tmp_path / "run", data=pairs(), encoder=again)["trained"] == run.evaluation["trained"]
    with pytest.raises(InputError, match=r"your module 'Mean'; give it: coulomb.load\(RUN, module=Mean"):
        coulomb.load(tmp_path / "run").encode("a red leaf", column="answer")
    with pytest.raises(
        InputError, match=r"encoder='custom:Mean': answer is read by a module of your own.*pass it again"
    ):
        coulomb.evaluate(tmp_path / "run", data=pairs())


def test_an_interrupted_run_with_a_module_continues_as_if_it_had_not_stopped(tmp_path):
    class Stop(Exception):
        pass

    from lightning.pytorch import Callback

    class After(Callback):
        def on_train_batch_end(self, trainer, *arguments):
            if trainer.global_step == 6:
                raise Stop

    options = {"columns": "question,answer", "longest": 16, **QUICK, "epochs": 4, "evaluate": False}
    whole = coulomb.train(pairs(), encoder={"question": (own(0), words()), "answer": "static-random"},
                          out=tmp_path / "whole", **options)  # fmt: skip
    with pytest.raises(Stop):
        coulomb.train(pairs(), encoder={"question": (own(0), words()), "answer": "static-random"}, out=tmp_path / "run",
                      callbacks=After(), **options)  # fmt: skip
    with pytest.raises(InputError, match=r"question is read by a module of your own"):
        coulomb.train(pairs(), resume_from=tmp_path / "run", progress=False, evaluate=False)
    resumed = coulomb.train(pairs(), encoder={"question": (own(3), words())}, resume_from=tmp_path / "run", progress=False,
                            evaluate=False)  # fmt: skip
    for column in ("question", "answer"):
        torch.testing.assert_close(
            resumed.encode("a red leaf", column=column), whole.encode("a red leaf", column=column), atol=0, rtol=0
        )


def test_one_column_of_texts_takes_a_module(tmp_path):
    module = own(0)
    module.tokenizer = words()
    run = coulomb.train(sentences(), encoder=module, longest=16, out=tmp_path / "run", evaluate=False, **QUICK)
    assert run.encode(["a cat"]).shape == (1, 8)


def test_objects_for_other_columns_and_images_are_refused_in_one_sentence(tmp_path, digit_tree):
    numbers = {"question": sentences(), "numbers": np.random.default_rng(0).normal(size=(40, 3))}
    with pytest.raises(InputError, match=r"'custom:Mean' is for the column 'numbers' of vectors.*columns of texts"):
        coulomb.train(
            numbers, columns="question,numbers", encoder={"numbers": (own(0), words())}, out=tmp_path / "run", **QUICK
        )
    with pytest.raises(InputError, match=r"there is no column 'quesion'.*question"):
        coulomb.train(pairs(), columns="question,answer", encoder={"quesion": "static"}, out=tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match=r"encoder='custom:Mean': is for columns of texts"):
        coulomb.train(digit_tree, encoder=(own(0), words()), out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
