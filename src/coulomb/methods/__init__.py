"""Ways of training, each one readable class: a module whose forward takes the views and returns the loss.

A method of your own is such a class too, in a file: ``coulomb train --method my_file.py:MyMethod``. It has ``encoder``,
which is exported; ``head``, features → embeddings, which are watched; and what follows, only ``forward`` being a must:

    class MyMethod(nn.Module):
        needs_labels = False     # True: data without any label are refused
        labelled_only = False    # True: images without a label are left out of training
        two_stages = False       # True: a linear classifier on the frozen encoder follows
        constant_lr = ()         # names of submodules that the learning rate's schedule leaves alone

        def __init__(self, encoder, *, ...)         keyword arguments, given by name to those that ask for them:
            temperature, embedding_dim, head_layers, head_hidden_dim, seed     options of every run
            num_images, class_counts [C], num_classes                          facts about the training images
            and any of your own, given as --option NAME=VALUE or by its default
        def forward(self, views, labels, index)     loss of a batch: n tensors [B, C, H, W]; labels [B], −1 unknown (None:
            no labels at all); index [B], each image's position among the training images, 0 … num_images − 1. It may be
            called more than once a batch, so it must not change state that is saved.
        def after_batch(self)                       after the backward pass of every batch: fill a queue
        def after_update(self, progress)            after every update; progress: share of the run that is done
        def no_signal(self, batch, views)           the loss when embeddings carry no signal, or None
        def floor(self, batch, views)               the least loss that any embeddings have, or None (a class derived from one
            of these, with another loss, has to tell both anew)
        def figures(self)                           more numbers for the lines of metrics.jsonl
        def classifier(self)                        a `coulomb.models.classifier.Classifier` to keep with the run

State (a queue, an average, a counter) in buffers, or parameters that need no gradient, is in the checkpoint.
"""

from coulomb.methods.arcface import ArcFace
from coulomb.methods.balanced_softmax import BalancedSoftmax
from coulomb.methods.byol import BYOL
from coulomb.methods.debiased import Debiased
from coulomb.methods.hard import Hard
from coulomb.methods.instdisc import InstDisc
from coulomb.methods.moco import MoCo
from coulomb.methods.paco import PaCo
from coulomb.methods.simclr import SimCLR
from coulomb.methods.simsiam import SimSiam
from coulomb.methods.softmax import Softmax
from coulomb.methods.supcon import SupCon
from coulomb.methods.triplet import Triplet

METHODS = {
    "simclr": SimCLR,
    "moco": MoCo,
    "instdisc": InstDisc,
    "byol": BYOL,
    "simsiam": SimSiam,
    "debiased": Debiased,
    "hard": Hard,
    "supcon": SupCon,
    "triplet": Triplet,
    "arcface": ArcFace,
    "paco": PaCo,
    "softmax": Softmax,
    "balanced_softmax": BalancedSoftmax,
}

__all__ = [
    "BYOL",
    "METHODS",
    "ArcFace",
    "BalancedSoftmax",
    "Debiased",
    "Hard",
    "InstDisc",
    "MoCo",
    "PaCo",
    "SimCLR",
    "SimSiam",
    "Softmax",
    "SupCon",
    "Triplet",
]
