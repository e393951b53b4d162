from coulomb.runs.estimate import estimate
from coulomb.runs.prepare import Facts
from coulomb.runs.recipes import RECIPES


def test_an_estimate_scales_with_the_run():
    facts = Facts(1797, 16, 1, 1797, digits=True, fast_bf16=False)
    config = RECIPES["simclr", "small"](facts)
    found = estimate(config, facts.images)
    assert found["steps"] == config.epochs * (1797 // config.batch_size)
    assert found["training_seconds"] == found["seconds_per_step"] * found["steps"] > 0
    assert found["model_bytes"] == 16 * found["parameters"]  # weights, gradients, two moments, in float32
    views = 2 * config.batch_size * 16 * 16 * 4
    assert found["activation_bytes"] > 32 * views  # the first convolution alone keeps 32 maps a view
