"""Methods: ways of training, one readable class each.

A method of your own is a class in a file, used with ``coulomb train --method my_file.py:MyMethod``; its interface is `Method`.
"""

from coulomb.methods.arcface import ArcFace
from coulomb.methods.balanced_softmax import BalancedSoftmax
from coulomb.methods.barlow import BarlowTwins
from coulomb.methods.byol import BYOL
from coulomb.methods.clip import CLIP
from coulomb.methods.dcl import DCL
from coulomb.methods.debiased import Debiased
from coulomb.methods.hard import Hard
from coulomb.methods.instdisc import InstDisc
from coulomb.methods.interface import Method
from coulomb.methods.moco import MoCo
from coulomb.methods.paco import PaCo
from coulomb.methods.several import SeveralColumns
from coulomb.methods.siglip import PairSigLIP, SigLIP
from coulomb.methods.simclr import SimCLR
from coulomb.methods.simsiam import SimSiam
from coulomb.methods.softmax import Softmax
from coulomb.methods.supcon import SupCon
from coulomb.methods.triplet import Triplet
from coulomb.methods.vicreg import VICReg

METHODS: dict[str, type[Method]] = {
    "simclr": SimCLR,
    "moco": MoCo,
    "instdisc": InstDisc,
    "byol": BYOL,
    "simsiam": SimSiam,
    "debiased": Debiased,
    "hard": Hard,
    "dcl": DCL,
    "siglip": SigLIP,
    "vicreg": VICReg,
    "barlow": BarlowTwins,
    "supcon": SupCon,
    "triplet": Triplet,
    "arcface": ArcFace,
    "paco": PaCo,
    "softmax": Softmax,
    "balanced_softmax": BalancedSoftmax,
}

PAIR_METHODS: dict[str, type[SeveralColumns]] = {"clip": CLIP, "siglip": PairSigLIP}

__all__ = [
    "BYOL",
    "CLIP",
    "DCL",
    "METHODS",
    "PAIR_METHODS",
    "ArcFace",
    "BalancedSoftmax",
    "BarlowTwins",
    "Debiased",
    "Hard",
    "InstDisc",
    "Method",
    "MoCo",
    "PaCo",
    "PairSigLIP",
    "SeveralColumns",
    "SigLIP",
    "SimCLR",
    "SimSiam",
    "Softmax",
    "SupCon",
    "Triplet",
    "VICReg",
]
