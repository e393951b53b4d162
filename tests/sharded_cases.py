"""Reductions over keys that are spread over processes, and the same of the whole stored matrix by plain torch."""

from dataclasses import dataclass

import torch

from coulomb.similarity import Guide, Similarity, collectives

SIZES = {1: [7], 2: [5, 8], 4: [3, 6, 1, 4]}  # queries of each process: uneven


@dataclass(frozen=True)
class Kind:
    """How queries and keys are related; ``extra`` keys of each process beyond its queries."""

    itself: bool = False
    lead: bool = False
    ids: bool = True
    width: int = 1
    bias: bool = False
    scale: float = 3.0
    extra: int = 0
    unit: bool = False
    guide: int = 0  # its width


KINDS = {
    "itself": Kind(itself=True),
    "itself, instances, unit": Kind(itself=True, ids=False, unit=True),
    "itself, large": Kind(itself=True, scale=400.0),
    "itself, bias": Kind(itself=True, bias=True),
    "lead": Kind(lead=True, extra=2),
    "apart, bias": Kind(bias=True, extra=3),
    "apart, instances": Kind(ids=False),
    "itself, two ids": Kind(itself=True, width=2),
    "apart, three ids": Kind(width=3, extra=1),
    "apart, large": Kind(scale=400.0, extra=1),
    "apart, guide": Kind(guide=2, extra=1),
    "itself, guide": Kind(itself=True, guide=3),
    "apart, instances, guide": Kind(ids=False, guide=2),
}


def draw(kind, world):
    """Returns the whole problem: queries, keys, bias, ids, processes of queries and keys."""
    generator = torch.Generator().manual_seed(1)
    n, m = sum(SIZES[world]), sum(SIZES[world]) + kind.extra * world

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    queries, keys, bias = normal(n, 5), normal(m, 5), normal(m)
    high = 4 if kind.width == 1 else 9
    query_ids, key_ids = (torch.randint(-1, high, (count, kind.width), generator=generator) for count in (n, m))
    query_from, key_from = (
        torch.repeat_interleave(torch.arange(world), torch.tensor(SIZES[world]) + extra) for extra in (0, kind.extra)
    )
    if kind.unit:
        queries, keys = (x / x.norm(dim=1, keepdim=True) for x in (queries, keys))
    if kind.itself:
        keys, key_ids, key_from = queries, query_ids, query_from
    elif kind.lead:
        for rank in range(world):
            first = torch.nonzero(key_from == rank)[: SIZES[world][rank], 0]
            keys[first], key_ids[first] = queries[query_from == rank], query_ids[query_from == rank]
    return queries, keys, bias, query_ids, key_ids, query_from, key_from


def guide_of(kind, queries, keys):
    """The guide of the whole problem or of a share: rows that are functions of the rows; None without one."""
    if not kind.guide:
        return None
    return Guide(queries[:, : kind.guide].sin(), None if kind.itself else keys[:, -kind.guide :].cos(), queries[:, -1])


def leaves(kind, drawn):
    """Returns leaf tensors: queries, keys, scale, bias."""
    queries, keys, bias = (x.clone().requires_grad_() for x in drawn[:3])
    scale = torch.tensor(kind.scale, dtype=torch.float64, requires_grad=True)
    return queries, queries if kind.itself else keys, scale, bias


def counted(kind, drawn, over):
    """Returns the pairs that count, boolean [N, M]."""
    *_, query_ids, key_ids, query_from, key_from = drawn
    local = query_from[:, None] == key_from
    place = [torch.cat([torch.arange(int((own == r).sum())) for r in own.unique()]) for own in (query_from, key_from)]
    itself = local & (place[0][:, None] == place[1])
    if kind.ids:
        same = ((query_ids[:, None] == key_ids) & (query_ids[:, None] >= 0)).any(2)
    else:
        same = local & ((place[0][:, None] - place[1]) % 3 == 0)
    different = ~same
    if (guide := guide_of(kind, *drawn[:2])) is not None:
        different &= guide.queries_NE @ guide.keys.T < guide.limit_N[:, None]
    out = {"all": torch.ones_like(same), "others": ~itself, "negatives": different, "positives": same}[over]
    return out & ~itself if (kind.itself or kind.lead) and over != "all" else out


def overs(kind):
    return ["all", "negatives", "positives"] + (["others"] if kind.itself or kind.lead else [])


def true_reductions(kind, drawn, parts, over):
    """Returns name → rows or columns, by plain torch."""
    queries, keys, scale, bias = parts
    scores = scale * queries @ keys.T + (bias if kind.bias else 0)
    allowed = counted(kind, drawn, over)
    masked = scores.masked_fill(~allowed, -torch.inf)
    top, columns = masked.topk(3, dim=1)
    lse = _lse(masked)
    probability = torch.softmax(masked.detach(), 1).nan_to_num()
    expected = (probability * scores.detach()).sum(1)
    above = masked.masked_fill(masked < top[:, 1:2].detach() - 1e-9 * kind.scale, -torch.inf)
    total = scores.masked_fill(~allowed, 0).sum(1)
    out = {
        "lse": lse,
        "lses": torch.stack([_lse(0.5 * masked), lse], 1),
        "lse of 2": _lse(above),
        "sum of 2": above.masked_fill(above == -torch.inf, 0).sum(1),
        "sum": total,
        "mean": total / allowed.sum(1).clamp_min(1),
        "count": allowed.sum(1),
        "max": top[:, 0],
        "topk": top,
        "columns": columns.masked_fill(top == -torch.inf, -1),
        "effective": (lse.detach() - expected).exp(),
    }
    if not (kind.itself or kind.lead or kind.bias or kind.guide):
        out |= {"both rows": lse, "both columns": _lse(masked.T), "transpose": _lse(masked.T)}
    return out


def _lse(masked):
    empty = (masked == -torch.inf).all(1)
    return masked.masked_fill(empty[:, None], 0).logsumexp(1).masked_fill(empty, -torch.inf)


def reductions(similarity, kind, over):
    """Returns the same names → functions that compute them by `Similarity`."""
    S = similarity
    out = {
        "lse": lambda: S.lse(over),
        "lses": lambda: S.lses((0.5, 1.0), over).T,
        "lse of 2": lambda: S.lse(over, top_k=2),
        "sum of 2": lambda: S.sum(over, top_k=2),
        "sum": lambda: S.sum(over),
        "mean": lambda: S.mean(over),
        "count": lambda: S.count(over),
        "max": lambda: S.max(over),
        "topk": lambda: S.topk(3, over)[0],
        "columns": lambda: S.topk(3, over)[1],
        "effective": lambda: S.statistics(over).effective_count,
    }
    if not (kind.itself or kind.lead or kind.bias or kind.guide):
        out |= {
            "both rows": lambda: S.lse_both(over)[0],
            "both columns": lambda: S.lse_both(over)[1],
            "transpose": lambda: S.T.lse(over),
        }
    return out


def with_gradients(value, parts, weights):
    """Returns (value, gradients of its weighted sum); −inf has weight 0."""
    found = [None] * len(parts)
    if value.requires_grad:
        weighed = (value.masked_fill(value == -torch.inf, 0) * weights).sum()
        found = torch.autograd.grad(weighed, parts, allow_unused=True, retain_graph=True)
    return value.detach(), [torch.zeros_like(x) if g is None else g for x, g in zip(parts, found, strict=True)]


def weights_of(length, width):
    out = torch.linspace(-1, 2, length * width, dtype=torch.float64).view(length, width)
    return out if width > 1 else out.squeeze(1)


FEW = "itself", "lead", "apart, large", "apart, guide"


def kinds_for(world):
    """Returns all kinds for up to two processes, and four of them for four, which take longer."""
    return {name: kind for name, kind in KINDS.items() if world < 4 or name in FEW}


def truths(world):
    """Returns (kind, over, reduction) → (value, gradients) of the whole problem."""
    out = {}
    for name, kind in kinds_for(world).items():
        drawn = draw(kind, world)
        parts = leaves(kind, drawn)
        for over in overs(kind):
            for reduction, value in true_reductions(kind, drawn, parts, over).items():
                weights = weights_of(len(value), value[0].numel())
                learning = parts[:1] + parts[2:] if kind.itself else parts
                out[name, over, reduction] = with_gradients(value, learning, weights)
    return out


def sharded(gather_elements, backend="auto"):
    """Returns, in each process of a group: the same dictionary keys → (own part of the value, gradients of the own share)."""
    collectives.GATHER_ELEMENTS = gather_elements
    group = torch.distributed.group.WORLD
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    out = {}
    for name, kind in kinds_for(world).items():
        drawn = draw(kind, world)
        queries, keys, bias, query_ids, key_ids, query_from, key_from = drawn
        mine, my_keys = query_from == rank, key_from == rank
        q, k, scale, bias = leaves(kind, (queries[mine], keys[my_keys], bias[my_keys]))
        S = Similarity(
            q,
            None if kind.itself else k,
            scale=scale,
            column_bias=bias if kind.bias else None,
            query_ids=query_ids[mine] if kind.ids else None,
            key_ids=key_ids[my_keys] if kind.ids and not kind.itself else None,
            instances=None if kind.ids else 3,
            guide=guide_of(kind, queries[mine], keys[my_keys]),
            queries_lead_keys=kind.lead,
            unit=kind.unit,
            backend=backend,
            tile=4,
            group=group,
        )
        for over in overs(kind):
            for reduction, function in reductions(S, kind, over).items():
                value = function()
                place = my_keys if reduction in ("both columns", "transpose") else mine
                weights = weights_of(len(place), value[0].numel())[place]
                parts = (q, scale, bias) if kind.itself else (q, k, scale, bias)
                out[name, over, reduction] = with_gradients(value, parts, weights)
    return out
