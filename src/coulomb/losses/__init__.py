"""Contrastive losses on the streaming engine: plain modules that need torch alone, with memory linear in the batch."""

from coulomb.losses.arcface import ArcFaceLoss
from coulomb.losses.infonce import InfoNCELoss
from coulomb.losses.ntxent import NTXentLoss
from coulomb.losses.paco import PaCoLoss, ParametricCenters
from coulomb.losses.softmax import BalancedSoftmaxLoss, SoftmaxLoss
from coulomb.losses.supcon import SupConLoss
from coulomb.losses.temperature import LearnableTemperature

__all__ = [
    "ArcFaceLoss",
    "BalancedSoftmaxLoss",
    "InfoNCELoss",
    "LearnableTemperature",
    "NTXentLoss",
    "PaCoLoss",
    "ParametricCenters",
    "SoftmaxLoss",
    "SupConLoss",
]
