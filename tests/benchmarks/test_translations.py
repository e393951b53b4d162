"""The pages "From …": every call there has the value of its formula, and the tables say how the calls here differ."""

import math

import pytest
import torch

from benchmarks.contenders import UnavailableError
from benchmarks.translations import LIBRARIES, difference, here, render, sample, table, there, translate, with_gradients
from coulomb.ground.errors import InputError
from page_blocks import ROOT

# Each call there as a double loop over numbers, from its published formula.


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def lse(values):
    return torch.stack(values).logsumexp(0)


def mean(values):
    return torch.stack(values).mean()


def ntxent(tau):
    def loop(s):
        rows, n = unit(torch.cat([s["x"], s["y"]])), len(s["x"])
        scores = [[a @ b / tau for b in rows] for a in rows]
        others = [[scores[i][j] for j in range(2 * n) if j != i] for i in range(2 * n)]
        return mean([lse(others[i]) - scores[i][(i + n) % (2 * n)] for i in range(2 * n)])

    return loop


def infonce(tau, queue=False):
    def loop(s):
        x, y = unit(s["x"]), unit(s["y"])
        losses = []
        for i, query in enumerate(x):
            keys = [y[i], *s["queue"]] if queue else list(y)
            losses.append(lse([query @ key / tau for key in keys]) - query @ y[i] / tau)
        return mean(losses)

    return loop


def decoupled(tau, sigma=None):
    def loop(s):
        x, y = unit(s["x"]), unit(s["y"])
        n, losses = len(x), []
        weights = [1.0] * n
        if sigma is not None:
            cosines = torch.stack([a @ b for a, b in zip(x, y, strict=True)]).detach() / sigma
            weights = [2 - n * (cosine - cosines.logsumexp(0)).exp() for cosine in cosines]
        for mine, other in ((x, y), (y, x)):
            for i in range(n):
                negatives = [mine[i] @ rows[j] / tau for rows in (mine, other) for j in range(n) if j != i]
                losses.append(lse(negatives) - weights[i] * (mine[i] @ other[i]) / tau)
        return mean(losses)

    return loop


def barlow(weight, factor=1.0):
    def loop(s):
        sides = []
        for rows in (s["x"], s["y"]):
            columns = [column - column.mean() for column in rows.T]
            sides.append([column / (column.square().mean() + 1e-5).sqrt() for column in columns])
        total = 0
        for d, first in enumerate(sides[0]):
            for e, second in enumerate(sides[1]):
                c = (first * second).mean()
                total = total + ((1 - c) ** 2 if d == e else weight * c**2)
        return factor * total

    return loop


def vicreg(variance):
    def loop(s):
        x, y = s["x"], s["y"]
        n, dim = x.shape
        total = 25 * sum((a - b).square().sum() for a, b in zip(x, y, strict=True)) / (n * dim)
        for rows in (x, y):
            columns = [column - column.mean() for column in rows.T]
            for d, first in enumerate(columns):
                std = (first.square().sum() / (n - 1) + 1e-4).sqrt()
                total = total + variance / 2 * (1 - std).clamp_min(0) / dim
                for e, second in enumerate(columns):
                    if e != d:
                        total = total + ((first * second).sum() / (n - 1)) ** 2 / dim
        return total

    return loop


def cosines(s):
    return mean([a @ b for a, b in zip(unit(s["x"]), unit(s["y"].detach()), strict=True)])


def class_ntxent(s):
    rows, labels, tau = unit(s["x"]), s["labels"].tolist(), 0.07
    losses = []
    for a, label in enumerate(labels):
        negatives = [rows[a] @ rows[j] / tau for j, other in enumerate(labels) if other != label]
        for p, other in enumerate(labels):
            if p != a and other == label:
                own = rows[a] @ rows[p] / tau
                losses.append(lse([own, *negatives]) - own)
    return mean(losses)


def supcon(s):
    rows, labels, tau = unit(s["x"]), s["labels"].tolist(), 0.1
    losses = []
    for a, label in enumerate(labels):
        others = [j for j in range(len(rows)) if j != a]
        positives = [rows[a] @ rows[p] / tau for p in others if labels[p] == label]
        if positives:
            losses.append(lse([rows[a] @ rows[j] / tau for j in others]) - mean(positives))
    return mean(losses)


def triplet(s):
    rows, labels = unit(s["x"]), s["labels"].tolist()
    n, losses = len(rows), []
    for a in range(n):
        for p in range(n):
            for k in range(n):
                if p != a and labels[p] == labels[a] != labels[k]:
                    loss = (rows[a] - rows[p]).norm() - (rows[a] - rows[k]).norm() + 0.2
                    if loss > 0:
                        losses.append(loss)
    return mean(losses)


def arcface(s):
    losses = []
    for row, label in zip(unit(s["x"]), s["labels"].tolist(), strict=True):
        scores = [64 * row @ center for center in unit(s["centers"])]
        scores[label] = 64 * ((row @ unit(s["centers"])[label]).acos() + math.radians(28.6)).cos()
        losses.append(lse(scores) - scores[label])
    return mean(losses)


def normalized_softmax(s):
    losses = []
    for row, label in zip(unit(s["x"]), s["labels"].tolist(), strict=True):
        scores = [row @ center / 0.05 for center in unit(s["centers"])]
        losses.append(lse(scores) - scores[label])
    return mean(losses)


def clip(s):
    x, y = unit(s["x"]), unit(s["y"])
    losses = []
    for i in range(len(x)):
        own = s["scale"] * x[i] @ y[i]
        for forth in ([x[i] @ key for key in y], [y[i] @ key for key in x]):
            losses.append(lse([s["scale"] * cosine for cosine in forth]) - own)
    return mean(losses)


def siglip(s):
    x, y = unit(s["x"]), unit(s["y"])
    total = 0
    for i in range(len(x)):
        for j in range(len(y)):
            score = s["scale"] * x[i] @ y[j] + s["bias"]
            total = total + torch.nn.functional.softplus(-score if i == j else score)
    return total / len(x)


LOOPS = {
    "lightly": {
        "NT-Xent": ntxent(0.5),
        "memory bank": infonce(0.1, queue=True),
        "DCL": decoupled(0.1),
        "DCLW": decoupled(0.1, sigma=0.5),
        "Barlow Twins": barlow(5e-3),
        "VICReg": vicreg(25),
        "SimSiam, BYOL": lambda s: -cosines(s),
    },
    "pytorch-metric-learning": {
        "NT-Xent, two views": ntxent(0.07),
        "NT-Xent, classes": class_ntxent,
        "SupCon": supcon,
        "triplet": triplet,
        "ArcFace": arcface,
        "normalized softmax": normalized_softmax,
        "VICReg": vicreg(25),
    },
    "solo-learn": {
        "SimCLR": ntxent(0.1),
        "MoCo": infonce(0.1, queue=True),
        "BYOL": lambda s: 2 - 2 * cosines(s),
        "SimSiam": lambda s: -cosines(s),
        "Barlow Twins": barlow(5e-3, 0.025),
        "VICReg": vicreg(50),
        "NNCLR": infonce(0.1),
    },
    "open-clip": {"CLIP, drop-in": clip, "CLIP": clip, "SigLIP, drop-in": siglip, "SigLIP": siglip},
}
ROWS = [pytest.param(name, row, id=f"{name}-{row.name}") for name, library in LIBRARIES.items() for row in library.rows]


def looped(name, row):
    names = sample()
    return with_gradients(LOOPS[name][row.name](names), names)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_table_of_the_page_says_what_the_formulas_give(name):
    library = LIBRARIES[name]
    found = {row.name: difference(looped(name, row), here(row)) for row in library.rows}
    page = (ROOT / "docs" / "guide" / f"from-{name}.md").read_text(encoding="utf-8")
    assert table(library, found) in page


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_the_call_there_has_the_value_and_gradient_of_its_formula(name, row):
    try:
        theirs = there(LIBRARIES[name], row)
    except UnavailableError as reason:
        pytest.skip(f"{name}: {reason}")
    rounding = 1e-5 if "float()" in row.there else 1e-9
    for part, truth in zip(theirs, looped(name, row), strict=True):
        torch.testing.assert_close(part, truth, rtol=rounding, atol=rounding)


def test_differences_in_words():
    value, grad = torch.tensor(2.0), torch.tensor([1.0, 0.0])
    assert difference((value, grad), (value, grad)) == "equal"
    assert difference((value, grad), (value, 1.25 * grad)) == "value equal, gradient by 25%"
    assert difference((value, grad), (value + 4e-5, grad)) == "by 2e-05"
    assert difference((value, grad), (value + 1, grad)) == "2.000 there, 3.000 here"


def test_the_command_prints_tables_and_names_what_is_not_installed(monkeypatch):
    def unavailable(names):
        raise UnavailableError("not installed (pip install lightly)")

    monkeypatch.setattr("benchmarks.translations.there", lambda library, row: unavailable({}))
    printed = render(translate(["lightly"]))
    assert printed.count("not installed (pip install lightly)") == len(LIBRARIES["lightly"].rows)
    with pytest.raises(InputError, match="^library=keras"):
        translate(["keras"])
