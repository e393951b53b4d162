import math

import torch

from coulomb.losses import JointInfoNCELoss
from law_rows import Row, log_sum_exp, unit

ALL = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")


def joint_loop(
    tau, query, positive, negatives=None, directions=ALL, per_direction=False, in_batch_alpha=0.0, own_alpha=0.0
):
    """Every direction as a list of scores; ``alpha``: of the cosines that are added without gradient."""
    query, positive = unit(query), unit(positive)
    of_query = [[positive[i]] for i in range(len(query))]
    if negatives is not None:
        of_query = [[positive[i], *unit(negatives[i])] for i in range(len(query))]
    losses = []
    for i in range(len(query)):
        scores = {name: [] for name in directions}
        for j, documents in enumerate(of_query):
            for place, document in enumerate(documents):
                cosine = query[i] @ document
                alpha = in_batch_alpha if j != i else own_alpha if place else 0.0
                scores["query_to_doc"].append(cosine / tau + alpha * cosine.detach())
                if "doc_to_doc" in scores and j != i:
                    scores["doc_to_doc"].append(positive[i] @ document / tau)
            if "query_to_query" in scores and j != i:
                scores["query_to_query"].append(query[i] @ query[j] / tau)
            if "doc_to_query" in scores:
                scores["doc_to_query"].append(positive[i] @ query[j] / tau)
        own = query[i] @ positive[i] / tau
        if per_direction:
            losses.append(torch.stack([log_sum_exp(part) for part in scores.values()]).mean() - own)
        else:
            losses.append(log_sum_exp([one for part in scores.values() for one in part]) - own)
    return torch.stack(losses)


def pairs(n, d, draw):
    return draw(n, d), draw(n, d)


def with_negatives(n, d, draw):
    return draw(n, d), draw(n, d), draw(n, 2, d)


def row(inputs, constant, gradient=True, sharp=False, loop=None, **options):
    """A row with these options of the loss; ``loop``: those of the loop."""
    loop = loop or {}
    return Row(
        lambda *a, **k: JointInfoNCELoss(*a, **options, **k),
        inputs,
        lambda tau, *a: joint_loop(tau, *a, **loop),
        constant,
        derivative=gradient,
        sharp=sharp,
    )


BOTH = ("query_to_doc", "doc_to_query")

ROWS = {
    "JointInfoNCELoss": row(pairs, lambda n: math.log(4 * n - 2)),
    "JointInfoNCELoss hard negatives": row(with_negatives, lambda n: math.log(3 * n + n - 1 + n + 3 * (n - 1))),
    "JointInfoNCELoss one direction": row(
        with_negatives,
        lambda n: math.log(3 * n),
        directions=("query_to_doc",),
        loop={"directions": ("query_to_doc",)},
    ),
    "JointInfoNCELoss per direction": row(
        pairs,
        math.log,
        directions=BOTH,
        partition_mode="per_direction",
        loop={"directions": BOTH, "per_direction": True},
        sharp=True,
    ),
    "JointInfoNCELoss within": row(
        pairs,
        lambda n: math.log(2 * n - 1),
        directions=("query_to_doc", "query_to_query"),
        loop={"directions": ("query_to_doc", "query_to_query")},
        sharp=True,
    ),
    "JointInfoNCELoss in-batch hardness": row(
        with_negatives,
        None,
        gradient=False,
        hardness_mode="in_batch_negatives",
        hardness_strength=2.0,
        loop={"in_batch_alpha": 2.0},
    ),
    "JointInfoNCELoss hardness of hard negatives": row(
        with_negatives,
        None,
        gradient=False,
        directions=BOTH,
        partition_mode="per_direction",
        hardness_mode="hard_negatives",
        hardness_strength=3.0,
        loop={"directions": BOTH, "per_direction": True, "own_alpha": 3.0},
    ),
    "JointInfoNCELoss hardness of all": row(
        with_negatives,
        None,
        gradient=False,
        directions=("query_to_doc",),
        hardness_mode="all_negatives",
        hardness_strength=1.5,
        loop={"directions": ("query_to_doc",), "in_batch_alpha": 1.5, "own_alpha": 1.5},
    ),
}
