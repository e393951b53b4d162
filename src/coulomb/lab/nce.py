"""`coulomb lab nce`: noise-contrastive estimation against InfoNCE, as noise samples grow."""

from dataclasses import asdict
from typing import Any

from coulomb.lab.arms import Arm
from coulomb.lab.claims import Claim, Rows, at_least
from coulomb.lab.experiment import Experiment
from coulomb.lab.noise import gradient_cosines
from coulomb.lab.settings import Settings
from coulomb.lab.sweep import HEADLINES, chart, curve, sweep
from coulomb.lab.trained import trained
from coulomb.runs.folder import RunFolder
from coulomb.runs.prepare import Prepared

SAMPLES, QUICK = (1, 16, 256, 4096), (1, 16, 256)
FULL = "full-softmax"
WU = "CIFAR-10: NCE is poor with few noise samples and comes up to the full softmax with 4,096 (Wu et al., 2018, table 2)"
GUTMANN = "by theory: as noise samples grow, NCE's gradient becomes maximum likelihood's (Gutmann & Hyvärinen, 2010)"
NEAR = 0.95  # cosine of gradients that point the same way


def name_of(noise: float) -> str:
    """The run with so many noise samples."""
    return f"nce-m{noise:g}"


def samples(settings: Settings) -> tuple[int, ...]:
    """How many noise samples the runs have."""
    return QUICK if settings.quick else SAMPLES


def arms(settings: Settings) -> list[Arm]:
    """Instance discrimination by NCE with more and more noise, and by the exact softmax."""
    shared = {"method": "instdisc"}

    def options(noise: float) -> dict[str, Any]:
        return shared | {"method_options": {"full": False, "noise_samples": int(noise)}}

    return [*sweep(samples(settings), name_of, options, 24), Arm(FULL, shared | {"method_options": {"full": True}}, 24)]


def more(run: RunFolder, prepared: Prepared) -> dict[str, Any]:
    """The cosines, on the run's own bank."""
    found = trained(run, prepared, 64, seen=True)
    bank: Any = found.method.bank
    return {"cosines": gradient_cosines(found.first, found.slots, bank.keys().double(), found.temperature)}


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Gradients and accuracy as noise grows."""
    key, most = settings.headline, samples(settings)[-1]
    table = rows.get(FULL, {}).get("cosines")
    claims = [
        *gradient_claims(table),
        at_least(rows, name_of(most), name_of(1), key, 0.0, f"More noise is better: {most:,} samples than one.", WU),
        at_least(
            rows, name_of(most), FULL, key, -0.02, f"With {most:,} NCE comes within 2 points of the full softmax.", WU
        ),
    ]
    drawn = [
        {"name": name, "points": [(row["noise"], row[which]) for row in table or []]}
        for which, name in (("nce", "NCE"), ("infonce", "InfoNCE"))
    ]
    places = [(float(m), name_of(m)) for m in samples(settings)]
    exact = rows.get(FULL, {}).get(key)
    level = (
        [] if exact is None else [{"name": "full softmax", "points": [(m, exact) for m, _ in places], "dashed": True}]
    )
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [
            chart("Gradients", "cosine", "noise samples", drawn, y_label="cosine with the full softmax's gradient"),
            chart("Accuracy", key, "noise samples in training", [curve(rows, places, key, "NCE"), *level]),
        ],
        "notes": [
            "The gradients are by 64 embeddings of training images, over the bank of the full softmax; means of four draws. "
            "NCE has the true Z there, one for all queries, so that it stays apart from the softmax, where each query has "
            "its own; in training Z is a moving average.",
            "Noise is drawn with replacement from a bank of as many slots as training images.",
        ],
    }


def gradient_claims(table: list[dict[str, Any]] | None) -> list[Claim]:
    """Both gradients become the full softmax's; which needs less noise."""
    nce, info = "NCE's gradient turns into the full softmax's.", "InfoNCE's gradient does so too."
    less = "InfoNCE needs less noise for it than NCE."
    if not table:
        return [Claim(text, GUTMANN, "not measured", None) for text in (nce, info, less)]
    claims = []
    for which, text in (("nce", nce), ("infonce", info)):
        told = ", ".join(f"{row[which]:.3f} with {row['noise']:,}" for row in table[::2])
        claims.append(Claim(text, GUTMANN, f"cosine {told}", table[-1][which] >= max(NEAR, table[0][which])))
    first = {w: next((row["noise"] for row in table if row[w] >= NEAR), None) for w in ("nce", "infonce")}
    told = "; ".join(
        f"{name} reaches a cosine of {NEAR:g} with {first[w]:,} noise samples"
        if first[w]
        else f"{name} does not reach {NEAR:g}"
        for w, name in (("infonce", "InfoNCE"), ("nce", "NCE"))
    )
    sooner = first["infonce"] is not None and (first["nce"] is None or first["infonce"] < first["nce"])
    return [*claims, Claim(less, "not published as such; both are in use with some thousands", told, sooner)]


NCE = Experiment(
    name="nce",
    title="NCE and InfoNCE, as noise grows",
    question="How many noise samples stand in for a softmax over all images?",
    arms=arms,
    judge=judge,
    more=more,
    columns=(
        *HEADLINES,
        ("uniformity", "uniformity", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("loss", "last loss", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)
