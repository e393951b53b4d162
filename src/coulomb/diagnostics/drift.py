"""How far has the network moved away from its slow copy?"""

from torch import Tensor

from coulomb.diagnostics.strips import unit


def drift(online: Tensor, momentum: Tensor) -> float:
    """1 − mean_i cos(online_i, momentum_i): 0 where the momentum encoder says what the encoder says.

    Embeddings [n,D] of the same views by both. A queue's keys were made by momentum encoders of the past: the more the
    two differ, the less consistent the keys are (He et al., 2020). Raises `InputError` for other shapes or values that are
    not finite.
    """
    first, second = unit(online, "online"), unit(momentum, "momentum", like=online)
    return 1 - float((first * second).sum(1).double().mean())
