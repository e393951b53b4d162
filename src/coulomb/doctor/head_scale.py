"""The head's output must be of unit length where it is compared."""

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown

CHANGE = 0.05  # of the loss, when the head's output is made twice as long


def judge(evidence: Evidence) -> Judgement:
    """Whether the loss depends on the length of the embeddings."""
    if evidence.traits.classifier:
        return unknown("the head is a classifier, whose logits have a length of their own")
    change = evidence.network.get("scale_change")
    if change is None:
        return unknown("the loss was not tried with longer embeddings")
    figures = [Figure("change of the loss when embeddings are twice as long", change, CHANGE, "above")]
    return judged(*figures)


HEAD_SCALE = Rule(
    name="head-not-normalised",
    title="The loss depends on the length of the embeddings: they are not normalised.",
    judge=judge,
    consequence="Making embeddings longer lowers the loss as well as learning does: the temperature loses its meaning, and "
    "norms grow without bound.",
    remedy=lambda evidence: (
        "Normalise the embeddings: torch.nn.functional.normalize(z, dim=1), or use a loss of coulomb.losses, which does."
    ),
)
