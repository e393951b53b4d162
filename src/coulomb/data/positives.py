"""How often an anchor finds no positive in its batch: the question before supervised contrastive training."""

from math import exp, lgamma

from coulomb.errors import InputError


def p_no_positive(class_count: int, total: int, batch_size: int) -> float:
    """P(no other image of the anchor's class among the other B − 1 of its batch), drawn without replacement.

    C(N − n, B − 1) / C(N − 1, B − 1) for a class of n among N images (hypergeometric, by log-gamma). It is about other
    images: with two views an anchor always has its own other view as well.
    """
    if not 1 <= class_count <= total or not 1 <= batch_size <= total:
        raise InputError(f"class_count={class_count}, total={total}, batch_size={batch_size}: both lie in 1…total")
    others, drawn = total - class_count, batch_size - 1
    if drawn > others:
        return 0.0
    log_p = lgamma(others + 1) - lgamma(others - drawn + 1) - lgamma(total) + lgamma(total - drawn)
    return min(1.0, exp(log_p))


def batch_for(class_count: int, total: int, most: float) -> int | None:
    """The smallest batch for which an anchor of a class of ``class_count`` has P(no positive) ≤ ``most``; None: there is none.

    Found by bisection, as P falls with the batch. Raises `InputError` as :func:`p_no_positive` does.
    """
    if p_no_positive(class_count, total, total) > most:
        return None
    low, high = 0, total  # P(low) > most ≥ P(high)
    while high - low > 1:
        middle = (low + high) // 2
        if p_no_positive(class_count, total, middle) > most:
            low = middle
        else:
            high = middle
    return high
