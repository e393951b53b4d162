"""Every rule on synthetic evidence: well on one side of its threshold, sick on the other, unknown without figures."""

import math

import pytest

from coulomb.evaluation.doctor import RULES, TRAITS, Evidence, Traits, diagnose
from coulomb.evaluation.doctor.data_rules import APART, COIN, DECIDES, EQUAL, LEAKED, REPEATED, TRIVIAL
from coulomb.evaluation.doctor.learning_rules import (
    DIRECTIONS,
    GROWN,
    JUMP,
    LEARNED,
    SPREAD,
    STILL,
    WORSE,
    perfect_loss,
)
from coulomb.evaluation.doctor.negatives_rules import ALIKE, CHANGE, FALSE_MOST, FEW, IMAGES, NEGATIVES, STALE
from coulomb.evaluation.doctor.pair_rules import PAIR_RULES
from coulomb.evaluation.doctor.weights_rules import FAR, KEPT
from coulomb.methods import METHODS, PAIR_METHODS
from doctor_cases import NO_SIGNAL, evidence

BY_NAME = {rule.name: rule for rule in RULES}


def state(name, found):
    return BY_NAME[name].check(found).state


def with_loss(loss):
    """A run with this loss."""
    return evidence(step={"loss": loss})


FLOOR = perfect_loss(evidence(), NO_SIGNAL)


def loss_at(share):
    return NO_SIGNAL - share * (NO_SIGNAL - FLOOR)


def copies(exact, near, of=1000):
    return {"images": of, "exact": exact, "near": near}


def blank(images):
    return copies(0, 0) | {"blank": images}


def labels(accuracy):
    return {"pixels": accuracy, "features": 0.1, "chance": 0.1, "images": 359}


def by_class(rare, frequent):
    rows = [{"train": 10 * (n + 1) ** 2, "knn": rare if n < 3 else frequent} for n in range(10)]
    return {"trained": {"per_class": rows}}


TAIL = {"class_counts": [10 * (n + 1) ** 2 for n in range(10)]}


def adapted(distance=0.1, recovered=0.9, outcome="even", linear=0.01, level="use_starting_point", **figures):
    """A run from weights; starting features of two images are .4 apart, untrained features tell .2 of them."""
    drift = {"distance": distance, "between": 0.4, "cka": 0.9, "recovered": recovered, "recovered_untrained": 0.2}
    measurements = {} if linear is None else {"linear": {"difference": linear - 0.01, "high": linear}}
    compared = [
        {"against": "raw_pixels", "measurements": {"linear": {"high": -0.5}}},
        {"against": "starting_point", "measurements": measurements, "overall": {"of": ["knn"], "outcome": outcome}},
    ]
    if outcome is None:
        compared[1]["overall"] = {"of": ["view_retrieval"], "outcome": "better"}
    evaluation = {"drift": drift | figures, "comparison": compared, "verdict": {"level": level, "next": []}}
    return evidence(evaluation=evaluation, config={"encoder": "hf:org/tiny@weights"})


MOCO = {"momentum": 0.95, "queue_size": 1024, "symmetric": True, "exclude_own": False}
EPS = 1e-3
HOT = {"temperature": 2.0}

# name of the rule, evidence that is well, evidence that is sick: on both sides of the threshold.
SIDES = [
    (
        "complete-collapse",
        evidence(look={"embedding_std": SPREAD + EPS}),
        evidence(look={"embedding_std": SPREAD - EPS}),
    ),
    (
        "dimensional-collapse",
        evidence(look={"embedding_rank": DIRECTIONS + EPS}),
        evidence(look={"embedding_rank": DIRECTIONS - EPS}),
    ),
    ("no-signal", with_loss(loss_at(LEARNED + EPS)), with_loss(loss_at(LEARNED - EPS))),
    (
        "augmentation-too-weak",
        evidence(network={"pixel_retrieval": TRIVIAL - EPS}),
        evidence(network={"pixel_retrieval": TRIVIAL + EPS}),
    ),
    (
        "augmentation-too-strong",
        evidence(look={"separation": APART - EPS}, network={"matcher_separation": COIN + EPS}),
        evidence(look={"separation": APART - EPS}, network={"matcher_separation": COIN - EPS}),
    ),
    (
        "augmentation-too-strong",
        evidence(look={"separation": APART + EPS}, network={"matcher_separation": COIN - EPS}),
        evidence(look={"separation": APART - EPS}, network={"matcher_separation": COIN - EPS}),
    ),
    ("temperature-too-low", evidence(step={"top1_gradient": FEW - EPS}), evidence(step={"top1_gradient": FEW + EPS})),
    (
        "temperature-too-high",
        evidence(step={"top10pct_gradient": ALIKE + EPS}, config=HOT),
        evidence(step={"top10pct_gradient": ALIKE - EPS}, config=HOT),
    ),
    (  # an even push at τ = .2 is of embeddings that have not spread yet
        "temperature-too-high",
        evidence(step={"top10pct_gradient": ALIKE - EPS}),
        evidence(step={"top10pct_gradient": ALIKE - EPS}, config=HOT),
    ),
    (
        "images-blank",
        evidence(data={"copies": blank(50)}),
        evidence(data={"copies": blank(501)}),
    ),
    (  # .1 by chance, 359 images: three standard errors are .0475
        "labels-unrelated",
        evidence("supcon", network={"labels": labels(0.148)}, look={"knn": 0.1}),
        evidence("supcon", network={"labels": labels(0.147)}, look={"knn": 0.1}),
    ),
    (
        "batch-too-small",
        evidence(step={"negatives": NEGATIVES}, config={"batch_size": 9}),
        evidence(step={"negatives": NEGATIVES - 1}, config={"batch_size": 9}),
    ),
    (
        "batch-too-small",
        evidence("byol", config={"batch_size": IMAGES}),
        evidence("byol", config={"batch_size": IMAGES - 1}),
    ),
    (
        "shortcut",
        evidence(network={"transplant": {"region": "top", "share": DECIDES - EPS}}),
        evidence(network={"transplant": {"region": "top", "share": DECIDES + EPS}}),
    ),
    (
        "augmentation-too-weak",
        evidence(network={"identical_views": EQUAL - EPS}),
        evidence(network={"identical_views": EQUAL + EPS}),
    ),
    (
        "augmentation-too-weak",
        evidence(step={"train_positive_similarity": 0.999}),
        evidence(step={"train_positive_similarity": 1.0}),
    ),
    (
        "nothing-learned",
        evidence(evaluation={"verdict": {"level": "learned_something"}}),
        evidence(evaluation={"verdict": {"level": "nothing_measurable"}}),
    ),
    (
        "false-negatives",
        evidence(step={"false_negative_gradient": FALSE_MOST - EPS}),
        evidence(step={"false_negative_gradient": FALSE_MOST + EPS}),
    ),
    (
        "learning-rate-too-high",
        evidence(step={"update_ratio": JUMP - EPS}),
        evidence(step={"update_ratio": JUMP + EPS}),
    ),
    ("learning-rate-too-high", with_loss(NO_SIGNAL * (WORSE - EPS)), with_loss(NO_SIGNAL * (WORSE + EPS))),
    (
        "learning-rate-too-high",
        evidence(network={"growth": GROWN - EPS}),
        evidence(network={"growth": GROWN + EPS}),
    ),
    ("learning-rate-too-high", evidence(), evidence(failed="the loss became non-finite at step 3")),
    (
        "learning-rate-too-low",
        evidence(network={"distance": STILL + EPS}),
        evidence(network={"distance": STILL - EPS}),
    ),
    (
        "learning-rate-too-low",
        evidence(network={"distance": None}, step={"update_ratio": 2 * STILL / 100}),
        evidence(network={"distance": None}, step={"update_ratio": 0.5 * STILL / 100}),
    ),
    (
        "queue-stale",
        evidence("moco", step={"queue_age_mean": 0.9 * STALE / 0.02}, options=MOCO),
        evidence("moco", step={"queue_age_mean": 1.1 * STALE / 0.02}, options=MOCO),
    ),
    (
        "queue-larger-than-data",
        evidence("moco", options=MOCO | {"queue_size": 2 * 1438}),
        evidence("moco", options=MOCO | {"queue_size": 2 * 1438 + 1}),
    ),
    (
        "queue-larger-than-data",
        evidence("moco", options=MOCO | {"queue_size": 1438, "symmetric": False}),
        evidence("moco", options=MOCO | {"queue_size": 1439, "symmetric": False}),
    ),
    (
        "head-not-normalized",
        evidence(network={"scale_change": CHANGE - EPS}),
        evidence(network={"scale_change": CHANGE + EPS}),
    ),
    (  # .993 ** 100 = .495, .994 ** 100 = .548
        "momentum-wrong",
        evidence("moco", options=MOCO | {"momentum": 0.993}),
        evidence("moco", options=MOCO | {"momentum": 0.994}),
    ),
    (
        "momentum-wrong",
        evidence("moco", options=MOCO | {"momentum": 0.5}),
        evidence("moco", options=MOCO | {"momentum": 0.49}),
    ),
    (
        "imbalance",
        evidence(data=TAIL, evaluation=by_class(0.46, 0.9)),
        evidence(data=TAIL, evaluation=by_class(0.44, 0.9)),
    ),
    (
        "imbalance",
        evidence(data={"class_counts": [100] * 9 + [10]}, evaluation=by_class(0.1, 0.9)),
        evidence(data={"class_counts": [101] * 9 + [10]}, evaluation=by_class(0.1, 0.9)),
    ),
    (
        "duplicates",
        evidence(data={"copies": copies(20, round(1000 * REPEATED) - 20)}),
        evidence(data={"copies": copies(20, round(1000 * REPEATED) - 19)}),
    ),
    ("drift", adapted(FAR * 0.4 - EPS), adapted(FAR * 0.4 + EPS)),
    ("drift", adapted(0.5, outcome="better"), adapted(0.5)),
    (
        "forgetting",
        adapted(recovered=0.2 + 0.8 * KEPT + EPS, outcome="worse"),
        adapted(recovered=0.2 + 0.8 * KEPT - EPS, outcome="worse"),
    ),
    (
        "forgetting",
        adapted(outcome="worse", linear=EPS, recovered=None),
        adapted(outcome="worse", linear=-EPS, recovered=None),
    ),
    ("evaluation-leak", evidence(), evidence(data={"leaks": copies(6, round(1000 * LEAKED) - 5)})),
]


def test_every_rule_has_a_case():
    of_columns = {rule.name for rule in PAIR_RULES}  # test_pair_rules.py
    assert {name for name, _, _ in SIDES} | of_columns == set(BY_NAME)


@pytest.mark.parametrize(
    ("name", "healthy", "sick"), SIDES, ids=[f"{n}-{name}" for n, (name, _, _) in enumerate(SIDES)]
)
def test_both_sides_of_the_threshold(name, healthy, sick):
    assert state(name, healthy) == "well"
    assert state(name, sick) == "sick"
    # The same among all rules together.
    assert name not in [verdict["name"] for verdict in diagnose(healthy)["verdicts"]]
    assert name in [verdict["name"] for verdict in diagnose(sick)["verdicts"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rules_without_figures_are_unknown_with_a_reason(rule):
    found = rule.check(Evidence(config={"method": "simclr"}))
    assert found.state == "unknown"
    assert found.why


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_causes_are_rules_and_texts_are_sentences(rule):
    assert set(rule.explained_by) <= set(BY_NAME) - {rule.name}
    for text in (rule.title, rule.consequence):
        assert text.endswith(".")
        assert len(text) > 20


def test_few_leaked_images_are_a_warning():
    found = diagnose(evidence(data={"leaks": copies(1, 0)}))
    assert [(each["name"], each["severity"]) for each in found["verdicts"]] == [("evaluation-leak", "warning")]
    assert found["healthy"]
    assert found["verdicts"][0]["evidence"][0]["value"] == pytest.approx(0.001)


class TestTraitsOfTheMethod:
    def test_collapsed_classes_are_no_collapse(self):
        rank, six = {"embedding_rank": 2.6}, {"class_counts": [240] * 6}
        assert (
            state("dimensional-collapse", evidence("supcon", look=rank, data=six)) == "well"
        )  # 6 classes: 5 directions, half
        assert state("dimensional-collapse", evidence("simclr", look=rank)) == "sick"
        assert state("dimensional-collapse", evidence("supcon", look={"embedding_rank": 2.4}, data=six)) == "sick"

    def test_features_can_collapse_before_a_wide_head(self):
        assert state("dimensional-collapse", evidence(look={"effective_rank": 2.9})) == "sick"

    def test_two_classes_need_one_direction(self):
        two = evidence("softmax", look={"embedding_rank": 1.0}, data={"class_counts": [700, 700]})
        assert state("dimensional-collapse", two) == "unknown"

    def test_narrow_embeddings_need_a_lower_rank(self):
        narrow = evidence(look={"embedding_rank": 2.5}, config={"embedding_dim": 4})
        assert state("dimensional-collapse", narrow) == "well"

    @pytest.mark.parametrize(
        "method", ["byol", "simsiam", "siglip", "vicreg", "barlow", "triplet", "arcface", "softmax", "balanced_softmax"]
    )
    def test_no_temperature_without_negatives(self, method):
        for name in ("temperature-too-low", "temperature-too-high", "false-negatives"):
            found = evidence(
                method, step={"top1_gradient": 1.0, "top10pct_gradient": 0.1, "false_negative_gradient": 1.0}
            )
            assert state(name, found) == "unknown"

    def test_false_negatives_are_a_warning_where_the_published_weights_got_better(self):
        found = evidence(
            step={"false_negative_gradient": 0.9}, evaluation={"starting_point": {"knn": 0.9}, "trained": {"knn": 0.91}}
        )
        assert state("false-negatives", found) == "warning"
        found.evaluation["trained"]["knn"] = 0.9
        assert state("false-negatives", found) == "sick"

    def test_no_false_negatives_with_labels(self):
        assert state("false-negatives", evidence("supcon", step={"false_negative_gradient": 0.9})) == "unknown"

    def test_weak_views_are_fine_with_labels(self):
        assert state("augmentation-too-weak", evidence("supcon", network={"pixel_retrieval": 1.0})) == "unknown"

    def test_margin_of_arcface_raises_its_loss(self):
        found = evidence("arcface", step={"loss": 4.8, "no_signal": 4.17})
        assert state("learning-rate-too-high", found) == "well"
        assert state("no-signal", found) == "unknown"

    def test_classifier_need_not_be_normalized(self):
        assert state("head-not-normalized", evidence("softmax", network={"scale_change": 1.0})) == "unknown"

    def test_vicreg_sets_the_length_of_embeddings(self):
        assert state("head-not-normalized", evidence("vicreg", network={"scale_change": 1.0})) == "unknown"
        assert state("head-not-normalized", evidence("barlow", network={"scale_change": 1.0})) == "sick"

    def test_loss_of_dcl_may_be_negative(self):
        assert state("no-signal", evidence("dcl", step={"loss": -1.0, "no_signal": 5.5})) == "well"
        assert state("no-signal", evidence("dcl", step={"loss": 5.5, "no_signal": 5.5})) == "sick"

    def test_queue_without_own_keys_may_be_long(self):
        long = MOCO | {"queue_size": 8192}
        assert state("queue-larger-than-data", evidence("moco", options=long | {"exclude_own": True})) == "unknown"
        assert state("queue-larger-than-data", evidence("paco", options=long)) == "unknown"

    def test_momentum_of_byol(self):
        assert state("momentum-wrong", evidence("byol", options={"momentum": 0.0})) == "well"
        # The cosine halves the way: .99 leaves .37 of the start after 100 updates, with it .61.
        assert state("momentum-wrong", evidence("moco", options=MOCO | {"momentum": 0.99})) == "well"
        assert state("momentum-wrong", evidence("byol", options={"momentum": 0.99})) == "sick"


class TestRunsFromWeights:
    def test_severity_depends_on_what_the_training_gained(self):
        far, gone = {"distance": 0.6}, {"recovered": 0.3}
        for outcome, drift, forgetting in [
            ("better", "well", "warning"),
            ("even", "sick", "warning"),
            ("worse", "sick", "sick"),
            (None, "warning", "sick"),  # without labels
        ]:
            assert state("drift", adapted(**far, outcome=outcome)) == drift
            assert state("forgetting", adapted(**gone, outcome=outcome)) == forgetting

    def test_unknown_without_a_comparison(self):
        assert "did not start from weights" in BY_NAME["drift"].check(evidence()).why
        unevaluated = evidence(config={"encoder": "hf:org/tiny@weights"}, evaluation=None)
        for name in ("drift", "forgetting"):
            assert "was not evaluated" in BY_NAME[name].check(unevaluated).why
        assert "an adapter" in BY_NAME["drift"].check(adapted(distance=None)).why
        assert state("drift", adapted(between=0.0)) == "unknown"
        assert state("forgetting", adapted(recovered=None, linear=None)) == "unknown"
        assert state("forgetting", adapted(recovered_untrained=1.0, linear=None)) == "unknown"

    def test_small_changes_of_weights_are_intended(self):
        still = {"network": {"distance": STILL / 10}}
        assert state("learning-rate-too-low", evidence(**still)) == "sick"
        assert state("learning-rate-too-low", evidence(**still, config={"encoder": "hf:org/tiny@weights"})) == "unknown"

    def test_damage_is_reported_once(self):
        found = diagnose(adapted(0.6, 0.3, outcome="worse", level="adapting_hurt"))
        assert [each["name"] for each in found["verdicts"]] == ["drift", "forgetting"]
        assert not found["healthy"]

    def test_remedies_go_beyond_what_is_set(self):
        remedy = BY_NAME["forgetting"].remedy
        assert remedy(adapted()) == (
            "Keep the features close to the starting ones (--stay-close 1); or train fewer weights (--tune lora:8); lower "
            "the learning rate (--lr 0.0004); train for fewer epochs (--epochs 5); or use the starting weights as they are."
        )
        close = evidence(config={"stay_close": 1.0, "tune": "lora:8"})
        assert "--stay-close 4" in remedy(close) and "lora" not in remedy(close)
        for tune in ("head", "none", "whiten"):  # which refuse stay_close and train fewer weights than lora
            frozen = remedy(evidence(config={"tune": tune}))
            assert "stay-close" not in frozen and "lora" not in frozen


@pytest.mark.parametrize(
    ("level", "found"),
    [
        ("adapting_helped", "well"),
        ("adapting_unverified", "well"),
        ("use_starting_point", "warning"),
        ("adapting_hurt", "sick"),
    ],
)
def test_levels_of_adapted_runs_have_a_state(level, found):
    assert state("nothing-learned", adapted(level=level)) == found


def test_low_separation_alone_is_not_due_to_the_views():
    assert state("augmentation-too-strong", evidence(look={"separation": 0.55})) == "well"
    unseen = evidence(look={"separation": 0.55}, network={"matcher_separation": None})
    assert state("augmentation-too-strong", unseen) == "unknown"


def test_unfinished_run_is_checked_by_its_planned_updates():
    slow = MOCO | {"momentum": 0.994}
    under_way = {"epochs": 40, "batch_size": 256, "accumulate": 1}  # 200 updates in all: .994 ** 200 = .30
    assert state("momentum-wrong", evidence("moco", options=slow, config=under_way)) == "well"
    assert state("momentum-wrong", evidence("moco", options=slow, config=under_way | {"accumulate": 2})) == "sick"


def test_loss_of_a_perfect_encoder():
    simclr = evidence()
    assert perfect_loss(simclr, NO_SIGNAL) == pytest.approx(math.log(1 + 510 * math.exp(-5)))
    hot = evidence(config={"temperature": 10.0})
    assert NO_SIGNAL - perfect_loss(hot, NO_SIGNAL) == pytest.approx(0.1, abs=0.01)  # all that can be learned there
    assert perfect_loss(evidence("softmax"), math.log(10)) == 0
    supcon = perfect_loss(evidence("supcon"), NO_SIGNAL)
    assert NO_SIGNAL - math.log(10) < supcon < NO_SIGNAL  # class mates stay in the denominator


def test_few_updates_are_unknown():
    assert state("no-signal", evidence(steps=39, step={"loss": NO_SIGNAL})) == "unknown"
    start = evidence(
        "moco", steps=19, look={"embedding_std": 0.0, "embedding_rank": 1.0, "separation": 0.5}, options=MOCO
    )
    for name in ("complete-collapse", "dimensional-collapse", "augmentation-too-strong", "momentum-wrong"):
        assert state(name, start) == "unknown"
    assert state("learning-rate-too-low", evidence(steps=19, network={"distance": 0.0})) == "unknown"


def test_traits_of_coulombs_methods_and_of_a_users_method():
    assert set(TRAITS) == set(METHODS) | set(PAIR_METHODS)
    assert evidence("moco").traits.queue and not evidence("simclr").traits.queue
    own = evidence("mine.py:Mine", needs_labels=True)
    assert own.learns_from_labels and own.traits == Traits(negatives=True, momentum=True, queue=True, floor="zero")
    assert evidence("mine.py:Mine").traits.floor == "instances"
