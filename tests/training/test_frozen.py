import copy
import json

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import coulomb
from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import make_views
from coulomb.models import build_encoder, load_encoder
from run_cases import comparable, stopped_at

SMALL = {"batch_size": 32, "epochs": 2, "knn_every": 1, "embedding_dim": 8, "pulse": 2, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def weights():
    """A small network with running statistics of its own, as if it were published."""
    encoder = build_encoder("convnet", channels=1, image_size=16, seed=4, width=4)
    encoder(torch.rand(64, 1, 16, 16, generator=torch.Generator().manual_seed(0)))
    return encoder.backbone


@pytest.fixture(scope="module")
def pictures():
    draw = np.random.default_rng(0)
    labels = np.arange(200) % 4
    images = (draw.random((200, 16, 16)) * 90 + labels[:, None, None] * 40).astype(np.uint8)
    return images, labels


def train(pictures, weights, out, **options):
    options = SMALL | {"encoder": copy.deepcopy(weights), "evaluate": False, "progress": False} | options
    return coulomb.train(pictures, out=str(out), **options)


def plain_features(encoder, pictures, indices):
    images, _ = pictures
    view = make_views("single-channel", size=16, channels=1)
    canvas = torch.from_numpy(images[indices])[:, None]
    with torch.no_grad():
        return encoder(view.plain(canvas, torch.ones(len(indices))))


def untouched(run, weights):
    return load_encoder(run.path / "checkpoints" / "initial", module=copy.deepcopy(weights))


def saved(run, weights):
    return load_encoder(run.path, module=copy.deepcopy(weights))


def split(run):
    """Returns the positions of the training and test images, whose ids are their numbers."""
    saved = json.loads((run.path / "split.json").read_text())
    return {side: [int(name) for name in saved[side]] for side in ("train", "test")}


def test_whiten_is_the_pca_of_the_training_images_of_the_untouched_network(pictures, weights, tmp_path):
    run = train(pictures, weights, tmp_path / "run", tune="whiten")
    before, made = (
        [plain_features(encoder, pictures, split(run)[side]).double().numpy() for side in ("train", "test")]
        for encoder in (untouched(run, weights), saved(run, weights))
    )
    expected = PCA(8, whiten=True, svd_solver="full").fit(before[0]).transform(before[1])
    made = made[1]
    np.testing.assert_allclose(made, expected, atol=1e-3)


@pytest.fixture(scope="module")
def plain(pictures, weights, tmp_path_factory):
    return train(pictures, weights, tmp_path_factory.mktemp("runs") / "plain", tune="all")


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_whitening_follows_a_training(power, plain, pictures, weights, tmp_path):
    """It changes the saved encoder only: weights and checkpoint are those of the same run without it, also when resumed."""
    run = train(pictures, weights, tmp_path / "run", tune="all", whitening=power)
    before = plain_features(saved(plain, weights), pictures, split(run)["train"]).double()
    after = saved(run, weights)
    made = plain_features(after, pictures, split(run)["train"]).double()
    variances = torch.linalg.eigvalsh(torch.cov(before.T)).flip(0)
    torch.testing.assert_close(torch.cov(made.T).diagonal(), variances ** (1 - power), rtol=1e-2, atol=1e-4)
    same = saved(plain, weights).backbone.state_dict()
    assert all(torch.equal(value, same[name]) for name, value in after.backbone.state_dict().items())
    coulomb.train(resume_from=run.path, encoder=copy.deepcopy(weights), data=pictures, evaluate=False, progress=False)
    again = plain_features(saved(run, weights), pictures, split(run)["train"]).double()
    torch.testing.assert_close(again, made, rtol=1e-4, atol=1e-4)


NAMED = {"encoder": "convnet", "encoder_width": 4, "epochs": 1, "embedding_dim": 8}


@pytest.fixture(scope="module")
def whitened(pictures, tmp_path_factory):
    return train(pictures, None, tmp_path_factory.mktemp("runs") / "first", whitening=0.5, **NAMED)


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["all", "none", "whiten"])
def test_a_run_from_a_whitened_one_begins_from_its_network(tune, whitened, pictures, tmp_path, caplog):
    again = {"encoder": f"run:{whitened.path}", "encoder_width": None, "tune": tune, "evaluate": True}
    run = train(pictures, None, tmp_path / "run", **NAMED | again)
    assert "begins from the network without the whitening of its features" in caplog.text
    start = load_encoder(run.path / "checkpoints" / "initial")
    before = load_encoder(whitened.path)
    assert start.adapter is None and before.adapter is not None and start.feature_dim == before.backbone_dim
    same = before.backbone.state_dict()
    assert all(torch.equal(value, same[name]) for name, value in start.backbone.state_dict().items())
    assert {"trained", "starting_point"} < run.evaluation.keys()
    words = {"whiten": "whitened on the training images", "none": "linear adapter", "all": None}[tune]
    described = run.evaluation["protocol"].get("trained_features")
    assert described is None if words is None else words in described


def test_whitening_is_refused_where_it_would_change_a_classifier(pictures, weights, tmp_path):
    with pytest.raises(InputError, match=r"whitening=0\.5: method='softmax' trains a classifier"):
        train(pictures, weights, tmp_path / "softmax", tune="all", method="softmax", whitening=0.5)
    assert not (tmp_path / "softmax").exists()
    with pytest.raises(InputError, match="whitening=0.5: has no effect with tune='none'"):
        train(pictures, weights, tmp_path / "none", tune="none", whitening=0.5)
    with pytest.raises(InputError, match="whitening=1.5: must be .*at most 1"):
        train(pictures, weights, tmp_path / "more", tune="all", whitening=1.5)


def test_two_stages_train_the_classifier_on_whitened_features(pictures, weights, tmp_path):
    run = train(pictures, weights, tmp_path / "run", tune="all", method="supcon", whitening=0.5)
    assert run.classifier.weight.shape[1] == saved(run, weights).feature_dim


@pytest.mark.parametrize("tune", ["whiten", "head", "none"])
def test_the_backbone_is_bit_identical_and_the_adapter_is_saved(tune, pictures, weights, tmp_path):
    run = train(pictures, weights, tmp_path / "run", tune=tune)
    before, after = untouched(run, weights), saved(run, weights)
    assert after.feature_dim == (8 if tune == "whiten" else before.feature_dim) and after.adapter is not None
    for name, value in before.state_dict().items():
        assert torch.equal(after.state_dict()[name], value), name
    features = plain_features(before, pictures, [0, 1, 2])
    with after.without_adapter():
        assert torch.equal(plain_features(after, pictures, [0, 1, 2]), features)


@pytest.mark.parametrize("tune", ["head", "none"])
def test_the_adapter_begins_as_the_identity(tune, pictures, weights, tmp_path):
    still, learned = (
        saved(train(pictures, weights, tmp_path / name, tune=tune, lr=lr), weights).adapter.weight
        for name, lr in (("still", 0.0), ("learned", 1e-3))
    )
    assert torch.equal(still, torch.eye(len(still)))
    assert not torch.equal(learned, still)


@pytest.mark.parametrize("tune", ["head", "none"])
def test_the_first_update_sees_the_untouched_features_bit_for_bit(tune, pictures, weights, tmp_path, monkeypatch):
    seen = []
    forward = coulomb.models.Encoder.forward
    monkeypatch.setattr(
        coulomb.models.Encoder,
        "forward",
        lambda self, images: seen.append((images.clone(), forward(self, images).detach())) or forward(self, images),
    )
    run = train(pictures, weights, tmp_path / "run", tune=tune, epochs=1, knn_every=0)
    images, features = next((images, features) for images, features in seen if len(images) == 64)
    expected = images
    if tune == "head":
        with torch.no_grad():
            layout = images.contiguous(memory_format=torch.channels_last)
            expected = forward(untouched(run, weights).eval().to(memory_format=torch.channels_last), layout)
    assert torch.equal(features, expected)


def test_options_of_a_head_are_not_used(pictures, weights, tmp_path, caplog):
    run = train(pictures, weights, tmp_path / "run", tune="none", head_layers=3, embedding_dim=5)
    assert "head_layers, embedding_dim: not used, because tune=none has a linear adapter" in caplog.text.replace(
        "embedding_dim, head_layers", "head_layers, embedding_dim"
    )
    assert run.encoder.feature_dim == weights_dim(run)


def weights_dim(run):
    return json.loads((run.path / "encoder.json").read_text())["adapter"]["in"]


def test_neighbors_are_chosen_without_labels_only(pictures, weights, tmp_path):
    assert train(pictures, weights, tmp_path / "simclr", tune="none").config.neighbors == 1  # 1% of 160
    assert train(pictures, weights, tmp_path / "supcon", tune="none", method="supcon").config.neighbors == 0
    assert train(pictures, weights, tmp_path / "head", tune="head").config.neighbors == 0
    with pytest.raises(InputError, match="neighbors=3: the positives of method='supcon' are chosen by labels"):
        train(pictures, weights, tmp_path / "run", tune="none", method="supcon", neighbors=3)
    with pytest.raises(InputError, match="neighbors=3: needs tune='none'"):
        train(pictures, weights, tmp_path / "run", tune="head", neighbors=3)
    with pytest.raises(InputError, match="neighbors=500: there are 160 training images"):
        train(pictures, weights, tmp_path / "run", tune="none", neighbors=500)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["whiten", "none"])
def test_runs_are_evaluated_and_reported(tune, pictures, weights, tmp_path):
    run = train(pictures, weights, tmp_path / "run", tune=tune, evaluate=True)
    assert run.report.exists() and {"trained", "random_init"} <= set(run.evaluation)
    assert run.doctor
    assert run.encode(pictures[0][:3, ..., None]).shape == (3, run.encoder.feature_dim)
    steps = json.dumps(run.evaluation["verdict"])
    assert "No update was made" not in steps
    again = coulomb.evaluate(run.path, data=pictures, encoder=copy.deepcopy(weights), progress=False)
    assert again["trained"]["knn"] == run.evaluation["trained"]["knn"]


def test_the_live_knn_begins_with_that_of_the_weights_and_costs_no_pass_of_the_backbone(
    pictures, weights, tmp_path, monkeypatch
):
    calls = []
    extract = coulomb.training.watching.live_evaluation.extract_features
    monkeypatch.setattr(
        coulomb.training.watching.live_evaluation,
        "extract_features",
        lambda *given, **named: calls.append(1) or extract(*given, **named),
    )
    run = train(pictures, weights, tmp_path / "run", tune="none", epochs=3)
    lines = [line for line in run.metrics if "knn" in line]
    assert [line["epoch"] for line in lines] == [0, 1, 2, 3] and len(calls) == 2


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["head", "none"])
@pytest.mark.parametrize("method", ["simclr", "moco", "supcon"])
def test_an_interrupted_run_continues_bit_identically(tune, method, pictures, weights, tmp_path):
    options = SMALL | {"tune": tune, "method": method, "checkpoint_every": 2}
    own = {"queue_size": 64} if method == "moco" else {}
    options |= {"method_options": own}
    whole = train(pictures, weights, tmp_path / "whole", **options)
    stopped = stopped_at(7, pictures, tmp_path / "stopped", encoder=copy.deepcopy(weights), **options)
    assert tune == "head" or (stopped / "features.f32").exists()
    coulomb.train(pictures, resume_from=stopped, encoder=copy.deepcopy(weights), evaluate=False, progress=False)
    assert comparable(stopped) == comparable(whole.path)
    assert (stopped / "encoder.safetensors").read_bytes() == (whole.path / "encoder.safetensors").read_bytes()


def test_a_finished_run_is_resumed_without_computing_features(pictures, weights, tmp_path, monkeypatch):
    run = train(pictures, weights, tmp_path / "run", tune="none")
    before = (run.path / "encoder.safetensors").read_bytes()
    monkeypatch.setattr("coulomb.training.feature_cache.FeatureCache.fill", None)
    coulomb.train(pictures, resume_from=run.path, encoder=copy.deepcopy(weights), evaluate=False, progress=False)
    assert (run.path / "encoder.safetensors").read_bytes() == before


def test_whiten_says_which_options_it_does_not_use(pictures, weights, tmp_path, caplog):
    run = train(pictures, weights, tmp_path / "run", tune="whiten", method="supcon", lr=0.5)
    message = next(r.message for r in caplog.records if "tune=whiten trains nothing" in r.message)
    assert {"method", "lr"} <= set(message.partition(":")[0].split(", "))
    assert run.config.epochs == 0 and not (run.path / "metrics.jsonl").exists()
    assert not list(run.path.glob("classifier*"))


def test_methods_with_a_classifier_save_it_behind_the_adapter(pictures, weights, tmp_path):
    run = train(pictures, weights, tmp_path / "run", tune="none", method="softmax")
    assert run.classify(pictures[0][:5, ..., None]).probabilities.shape == (5, 4)


def test_equal_features_are_not_whitened_and_leave_no_folder(weights, tmp_path):
    flat = np.full((60, 16, 16), 7, np.uint8), np.arange(60) % 2
    with pytest.raises(InputError, match="nothing to whiten"):
        train(flat, weights, tmp_path / "run", tune="whiten")
    assert not (tmp_path / "run").exists()


def test_fewer_cached_views_than_views_are_refused(pictures, weights, tmp_path):
    with pytest.raises(InputError, match="cached_views=2: fewer than n_views=3"):
        train(pictures, weights, tmp_path / "run", tune="none", cached_views=2, n_views=3)
