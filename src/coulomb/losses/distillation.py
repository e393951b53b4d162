"""Distillation: a student reproduces how a teacher distributes its similarities over keys."""

from dataclasses import KW_ONLY

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.ground.checked import check_shape
from coulomb.losses.inputs import unit_rows, warn_counted
from coulomb.losses.negatives import reduced_over, summed_over
from coulomb.losses.options import Flag, Gather, Loss, Positive, Reduction, Tau
from coulomb.losses.temperature import scale_of
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import gather_group


class DistillationLoss(Loss):
    """L_i = LSE_j s_ij − Σ_j p_ij s_ij,  p_i = softmax_j t_ij,  s = cos/τ, t = cos/τ_t   (SEED: Fang et al., 2021)

    The cross-entropy between two softmaxes over the same keys, of a teacher and of a student, −Σ_j p_ij log q_ij with
    q_i = softmax_j s_ij. The gradient with respect to s_ij is q_ij − p_ij: each key is pulled as far as the teacher finds it
    nearer than the student does. The embeddings of teacher and student may differ in width: only similarities are compared.

    When to use: a small encoder that should order its neighbors as a large one does, without labels; an encoder of one
    modality that learns from another; or to keep the geometry of an earlier encoder while training goes on.
    Needs: embeddings of the same samples by both. The keys are the other samples of the batch (``student_keys`` omitted), the
    other half of each pair, such as the texts of images, or a queue of embeddings by the teacher. For pairs, add the losses
    of both directions: ``loss(images, images_t, texts, texts_t) + loss(texts, texts_t, images, images_t)``.
    Temperature: τ_t says how many keys count: as τ_t → 0 only the teacher's nearest one does, which is InfoNCE with this key
    as the positive. Where τ is larger than τ_t the student must spread its similarities further than the teacher.
    Cost: 8u with u = N·M·D for a teacher of the student's width, 6u for a queue (20u and 14u in several processes, or
    with more than 32,768 keys of D < 128). Memory is linear in N and M.
    Reference: Fang et al., SEED: Self-supervised Distillation For Visual Representation, ICLR 2021, arXiv:2101.04731; Hinton,
    Vinyals & Dean, Distilling the Knowledge in a Neural Network, 2015, arXiv:1503.02531.

    Args:
        temperature: τ, or a `LearnableTemperature`; 0.2 as in the authors' code.
        teacher_temperature: τ_t; 0.01. The authors' code has 1e-4, with which the teacher's own embedding is almost the only
            key that counts.
        kl: subtract the entropy of p_i, so that the minimum is 0, up to rounding: the Kullback–Leibler divergence of q_i from
            p_i. The gradient is the same.
        normalize: scale rows to unit length; rows of the teacher always have it.
        reduction: ``"mean"`` over samples, ``"sum"``, or ``"none"`` ([N]).
        gather: use the samples of all processes as keys. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention. A ``queue`` is not gathered.

    Shape:
        student: [N, D].
        teacher: [N, E].
        student_keys: [M, D].
        teacher_keys: [M, E].
        queue: [K, E], with E = D.
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: none in value from SEED with a queue, whose code stores the logits [N, 1+K] of both.
    Degenerate input: a batch of one sample without keys has no other sample, and an empty queue leaves only the teacher's own
    embedding: the loss is 0, and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> student, teacher = torch.eye(3), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> DistillationLoss(1.0, 1.0)(student, teacher)  # the student finds the other two equally similar: ln 2
    tensor(0.6931)
    >>> DistillationLoss(1.0, 1.0, kl=True)(student, student)
    tensor(0.)
    """

    temperature: Tau = 0.2
    teacher_temperature: Positive = 0.01
    _: KW_ONLY
    kl: Flag = False
    normalize: Flag = True
    reduction: Reduction = "mean"
    gather: Gather = "auto"

    def forward(
        self,
        student: Tensor,
        teacher: Tensor,
        student_keys: Tensor | None = None,
        teacher_keys: Tensor | None = None,
        *,
        queue: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss.

        Args:
            student: embeddings of the samples by the student.
            teacher: embeddings of the same samples by the teacher, without gradient.
            student_keys: embeddings of the keys by the student; None: the other samples of the batch are the keys.
            teacher_keys: embeddings of the same keys by the teacher, without gradient.
            queue: embeddings by the teacher, without gradient, that are the keys of both, in addition to the teacher's
                embedding of the sample itself, as in SEED. Add ``teacher`` to the queue after computing the loss.
        """
        if (student_keys is None) != (teacher_keys is None) or (queue is not None and student_keys is not None):
            raise ValueError("student_keys and teacher_keys must be given together, and not with a queue")
        check_shape("student", student)
        n, half = len(student), student.dtype
        student = unit_rows("student", student, normalize=self.normalize)
        teacher = self._taught("teacher", teacher, n, student)
        processes = gather_group(self.gather)
        over, group = "all", None if queue is not None else processes
        sides: tuple[Tensor | None, Tensor | None] = (None, None)
        if queue is not None:
            if teacher.shape[1] != student.shape[1]:
                widths = teacher.shape[1], student.shape[1]
                raise ValueError(
                    f"teacher has {widths[0]} dimensions, but with a queue it must have the student's {widths[1]}"
                )
            check_shape("queue", queue, like=student, least=0)
            sides = (unit_rows("queue", queue.detach(), normalize=True, least=0).to(student.dtype),) * 2
        elif student_keys is not None and teacher_keys is not None:
            keys = unit_rows("student_keys", student_keys, normalize=self.normalize, like=student)
            sides = keys, self._taught("teacher_keys", teacher_keys, len(keys), student, like=teacher)
        else:
            over = "others"
        scales = scale_of(self.temperature), 1 / self.teacher_temperature
        S = Similarity(student, sides[0], scale=scales[0], unit=self.normalize, half=half, group=group)
        T = Similarity(teacher, sides[1], scale=scales[1], unit=True, group=group)
        own = (
            (S.scale * (student * teacher).sum(1), T.scale * (teacher * teacher).sum(1)) if queue is not None else None
        )
        if S.number_of_keys == (over == "others"):
            warn_counted(n, n, "samples have no key to compare: the loss gives no gradient")
        loss = S.cross_entropy(T, over, own=own, kl=self.kl)
        return reduced_over(processes, loss, self.reduction, _samples(processes, n, student))

    def _taught(self, name: str, value: Tensor, length: int, student: Tensor, like: Tensor | None = None) -> Tensor:
        """Returns embeddings by the teacher: of unit length, in the precision of the student's, without gradient."""
        check_shape(name, value, like=like)
        if len(value) != length:
            raise ValueError(f"{name} has {len(value)} rows, but the student's embeddings have {length}")
        if value.device != student.device:
            raise ValueError(f"{name} is on {value.device}, but the student's embeddings are on {student.device}")
        return unit_rows(name, value.detach(), normalize=True).to(student.dtype)


def _samples(group: dist.ProcessGroup | None, n: int, like: Tensor) -> int:
    """Returns the number of samples of all processes."""
    return n if group is None else int(summed_over(group, torch.tensor(n, device=like.device)))
