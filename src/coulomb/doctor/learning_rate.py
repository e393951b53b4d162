"""Learning rate: weights that are thrown about, or hardly move."""

from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.no_signal import ENOUGH
from coulomb.doctor.remedy import Option, advice, rounded
from coulomb.doctor.rule import SICK, Figure, Judgement, Rule, judged, unknown
from coulomb.doctor.temperature import too_low_at_first

JUMP = 0.3  # ‖Δθ‖/‖θ‖ of a step: a third of the network is new after each
WORSE = 1.05  # times the loss of knowing nothing
GROWN = 10.0  # times the size of the weights before training
STILL = 0.01  # ‖θ − θ₀‖/‖θ₀‖ after training; also the longest way that the steps could have gone


def too_high(evidence: Evidence) -> Judgement:
    """NaN, a loss above that of knowing nothing, or steps as large as the weights.

    Not judged where the temperature alone explains these: gradients grow as 1/τ, and so does the loss of a wrong answer.
    """
    if too_low_at_first(evidence):
        return unknown("the temperature is too low for the size of the loss and of the steps to be judged")
    if evidence.failed:
        return Judgement(SICK, f"training stopped: {evidence.failed}", (Figure("non-finite steps", 1, 0, "above"),))
    figures = []
    ratio, loss, none = evidence.typical("update_ratio"), evidence.late("loss"), evidence.late("no_signal")
    if ratio is not None:
        figures.append(Figure("size of a step over the size of the weights", ratio, JUMP, "above"))
    if loss is not None and none and evidence.traits.ceiling and evidence.updates >= ENOUGH:
        figures.append(Figure("loss over the loss of no signal", loss / none, WORSE, "above"))
    growth = evidence.network.get("growth")
    if growth is not None:
        figures.append(Figure("size of the encoder's weights, in that before training", growth, GROWN, "above"))
    if not figures:
        return unknown("neither the size of steps nor a loss of no signal is known")
    return judged(*figures, enough=any)


def too_low(evidence: Evidence) -> Judgement:
    """How far the weights have come from their start; without the checkpoint, how far they can have come."""
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    distance, ratio = evidence.network.get("distance"), evidence.typical("update_ratio")
    if distance is not None:
        return judged(Figure("way of the encoder's weights from their start, in their size", distance, STILL, "below"))
    if ratio is not None:
        return judged(Figure("longest way of the weights, in their size", ratio * evidence.updates, STILL, "below"))
    return unknown("how far the weights moved is not known")


def _slower(evidence: Evidence) -> str:
    lr, epochs = (float(evidence.config.get(name) or 0.0) for name in ("lr", "epochs"))
    warm_up = rounded(max(1.0, epochs / 10))
    return advice(
        evidence,
        ("lower the learning rate", Option("lr", rounded(lr / 10))),
        ("or warm up longer", Option("warmup_epochs", warm_up))
        if float(evidence.config.get("warmup_epochs") or 0.0) < warm_up < epochs
        else None,
    )


def _faster(evidence: Evidence) -> str:
    lr = float(evidence.config.get("lr") or 0.0)
    return advice(
        evidence,
        ("raise the learning rate", Option("lr", rounded(10 * lr) if lr else 0.01)),
        "check that the encoder's weights are trained (requires_grad)",
    )


TOO_HIGH = Rule(
    name="learning-rate-too-high",
    title="The learning rate is too high: steps destroy what was learned before.",
    judge=too_high,
    consequence="The loss jumps, rises above that of knowing nothing, or becomes NaN; the encoder ends as noise.",
    remedy=_slower,
    explained_by=("images-blank",),
    live=True,
)
TOO_LOW = Rule(
    name="learning-rate-too-low",
    title="The learning rate is too low: the weights have hardly moved.",
    judge=too_low,
    consequence="The encoder is still the one that training began with.",
    remedy=_faster,
    explained_by=("images-blank", "augmentation-too-weak"),
)
