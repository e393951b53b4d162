"""Contrastive losses as plain modules that need only torch, with memory linear in the batch."""

from coulomb.losses.alignment import AlignmentLoss
from coulomb.losses.arcface import ArcFaceLoss
from coulomb.losses.barlow_twins import BarlowTwinsLoss
from coulomb.losses.debiased import DebiasedLoss
from coulomb.losses.decoupled import DecoupledLoss
from coulomb.losses.diagnosis import Diagnosis
from coulomb.losses.distillation import DistillationLoss
from coulomb.losses.hard_contrastive import HardContrastiveLoss
from coulomb.losses.hard_negative import HardNegativeLoss
from coulomb.losses.infonce import InfoNCELoss
from coulomb.losses.joint_infonce import JointInfoNCELoss
from coulomb.losses.matryoshka import MatryoshkaLoss
from coulomb.losses.nce import NCELoss
from coulomb.losses.negative_cosine import NegativeCosineLoss
from coulomb.losses.ntxent import NTXentLoss
from coulomb.losses.paco import PaCoLoss, ParametricCenters
from coulomb.losses.sigmoid import SigmoidLoss
from coulomb.losses.simple import HardSimpleLoss, SimpleContrastiveLoss
from coulomb.losses.softmax import BalancedSoftmaxLoss, SoftmaxLoss
from coulomb.losses.supcon import SupConLoss
from coulomb.losses.temperature import LearnableTemperature
from coulomb.losses.triplet import TripletLoss
from coulomb.losses.uniformity import UniformityLoss
from coulomb.losses.vicreg import VICRegLoss

__all__ = [
    "AlignmentLoss",
    "ArcFaceLoss",
    "BalancedSoftmaxLoss",
    "BarlowTwinsLoss",
    "DebiasedLoss",
    "DecoupledLoss",
    "Diagnosis",
    "DistillationLoss",
    "HardContrastiveLoss",
    "HardNegativeLoss",
    "HardSimpleLoss",
    "InfoNCELoss",
    "JointInfoNCELoss",
    "LearnableTemperature",
    "MatryoshkaLoss",
    "NCELoss",
    "NTXentLoss",
    "NegativeCosineLoss",
    "PaCoLoss",
    "ParametricCenters",
    "SigmoidLoss",
    "SimpleContrastiveLoss",
    "SoftmaxLoss",
    "SupConLoss",
    "TripletLoss",
    "UniformityLoss",
    "VICRegLoss",
]
