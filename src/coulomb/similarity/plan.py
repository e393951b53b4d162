"""How a reduction is computed: the one place where this is decided. The constants and their reasons are in `policy`."""

import torch
from torch import Tensor

from coulomb.ground.checked import abstract, transformed
from coulomb.similarity import attention, policy, stored, streaming
from coulomb.similarity.engine import NO_SECOND_DERIVATIVE, Engine, Needs, Plan
from coulomb.similarity.tiles import Problem

ENGINES: dict[str, Engine] = {"stored": stored, "tiles": streaming, "attention": attention}
NOTHING = (False, False, False, False)


def resolved(backend: str, elements: float) -> str:
    """What ``backend`` means for S with this many elements: ``"dense"``, ``"stored"``, ``"streaming"`` or ``"attention"``."""
    backend = policy.current().backend if backend == "auto" else backend
    if backend != "auto":
        return backend
    return "stored" if elements <= policy.current().stored else "streaming"


def learning(problem: Problem) -> list[bool]:
    """Which of queries, keys, scale and bias will get a gradient."""
    recorded = torch.is_grad_enabled()
    return [recorded and isinstance(one, Tensor) and one.requires_grad for one in problem.operands]


def decide(problem: Problem, needs: Needs = NOTHING) -> Plan:
    """Returns the plan for a problem, given which of its operands will get a gradient.

    Raises:
        RuntimeError: under a transform of torch.func, for a problem that is too large to store.
    """
    if problem.backend == "dense":
        return Plan("dense", "by name")
    if torch.compiler.is_compiling():
        return Plan("operator", "a compiled graph cannot read values")
    if transformed():
        if problem.backend != "stored":
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        return Plan("dense", "transforms of torch.func need plain operators, and S is small")
    if abstract(problem.queries_ND):
        return Plan("operator", "meta and fake tensors have no values")
    if problem.backend == "stored":
        return Plan("stored", "S is small", triangular(problem))
    (engine, why), symmetric = _engine(problem), triangular(problem)
    policy.current().engines[f"{engine}: {why}" if why else engine] += 1
    learns = any(needs)
    return Plan(
        engine,
        why,
        symmetric,
        fused=engine == "tiles" and fuses(problem, needs),
        learning=learns,
        attend=attends(problem, needs),
        cached=cached_elements(problem, symmetric) if learns else 0,
    )


def _engine(problem: Problem) -> tuple[str, str]:
    """Attention by name only, since its kernels have not been measured on a GPU; there they must pass the self-check."""
    if problem.backend != "attention":
        return "tiles", ""
    if problem.at_least_N is not None:
        why = "a threshold (top_k), which equal similarities must meet again"
    elif problem.pairs.guide is not None:
        why = "a guide, whose similarities are computed by tiles"
    elif problem.coarse:
        why = "similarities so large that the lse of a row is too coarse to weight them"
    elif problem.queries_ND.is_cuda and not attention.agrees(problem):
        why = "the self-check failed"
    else:
        return "attention", ""
    if f"tiles: {why}" not in policy.current().engines:
        attention.log.info("attention is not used: %s", why)
    return "tiles", why


def triangular(problem: Problem) -> bool:
    """True if the exponentials are symmetric, so that the tiles on and above the diagonal suffice."""
    if problem.keys_MD is not None or problem.bias_M is not None or not problem.pairs.by_class:
        return False
    whole = problem.at_least_N is None and problem.top_k is None and problem.reduction == "lse"
    return whole and problem.bounded


def fuses(problem: Problem, needs: Needs) -> bool:
    """True if value and gradient of a contrast are computed together in the forward pass (6u instead of 8u).

    One direction, keys that learn, no maximum needed, and strips of complete rows that are tall enough.
    """
    keys_MD, limits = problem.keys_MD, policy.current()
    if keys_MD is None or not needs[1] or problem.both or problem.pairs.mask is not None:
        return False
    if problem.reduction != "lse" or len(problem.powers) > 1 or problem.at_least_N is not None:
        return False
    room = max(limits.strip, problem.tile**2, keys_MD.numel())
    return limits.strip_rows * len(keys_MD) <= room and problem.bounded


def crosses(problem: Problem) -> bool:
    """True if value and gradient of a cross-entropy are computed together, by strips of complete rows (8u instead of 20u)."""
    keys, limits = len(problem.keys), policy.current()
    room = max(limits.strip, problem.tile**2, problem.keys.numel())
    return problem.backend == "streaming" and 0 < limits.strip_rows * keys <= room and problem.bias_M is None


def shares_tiles(problem: Problem) -> bool:
    """True if both directions of a problem with a guide are reduced from the same tiles, in which no maximum is needed."""
    return problem.backend == "streaming" and problem.bounded


def attends(problem: Problem, needs: Needs) -> bool:
    """True if the queries learn and the keys do not: one pass over the tiles then gives value and gradient."""
    simple = len(problem.powers) == 1 and not problem.both and problem.reduction == "lse"
    tiled = problem.backend != "stored" and problem.keys_MD is not None
    return simple and tiled and needs[0] and not (needs[1] or needs[3])


def cached_elements(problem: Problem, symmetric: bool) -> int:
    """How many exponentials are cached for the backward pass, where each saves 2·D flops.

    For symmetric problems and both directions, whose gradients need the sums of other rows and so cannot be fused.
    """
    (n, dim), m, limits = problem.queries_ND.shape, len(problem.keys), policy.current()
    if not (symmetric or problem.both) or len(problem.powers) > 1 or problem.pairs.mask is not None:
        return 0
    elements = (1 + problem.both) * dim * limits.cached // problem.queries_ND.itemsize
    needed = n * m if problem.both else n * (n + policy.LEAF) / 2
    return elements if elements >= limits.least_cached * needed else 0
