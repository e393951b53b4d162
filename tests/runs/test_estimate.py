from coulomb.runs.plan import plan
from coulomb.runs.preflight import estimate


def test_an_estimate_scales_with_the_run():
    planned = plan({"data": "digits", "epochs": 10})
    config = planned.config
    found = estimate(planned)
    assert planned.steps == 10 * (1438 // config.batch_size)
    assert found["training_seconds"] == found["seconds_per_step"] * planned.steps > 0
    assert found["model_bytes"] == 16 * found["parameters"]  # weights, gradients, two moments, in float32
    views = 2 * config.batch_size * 16 * 16 * 4
    assert found["activation_bytes"] > 32 * views  # the first convolution alone keeps 32 maps a view
