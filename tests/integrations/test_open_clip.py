"""The losses for open_clip equal its own, in value and gradients, on one process and several, and serve its training loops."""

import inspect
import math
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, softplus

import open_clip_cases as cases
from coulomb.ground.errors import CoulombWarning
from coulomb.integrations.open_clip import ClipLoss, CoCaLoss, DistillClipLoss, SigLipLoss
from coulomb.similarity import policy

EVEN = {1: [12], 2: [6, 6], 3: [4, 4, 4]}
UNEVEN = {2: [7, 5], 3: [5, 1, 6]}
SETTINGS = {
    "1 process": (EVEN[1], 10**6),
    "2 processes, gathered": (EVEN[2], 10**6),
    "2 processes, uneven, ring": (UNEVEN[2], 0),
    "3 processes, ring": (EVEN[3], 0),
    "3 processes, uneven, gathered": (UNEVEN[3], 10**6),
}
PATHS = {"stored": {}, "streaming": {"stored": 0, "tile": 5}, "dense": {"backend": "dense"}}


def close(mine, right, tolerance=1e-10):
    torch.testing.assert_close(mine, right, rtol=0, atol=tolerance)


@pytest.fixture(scope="module", params=SETTINGS)
def together(request, processes):
    sizes, gather_elements = SETTINGS[request.param]
    return sizes, processes.run(len(sizes), cases.together, sizes, gather_elements)


@pytest.mark.parametrize(("local", "grad"), cases.FLAGS)
def test_clip_in_several_processes_has_the_value_and_gradients_of_its_flags(together, local, grad):
    sizes, ranks = together
    expected, scale = cases.expected_clip(local, grad, sizes)
    for each, right in zip(ranks, expected, strict=True):
        mine = each["ours", "clip", local, grad]
        for part, truth in zip(mine, right, strict=False):
            close(part, truth)
        close(mine[4], torch.zeros((), dtype=torch.float64))  # a softmax does not depend on a bias
    close(sum(each["ours", "clip", local, grad][3] for each in ranks) / len(sizes), scale)


def test_distillation_in_several_processes_has_the_gradient_of_the_whole_batch(together):
    sizes, ranks = together
    expected, scale = cases.expected_distill(sizes)
    for each, right in zip(ranks, expected, strict=True):
        for part, truth in zip(each["ours", "distill", True, True], right, strict=False):
            close(part, truth)
    close(sum(each["ours", "distill", True, True][3] for each in ranks) / len(sizes), scale)


@pytest.mark.parametrize("name", cases.IMPLEMENTATIONS)
def test_siglip_in_several_processes_has_the_gradient_of_the_whole_batch(together, name):
    sizes, ranks = together
    expected, *exact = cases.expected_siglip(sizes)
    for each, right in zip(ranks, expected, strict=True):
        for part, truth in zip(each["ours", "siglip", name], right, strict=False):
            close(part, truth)
    for place, truth in enumerate(exact, 3):
        close(sum(each["ours", "siglip", name][place] for each in ranks) / len(sizes), truth)


def test_open_clips_own_give_the_same_in_each_process(together):
    sizes, ranks = together
    if cases.theirs() is None:
        pytest.skip("open_clip is not installed; the formulas of the tests above stand for it")
    if len(set(sizes)) > 1:
        pytest.skip("open_clip needs batches of equal size")
    for each in ranks:
        for (whose, *call), right in each.items():
            if whose != "theirs":
                continue
            mine = each["ours", *call]
            for place, (part, truth) in enumerate(zip(mine, right, strict=True)):
                if place < 3 or call[0] in ("logits", "labels"):
                    close(part, truth)
    for call in [call for whose, *call in ranks[0] if whose == "theirs" and call[0] in ("clip", "siglip", "distill")]:
        for place in (3, 4):  # a process has its share of the gradient of scale and bias: the mean is what both have
            close(*(sum(each[whose, *call][place] for each in ranks) / len(sizes) for whose in ("ours", "theirs")))


def test_other_places_than_those_of_torch_distributed_are_named(processes):
    for messages in processes.run(2, cases.refused):
        assert len(messages) == 4
        assert messages[0].startswith("rank=0, world_size=3, but torch.distributed has rank ")
        assert "of 2" in messages[2]


# One process.


def sample(n=7, d=5, dtype=torch.float64):
    draw = torch.Generator().manual_seed(n)
    rows = [torch.randn(n, d, generator=draw, dtype=torch.float64) for _ in range(2)]
    rows = [nn.functional.normalize(part, dim=1).to(dtype) for part in rows]
    return cases.leaves([*rows, torch.tensor(9.0, dtype=dtype), torch.tensor(-3.0, dtype=dtype)])


def clip_loop(images, texts, scale, bias):
    n = len(images)
    total = 0
    for i in range(n):
        forth = torch.stack([scale * images[i] @ texts[j] + bias for j in range(n)])
        back = torch.stack([scale * texts[i] @ images[j] + bias for j in range(n)])
        total = total + (forth.logsumexp(0) - forth[i] + back.logsumexp(0) - back[i]) / 2
    return total / n


def siglip_loop(images, texts, scale, bias, negative_only=False):
    total = 0
    for i in range(len(images)):
        for j in range(len(texts)):
            score = scale * images[i] @ texts[j] + bias
            total = total + softplus(-score if i == j and not negative_only else score)
    return total / len(images)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("loss", "loop"), [(ClipLoss(), clip_loop), (SigLipLoss(), siglip_loop)], ids=["clip", "siglip"]
)
def test_equals_the_double_loop(loss, loop, path):
    given = sample()
    truth = cases.with_gradients(loop, given)
    with policy.override(**PATHS[path]):
        for mine, right in zip(cases.with_gradients(loss, given), truth, strict=True):
            close(mine, right)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("texts", [7, 4])
def test_texts_of_another_process_are_negatives_only(path, texts):
    images, other, scale, bias = sample()
    given = [images, other.detach()[:texts].clone().requires_grad_(), scale, bias]
    truth = cases.with_gradients(lambda *a: siglip_loop(*a, negative_only=True), given)
    with policy.override(**PATHS[path]):
        ours = cases.with_gradients(lambda *a: SigLipLoss()._loss(*a, negative_only=True), given)
    for mine, right in zip(ours, truth, strict=True):
        close(mine, right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("loss", "loop"), [(ClipLoss(), clip_loop), (SigLipLoss(), siglip_loop)], ids=["clip", "siglip"]
)
def test_half_precision_is_computed_in_fp32(loss, loop, dtype):
    given = sample(9, 16, dtype)
    ours = cases.with_gradients(loss, given)
    truth = cases.with_gradients(loop, cases.leaves([part.detach().double() for part in given]))
    assert ours[0].dtype == torch.float32
    for mine, right, part in zip(ours[1:], truth[1:], given, strict=True):
        assert mine.dtype == part.dtype
        rounding = right.abs().max() * torch.finfo(dtype).eps / 2
        close(mine.double(), right, float(rounding) + 1e-5)
    close(ours[0].double(), truth[0], 1e-5)


def test_autocast_does_not_round_the_logits():
    given = sample(9, 16, torch.float32)
    for loss in (ClipLoss(), SigLipLoss()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = cases.with_gradients(loss, given)
        for mine, right in zip(inside, cases.with_gradients(loss, given), strict=True):
            close(mine, right, 1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("loss", [ClipLoss(), SigLipLoss()], ids=["clip", "siglip"])
def test_compiles_in_one_graph_as_part_of_a_task(loss):
    given = sample(dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *a: loss(*a, output_dict=True)["contrastive_loss"], fullgraph=True, backend="aot_eager"
    )
    for mine, eager in zip(cases.with_gradients(compiled, given), cases.with_gradients(loss, given), strict=True):
        close(mine, eager, 1e-5)


def test_rows_that_are_not_of_unit_length_are_not_normalized():
    images, texts, scale, bias = sample()
    given = cases.leaves([3 * images.detach(), 0.2 * texts.detach(), scale.detach(), bias.detach()])
    for loss, loop in ((ClipLoss(), clip_loop), (SigLipLoss(), siglip_loop)):
        close(loss(*given), loop(*given))


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_captions_add_their_cross_entropy(weight):
    images, texts, scale, _ = sample()
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(7, 4, 9, generator=draw, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 9, (7, 4), generator=draw)
    labels[:, 3] = 2  # the padding
    loss = CoCaLoss(caption_loss_weight=3.0, clip_loss_weight=weight, pad_id=2)
    contrastive, caption = loss(images, texts, logits, labels, scale)
    kept = labels != 2
    close(caption, 3 * cross_entropy(logits[kept], labels[kept]))
    close(contrastive.double(), weight * ClipLoss()(images, texts, scale))
    named = loss(images, texts, logits, labels, scale, output_dict=True)
    assert list(named) == ["contrastive_loss", "caption_loss"]
    close(list(named.values()), [contrastive, caption])


def test_distillation_names_its_losses_and_streams():
    images, texts, scale, _ = sample()
    with policy.override(stored=0, tile=5):
        pair = DistillClipLoss()(images, texts, scale, *cases.teacher(images))
    named = DistillClipLoss()(images, texts, scale, *cases.teacher(images), output_dict=True)
    close(list(named.values()), list(pair))
    assert list(named) == ["contrastive_loss", "distill_loss"]
    with pytest.raises(ValueError, match="^dist_text_features"):
        DistillClipLoss()(images, texts, scale, images, torch.full_like(texts, math.nan), 3.0)


def test_constructors_and_calls_are_open_clips():
    module = cases.theirs()
    if module is None:
        pytest.skip("open_clip is not installed")
    for ours in (ClipLoss, SigLipLoss, CoCaLoss, DistillClipLoss):
        theirs = getattr(module, ours.__name__)
        for method in ("__init__", "forward", "get_logits", "get_ground_truth"):
            mine, right = (list(inspect.signature(getattr(one, method)).parameters.values()) for one in (ours, theirs))
            right = [(one.name, one.default) for one in right]
            assert [(one.name, one.default) for one in mine][: len(right)] == right, method
        required = (2.0, 1.0) if ours is CoCaLoss else ()
        made = ours(*required)
        for name, value in vars(theirs(*required)).items():
            if not name.startswith("_") and name not in ("training", "prev_num_logits", "labels"):
                assert getattr(made, name) == value, name


def test_scale_and_bias_may_have_one_element_or_be_numbers():
    images, texts, scale, bias = sample()
    for loss in (ClipLoss(), SigLipLoss()):
        right = loss(images, texts, scale, bias)
        one = [part.detach()[None].requires_grad_() for part in (scale, bias)]
        value = loss(images, texts, *one)
        close(value, right)
        assert torch.autograd.grad(value, one[0])[0].shape == (1,)
        close(loss(images, texts, 9.0, -3.0), right)
    close(ClipLoss()(images, texts, scale), ClipLoss()(images, texts, scale, bias))
    close(SigLipLoss()(images, texts, scale, None), siglip_loop(images, texts, scale, 0))


def test_output_dict_and_the_calls_of_their_training_loops():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = nn.Linear(6, 4), nn.Linear(3, 4)
            self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
            self.logit_bias = nn.Parameter(torch.tensor(-10.0))

        def forward(self, image, text):
            image, text = self.image(image), self.text(text)
            return {
                "image_features": nn.functional.normalize(image, dim=-1),
                "text_features": nn.functional.normalize(text, dim=-1),
                "logit_scale": self.logit_scale.exp(),
                "logit_bias": self.logit_bias,
            }

    draw = torch.Generator().manual_seed(0)
    image, text = torch.randn(16, 6, generator=draw), torch.randn(16, 3, generator=draw)
    for loss in (ClipLoss(cache_labels=True), SigLipLoss(chunk_size=4)):
        model = Model()
        optimizer, values = torch.optim.AdamW(model.parameters(), lr=0.05), []
        for _ in range(30):
            losses = loss(**model(image, text), output_dict=True)
            assert set(losses) == {"contrastive_loss"}
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            values.append(losses["contrastive_loss"].item())
        assert all(parameter.grad is not None for parameter in model.parameters())  # none is unused for DDP
        assert values[-1] < values[0] / 2


def test_distillation_on_top_of_the_logits():
    images, texts, scale, _ = sample()

    class Distill(ClipLoss):
        def forward(self, images, texts, scale, teacher):
            losses = [cross_entropy(s, t.softmax(1)) for s, t in zip(self.get_logits(images, texts, scale), teacher)]
            return sum(losses) / 2

    teacher = ClipLoss().get_logits(texts.detach(), images.detach(), 5.0)
    value = Distill()(images, texts, scale, teacher)
    logits = scale * images @ texts.T
    close(value, (cross_entropy(logits, teacher[0].softmax(1)) + cross_entropy(logits.T, teacher[1].softmax(1))) / 2)


def test_arguments_without_effect_have_none():
    given = sample()
    right = SigLipLoss()(*given)
    for options in ({"chunk_size": 2}, {"dist_impl": "gather"}, {"cache_labels": True}):
        assert torch.equal(SigLipLoss(**options)(*given), right)
    assert SigLipLoss().dist_impl == "bidir"


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: SigLipLoss(dist_impl="mesh"), ValueError, "^dist_impl .*'mesh'"),
        (lambda: SigLipLoss(chunk_size=-1), ValueError, "^chunk_size .*-1"),
        (lambda: ClipLoss(rank=2, world_size=2), ValueError, "^rank=2.*world_size=2"),
        (lambda: ClipLoss(local_loss="yes"), TypeError, "^local_loss"),
        (lambda: ClipLoss(use_horovod=True), ValueError, "^use_horovod=True"),
        (lambda: ClipLoss(world_size=2)(*sample()), RuntimeError, "^world_size=2.*not initialized"),
        (lambda: ClipLoss()(*sample()[:2], torch.ones(2)), ValueError, r"^logit_scale must be .*\(2,\)"),
        (lambda: SigLipLoss()(*sample()[:3], math.nan), ValueError, "^logit_bias must be finite"),
        (lambda: ClipLoss()(sample(6)[0], sample(7)[1], 1.0), ValueError, "^text_features has shape"),
        (lambda: ClipLoss()(sample()[0] / 0, sample()[1], 1.0), ValueError, "^image_features has .*NaN"),
        (lambda: SigLipLoss()(sample()[0], sample()[1] / 0, 1.0, 0.0), ValueError, "^text_features has .*NaN"),
    ],
)
def test_errors_name_the_argument(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_a_single_pair_has_no_negatives_and_a_warning():
    images, texts, scale, bias = sample(1)
    with pytest.warns(CoulombWarning, match="^1 of 1 anchors have no negative"):
        close(ClipLoss()(images, texts, scale), torch.zeros((), dtype=torch.float64))
    with pytest.warns(CoulombWarning, match="^1 of 1 anchors have no negative"):
        close(SigLipLoss()(images, texts, scale, bias), siglip_loop(images, texts, scale, bias))


IMPORTED = """
import sys
import coulomb.integrations.open_clip
print(sorted({"lightning", "transformers", "open_clip", "datasets", "sklearn"} & set(sys.modules)))
import coulomb.integrations.embedding_figures
print(sorted({"lightning", "transformers", "open_clip"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_no_other_library_is_imported():
    printed = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["[]", "[]"]
