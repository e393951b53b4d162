import torch

from coulomb.ground.checked import check_shape
from coulomb.losses import DistillationLoss
from coulomb.losses.inputs import pair_ids
from law_rows import Row, log_sum_exp, unit

TEACHER_TAU = 0.3


class Taught(DistillationLoss):
    """The teacher's embeddings are functions of whole numbers, which have no gradient."""

    def forward(self, student, codes):
        return super().forward(student, taught("student", student, "codes", codes))


class TaughtPairs(DistillationLoss):
    def forward(self, student, codes, student_keys, key_codes):
        teacher = taught("student", student, "codes", codes)
        check_shape("student_keys", student_keys, like=student)
        keys = taught("student_keys", student_keys, "key_codes", key_codes)
        return super().forward(student, teacher, student_keys, keys)


class TaughtQueue(DistillationLoss):
    def forward(self, student, codes):
        check_shape("student", student)
        teacher = taught("student", student, "codes", codes, student.shape[-1])
        return super().forward(student, teacher, queue=queue_of(student))


def taught(name, rows, code_name, codes, width=3):
    check_shape(name, rows)
    return harmonics(pair_ids(code_name, codes, len(rows), rows), width)


def harmonics(codes, width):
    return (codes.double()[..., None] * torch.linspace(0.3, 1.7, width, dtype=torch.float64, device=codes.device)).cos()


def queue_of(student):
    return harmonics(torch.arange(9, device=student.device) + 100, student.shape[-1])


def numbers(n):
    return 7 * torch.arange(n) % 23


def teach(scores, taught_scores, kl):
    """LSE_j s_j − Σ_j p_j s_j of one row, less the entropy of p if ``kl``."""
    p = torch.softmax(torch.stack(taught_scores), 0)
    loss = log_sum_exp(scores) - sum(weight * score for weight, score in zip(p, scores, strict=True))
    return loss + (p * p.log()).sum() if kl else loss


def batch_loop(kl):
    def loop(tau, student, codes):
        z, t = unit(student), unit(harmonics(codes, 3)).to(student.dtype)
        losses = []
        for i in range(len(z)):
            others = [j for j in range(len(z)) if j != i]
            losses.append(teach([z[i] @ z[j] / tau for j in others], [t[i] @ t[j] / TEACHER_TAU for j in others], kl))
        return torch.stack(losses)

    return loop


def pairs_loop(tau, student, codes, student_keys, key_codes):
    z, k = unit(student), unit(student_keys)
    t, u = (unit(harmonics(one, 3)).to(student.dtype) for one in (codes, key_codes))
    rows = [([z[i] @ key / tau for key in k], [t[i] @ key / TEACHER_TAU for key in u]) for i in range(len(z))]
    return torch.stack([teach(*row, False) for row in rows])


def queue_loop(tau, student, codes):
    z, k, t = unit(student), unit(queue_of(student)), unit(harmonics(codes, student.shape[1]))
    losses = []
    for i in range(len(z)):
        keys = [t[i], *k]
        scores = [z[i] @ key.to(student.dtype) / tau for key in keys]
        losses.append(teach(scores, [(t[i] @ key / TEACHER_TAU).to(student.dtype) for key in keys], False))
    return torch.stack(losses)


def make(cls, **options):
    return lambda temperature, **given: cls(temperature, TEACHER_TAU, **options, **given)


ROWS = {
    "DistillationLoss": Row(make(Taught), lambda n, d, draw: (draw(n, d), numbers(n)), batch_loop(False)),
    "DistillationLoss kl": Row(make(Taught, kl=True), lambda n, d, draw: (draw(n, d), numbers(n)), batch_loop(True)),
    "DistillationLoss pairs": Row(
        make(TaughtPairs),
        lambda n, d, draw: (draw(n, d), numbers(n), draw(n + 2, d), numbers(n + 2).flip(0)),
        pairs_loop,
        paired=False,
    ),
    "DistillationLoss queue": Row(make(TaughtQueue), lambda n, d, draw: (draw(n, d), numbers(n)), queue_loop),
}
