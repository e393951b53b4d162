"""The losses for sentence-transformers have the values and gradients of its own, and work in its trainer."""

import itertools
import random
import subprocess
import sys
from functools import partial

import pytest
import torch

import sentence_distributed
from coulomb import losses as coulomb_losses
from sentence_models import COLUMNS, features, gradients, peer, tiny_model
from torch_versions import ROUNDING

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ALL = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
BOTH = ("query_to_doc", "doc_to_query")
WAYS = [
    *({"directions": ("query_to_doc", *rest)} for size in range(4) for rest in itertools.combinations(ALL[1:], size)),
    {"directions": BOTH, "partition_mode": "per_direction"},
    {"directions": ("query_to_doc",), "partition_mode": "per_direction"},
]
LABELS = torch.tensor([0, 1, 0, 1, 1, 0, 1])
HARDNESS = [
    {},
    *({"hardness_mode": f"{mode}_negatives", "hardness_strength": 4.0} for mode in ("in_batch", "hard", "all")),
]


@pytest.fixture(scope="module")
def theirs():
    peer()
    from sentence_transformers.sentence_transformer import losses

    return losses


@pytest.fixture(scope="module")
def ours():
    peer()
    from coulomb.integrations import sentence_transformers

    return sentence_transformers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bert")


def rows(columns, n=9, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    made = [torch.randn(n, 6, generator=draw, dtype=torch.float64).to(dtype) for _ in range(columns)]
    return [each.requires_grad_() for each in made]


def close(mine, true, atol):
    torch.testing.assert_close(mine, true, rtol=0, atol=atol)


@pytest.mark.parametrize("columns", [2, 3, 4])
@pytest.mark.parametrize("hardness", HARDNESS, ids=lambda one: one.get("hardness_mode", "no hardness"))
@pytest.mark.parametrize("way", WAYS, ids=lambda one: "+".join(map(str, one.values())))
def test_ranking_losses_equal_theirs_for_all_options(ours, theirs, way, hardness, columns):
    model, options = torch.nn.Sequential(torch.nn.Identity()), {"scale": 17.0, **way, **hardness}
    for dtype, atol in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        found = []
        for library in (theirs, ours):
            plain = rows(columns, dtype=dtype)
            value = library.MultipleNegativesRankingLoss(model, **options).compute_loss_from_embeddings(plain, None)
            cached, parts = rows(columns, dtype=dtype), None
            parts = [[part.detach().requires_grad_() for part in each.split(4)] for each in cached]
            loss = library.CachedMultipleNegativesRankingLoss(model, mini_batch_size=4, **options)
            again = loss.calculate_loss(parts, with_backward=True)
            gradient = torch.autograd.grad(value, plain)
            found.append([value, again, *gradient, *(torch.cat([part.grad for part in each]) for each in parts)])
        for true, mine in zip(*found, strict=True):
            close(mine, true, atol)


def test_dot_products_equal_theirs(ours, theirs):
    from sentence_transformers import util

    model = torch.nn.Sequential(torch.nn.Identity())
    found = []
    for library in (theirs, ours):
        loss = library.MultipleNegativesRankingLoss(model, scale=0.5, similarity_fct=util.dot_score, directions=ALL)
        plain = rows(3)
        value = loss.compute_loss_from_embeddings(plain, None)
        found.append([value, *torch.autograd.grad(value, plain)])
    for true, mine in zip(*found, strict=True):
        close(mine, true, 1e-10)


def test_similarity_functions_are_the_cosine_and_the_dot_product(ours, folder):
    from sentence_transformers import util

    model = tiny_model(folder)
    assert ours.is_cosine(partial(util.cos_sim))
    assert ours.is_cosine(model.similarity)
    model.similarity_fn_name = "dot"
    assert not ours.is_cosine(model.similarity)
    model.similarity_fn_name = "euclidean"
    for function in (model.similarity, util.manhattan_sim, partial(util.cos_sim, b=None), lambda a, b: a @ b.T):
        with pytest.raises(ValueError, match=r"^similarity_fct=.*must be util.cos_sim or util.dot_score"):
            ours.CachedMultipleNegativesRankingLoss(model, similarity_fct=function)
    loss = ours.MultipleNegativesRankingLoss(model)
    loss.similarity_fct = util.manhattan_sim
    with pytest.raises(ValueError, match=r"^similarity_fct=manhattan_sim: must be"):
        loss(features(model, COLUMNS[:2]), None)


def one_step(loss, model, columns, labels=None, autocast=False):
    """Loss and gradients, with the same random numbers for dropout every time."""
    model.zero_grad()
    torch.manual_seed(5)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        value = loss(features(model, columns), labels)
    value.backward()
    return value.detach(), gradients(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("columns", [2, 4])
def test_a_step_of_a_model_with_dropout_equals_theirs(ours, theirs, folder, tmp_path, dtype, columns):
    model = tiny_model(tmp_path, dropout=0.3).to(dtype)
    atol = 1e-5 * ROUNDING if dtype == torch.float32 else 1e-10
    for options in ({}, {"directions": ALL}, {"mini_batch_size": 3}, {"mini_batch_num_tokens": 14}):
        name = (
            "CachedMultipleNegativesRankingLoss" if options.keys() - {"directions"} else "MultipleNegativesRankingLoss"
        )
        (true, true_grads), (mine, my_grads) = (
            one_step(getattr(library, name)(model, **options), model, COLUMNS[:columns]) for library in (theirs, ours)
        )
        close(mine, true, atol)
        assert my_grads.keys() == true_grads.keys() and len(my_grads) > 10
        for key, gradient in true_grads.items():
            close(my_grads[key], gradient, atol)


def test_under_autocast_the_loss_is_in_full_precision(ours, folder):
    from sentence_transformers.sentence_transformer.modules import Dense

    model = tiny_model(folder)
    model.append(Dense(32, 8, activation_function=torch.nn.Tanh()))
    exact, grads = one_step(ours.CachedMultipleNegativesRankingLoss(model, mini_batch_size=3), model, COLUMNS[:2])
    rounded, rounded_grads = one_step(
        ours.CachedMultipleNegativesRankingLoss(model, mini_batch_size=3), model, COLUMNS[:2], autocast=True
    )
    assert rounded.dtype == torch.float32
    close(rounded, exact, 0.02)
    assert rounded_grads.keys() == grads.keys()
    assert all(torch.isfinite(grad).all() for grad in rounded_grads.values())


NESTED = {
    "ranking": ("MultipleNegativesRankingLoss", {}),
    "all directions": ("MultipleNegativesRankingLoss", {"directions": ALL}),
    "hardness": ("MultipleNegativesRankingLoss", HARDNESS[3]),
    "cached": ("CachedMultipleNegativesRankingLoss", {"mini_batch_size": 3, "directions": BOTH}),
    "labels": ("SupConLoss", {"temperature": 0.2}),
    "cached labels": ("SupConLoss", {"temperature": 0.2, "mini_batch_size": 3}),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("n_dims_per_step", [-1, 2])
def test_matryoshka_of_ours_in_one_call_equals_the_loop_of_theirs(
    ours, theirs, folder, monkeypatch, name, n_dims_per_step
):
    kind, options = NESTED[name]
    model, calls = tiny_model(folder).double(), []
    made = coulomb_losses.MatryoshkaLoss.forward
    monkeypatch.setattr(coulomb_losses.MatryoshkaLoss, "forward", lambda *a, **k: calls.append(1) or made(*a, **k))
    found = []
    for library in (theirs, ours):
        inner = getattr(ours if kind == "SupConLoss" else library, kind)(model, **options)
        loss = library.MatryoshkaLoss(model, inner, [5, 32, 16], [0.2, 1, 0.5], n_dims_per_step)
        random.seed(4)
        value, grads = one_step(loss, model, COLUMNS[:3], LABELS)
        with torch.no_grad():
            random.seed(4)
            close(loss(features(model, COLUMNS[:3]), LABELS), value, 1e-10)
        found.append((value, grads))
    assert len(calls) == 2
    (true, true_grads), (mine, my_grads) = found
    close(mine, true, 1e-10)
    for key, gradient in true_grads.items():
        close(my_grads[key], gradient, 1e-10)


def test_matryoshka_of_ours_takes_one_pass_over_the_similarities(ours, theirs, folder, monkeypatch):
    from sentence_transformers import util

    from coulomb.similarity import policy, prefixes

    model, passes, found = tiny_model(folder).double(), [], []
    forward = prefixes.forward
    monkeypatch.setattr(prefixes, "forward", lambda *a: passes.append(1) or forward(*a))
    for library in (theirs, ours):  # prefixes have unit length, so that the dot product is their cosine
        inner = library.CachedMultipleNegativesRankingLoss(model, scale=7.0, similarity_fct=util.dot_score)
        with policy.override(saved=0, stored=0):
            found.append(one_step(library.MatryoshkaLoss(model, inner, [32, 8, 4]), model, COLUMNS[:3]))
    assert len(passes) == 1
    close(found[1][0], found[0][0], 1e-10)
    for key, gradient in found[0][1].items():
        close(found[1][1][key], gradient, 1e-10)


def test_matryoshka_leaves_other_losses_to_theirs(ours, theirs, folder):
    model = tiny_model(folder).double()
    for inner in (
        lambda library: theirs.MultipleNegativesRankingLoss(model),
        lambda library: theirs.CachedMultipleNegativesRankingLoss(model, mini_batch_size=3),
        lambda library: library.CachedGISTEmbedLoss(model, model, mini_batch_size=3, temperature=0.2),
    ):
        (true, true_grads), (mine, my_grads) = (
            one_step(library.MatryoshkaLoss(model, inner(library), [32, 5]), model, COLUMNS[:2])
            for library in (theirs, ours)
        )
        close(mine, true, 1e-9)
        for key, gradient in true_grads.items():
            close(my_grads[key], gradient, 1e-9)


def guided(library, model, guide, columns, dtype=torch.float64, **options):
    """The loss stage of CachedGISTEmbedLoss on random embeddings, and on others of the guide, with its gradients."""
    loss = library.CachedGISTEmbedLoss(model, guide, temperature=0.1, mini_batch_size=4, **options)
    given = [[part.detach().requires_grad_() for part in each.split(4)] for each in rows(columns, dtype=dtype)]
    seen = [
        list((each[:, :5] + 0.3 * other[:, :5]).detach().split(4))
        for each, other in zip(rows(columns, dtype=dtype, seed=1), rows(columns, dtype=dtype), strict=True)
    ]
    value = loss.calculate_loss(given, seen, with_backward=True)
    return [value, *(torch.cat([part.grad for part in each]) for each in given)]


@pytest.mark.parametrize("columns", [2, 3, 4])
@pytest.mark.parametrize("margin", [{}, {"margin": 0.1}, {"margin": 0.2, "margin_strategy": "relative"}], ids=str)
@pytest.mark.parametrize("within", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_guided_losses_equal_theirs_for_all_options(ours, theirs, folder, within, margin, columns):
    model = tiny_model(folder)
    options = {"contrast_anchors": within[0], "contrast_positives": within[1], **margin}
    for dtype, atol in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        for true, mine in zip(
            *(guided(library, model, model, columns, dtype, **options) for library in (theirs, ours)), strict=True
        ):
            close(mine, true, atol)


@pytest.mark.parametrize("columns", [2, 3])
def test_a_guided_step_equals_theirs(ours, theirs, folder, tmp_path, columns):
    model, guide = tiny_model(folder).double(), tiny_model(tmp_path, hidden_size=16).eval()
    for options in ({"mini_batch_size": 3}, {"mini_batch_num_tokens": 14, "margin": 0.05}):
        (true, true_grads), (mine, my_grads) = (
            one_step(library.CachedGISTEmbedLoss(model, guide, **options), model, COLUMNS[:columns])
            for library in (theirs, ours)
        )
        close(mine, true, 1e-9)
        for key, gradient in true_grads.items():
            close(my_grads[key], gradient, 1e-9)


def test_a_guide_leaves_out_equal_texts_and_each_row_itself(ours, folder):
    """Where an anchor and its positive are the same for the guide, the limit is 1, which equal texts reach exactly."""
    anchor, positive = (each.detach() for each in rows(2, n=4))
    positive[1] = positive[0]
    loss = ours.CachedGISTEmbedLoss(tiny_model(folder), tiny_model(folder), temperature=0.2)
    value = loss.calculate_loss([[anchor], [positive]], [[positive], [positive]])
    a, p = (torch.nn.functional.normalize(each) for each in (anchor, positive))
    equal = (positive[:, None] == positive).all(2)
    scores = [each / 0.2 for each in (a @ p.T, a @ a.T, p @ p.T)]
    own = scores[0].diagonal()
    others = [each.masked_fill(equal, -torch.inf) for each in scores]
    close(value, (torch.cat([own[:, None], *others], 1).logsumexp(1) - own).mean(), 1e-10)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("options", [{}, {"mini_batch_size": 3}, {"mini_batch_num_tokens": 9}])
def test_labels_give_supcon(ours, folder, columns, options):
    from coulomb.losses import SupConLoss

    model = tiny_model(folder).double()
    loss = ours.SupConLoss(model, 0.2, **options)
    value, grads = one_step(loss, model, COLUMNS[:columns], LABELS)
    model.zero_grad()
    embeddings = [model(each)["sentence_embedding"] for each in features(model, COLUMNS[:columns])]
    true = SupConLoss(0.2)(torch.stack(embeddings, 1), LABELS)
    true.backward()
    close(value, true, 1e-12)
    for key, gradient in gradients(model).items():
        close(grads[key], gradient, 1e-10)
    with torch.no_grad():
        close(loss(features(model, COLUMNS[:columns]), LABELS), true, 1e-12)
    assert loss.get_config_dict() == {
        "temperature": 0.2,
        "mini_batch_size": None,
        "mini_batch_num_tokens": None,
        "gather_across_devices": False,
        **options,
    }


def test_options_of_supcon_are_checked(ours, folder):
    model = tiny_model(folder)
    with pytest.raises(ValueError, match="^mini_batch_size must be at least 1, or None, got 0"):
        ours.SupConLoss(model, mini_batch_size=0)
    with pytest.raises(ValueError, match="^mini_batch_num_tokens must be at least 1, or None, got -3"):
        ours.SupConLoss(model, mini_batch_num_tokens=-3)
    with pytest.raises(ValueError, match="^temperature"):
        ours.SupConLoss(model, -1.0)


def test_one_column_is_refused(ours, folder):
    model = tiny_model(folder)
    for name in ("MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss"):
        with pytest.raises(ValueError, match="at least 2"):
            getattr(ours, name)(model)(features(model, COLUMNS[:1]), None)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_equal_one_with_the_whole_batch_and_exchange_gradients_once(ours, folder, processes, world):
    tiny_model(folder)  # writes it
    whole = sentence_distributed.steps(folder)
    for results in processes.run(world, sentence_distributed.steps, folder, timeout=240):
        for name, (value, grads, exchanges) in results.items():
            true, true_grads, _ = whole[name]
            assert value == pytest.approx(true, abs=1e-12), name
            assert exchanges == [0], name
            for key, gradient in true_grads.items():
                close(grads[key], gradient, 1e-10)


def test_processes_that_do_not_gather_have_the_gradients_of_theirs(ours, folder, processes):
    tiny_model(folder)
    for results in processes.run(2, sentence_distributed.steps_alone, folder, timeout=240):
        assert len(results) == 6
        for name, ((true, true_grads, _), (mine, grads, exchanges)) in results.items():
            assert mine == pytest.approx(true, abs=1e-10), name
            assert exchanges == [0], name
            for key, gradient in true_grads.items():
                close(grads[key], gradient, 1e-9)


def training_arguments(tmp_path, batch, **options):
    """Returns the arguments of a trainer that logs each step and saves nothing."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    quiet = {"logging_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    options |= quiet | {"use_cpu": True, "seed": 3, "per_device_train_batch_size": batch}
    return SentenceTransformerTrainingArguments(output_dir=str(tmp_path / "out"), **options)


@pytest.mark.filterwarnings("default")
def test_the_trainer_and_its_model_card(ours, theirs, tmp_path):
    import datasets
    from sentence_transformers import SentenceTransformerTrainer

    data = datasets.Dataset.from_dict(dict(zip(("anchor", "positive", "negative"), COLUMNS, strict=False)))
    curves = []
    for library in (theirs, ours):
        model = tiny_model(tmp_path / "bert", dropout=0.1)
        arguments = training_arguments(tmp_path, max_steps=3, batch=7, learning_rate=1e-3)
        loss = library.CachedMultipleNegativesRankingLoss(model, mini_batch_size=3, directions=ALL)
        loss = library.MatryoshkaLoss(model, loss, [32, 8])
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=data, eval_dataset=data, loss=loss
        )
        trainer.train()
        curves.append(
            [*(log["loss"] for log in trainer.state.log_history if "loss" in log), trainer.evaluate()["eval_loss"]]
        )
    assert len(curves[0]) == 4 and curves[0][0] > curves[0][2]
    assert curves[1] == pytest.approx(curves[0], abs=1e-4)
    model.save_pretrained(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert "CachedMultipleNegativesRankingLoss" in card and "gao2021scaling" in card and "matryoshka_dims" in card


@pytest.mark.filterwarnings("default")
def test_labels_in_the_trainer_with_its_sampler_and_matryoshka(ours, tmp_path, monkeypatch):
    import datasets
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.training_args import BatchSamplers

    batches, loss_of = [], ours.SupConLoss.loss_of
    monkeypatch.setattr(
        ours.SupConLoss, "loss_of", lambda self, e, labels: batches.append(labels) or loss_of(self, e, labels)
    )
    data = datasets.Dataset.from_dict({"text": COLUMNS[0] * 2, "label": LABELS.tolist() * 2})
    model = tiny_model(tmp_path / "bert")
    by_label = {"batch_sampler": BatchSamplers.GROUP_BY_LABEL}
    arguments = training_arguments(tmp_path, max_steps=30, batch=4, learning_rate=5e-4, **by_label)
    loss = ours.MatryoshkaLoss(model, ours.SupConLoss(model, 0.2), [32, 8])

    def of_all():
        with torch.no_grad():
            return float(loss(features(model, COLUMNS[:1]), LABELS))

    before = of_all()
    batches.clear()
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss).train()
    assert len(batches) == 30
    assert all(min(labels.unique(return_counts=True)[1]) >= 2 for labels in batches)
    after = of_all()
    assert after < before - 0.2, (before, after)
    model.save_pretrained(str(tmp_path / "saved"))
    assert "khosla2020supervised" in (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")


def test_nothing_is_imported_before_it_is_used():
    code = "import sys, coulomb, coulomb.integrations, coulomb.losses; print('sentence_transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_library_that_is_missing_or_old_is_named(monkeypatch):
    name = "coulomb.integrations.sentence_transformers"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'coulomb\[integrations\]'"):
        __import__(name)
