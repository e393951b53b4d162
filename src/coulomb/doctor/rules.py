"""All rules, causes before what may follow from them."""

from coulomb.doctor import augmentation, collapse, copies, learning_rate, queue_keys, temperature
from coulomb.doctor.batch_too_small import BATCH_TOO_SMALL
from coulomb.doctor.blank import BLANK
from coulomb.doctor.false_negatives import FALSE_NEGATIVES
from coulomb.doctor.head_scale import HEAD_SCALE
from coulomb.doctor.imbalance import IMBALANCE
from coulomb.doctor.labels_unrelated import LABELS_UNRELATED
from coulomb.doctor.momentum import MOMENTUM
from coulomb.doctor.no_signal import NO_SIGNAL
from coulomb.doctor.nothing_learned import NOTHING_LEARNED
from coulomb.doctor.rule import Rule
from coulomb.doctor.shortcut import SHORTCUT

RULES: tuple[Rule, ...] = (
    BLANK,
    LABELS_UNRELATED,
    learning_rate.TOO_HIGH,
    learning_rate.TOO_LOW,
    collapse.COMPLETE,
    collapse.DIMENSIONAL,
    NO_SIGNAL,
    augmentation.TOO_WEAK,
    augmentation.TOO_STRONG,
    BATCH_TOO_SMALL,
    SHORTCUT,
    temperature.TOO_LOW,
    temperature.TOO_HIGH,
    FALSE_NEGATIVES,
    HEAD_SCALE,
    MOMENTUM,
    queue_keys.STALE_KEYS,
    queue_keys.LARGER,
    IMBALANCE,
    copies.DUPLICATES,
    copies.LEAK,
    NOTHING_LEARNED,
)
