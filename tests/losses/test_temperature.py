import math

import pytest
import torch

from coulomb.losses import LearnableTemperature, NTXentLoss


def test_starts_at_the_initial_value_and_is_a_parameter_of_the_loss():
    temperature = LearnableTemperature(0.2)
    assert temperature().item() == pytest.approx(0.2)
    assert [name for name, _ in NTXentLoss(temperature).named_parameters()] == ["temperature.log_scale"]


def test_a_clamped_temperature_can_return_into_the_range():
    temperature = LearnableTemperature(0.02, minimum=0.01)
    optimizer = torch.optim.SGD(temperature.parameters(), lr=1.0)
    for _ in range(5):  # push τ below its minimum
        optimizer.zero_grad()
        temperature().log().backward()
        optimizer.step()
    assert temperature().item() == pytest.approx(0.01)
    optimizer.zero_grad()
    (-temperature().log()).backward()
    optimizer.step()
    assert temperature().item() == pytest.approx(0.01 * 2.71828, rel=1e-4)


def test_the_clamp_is_clips_and_is_visible():
    temperature = LearnableTemperature()
    assert (temperature.at_limit, temperature.clamped) == (None, 0)
    for value, limit, clipped in [
        (5.0, "minimum", math.log(100)),
        (-0.5, "maximum", 0.0),
    ]:  # open_clip: clamp_(0, log 100)
        with torch.no_grad():
            temperature.log_scale.fill_(value)
        assert temperature.at_limit == limit
        assert temperature.scale().item() == pytest.approx(math.exp(clipped), rel=1e-6)
        temperature.scale()  # at the limit: nothing to clamp
        assert temperature.at_limit == limit
    assert temperature.clamped == 2
    assert "clamped=2" in repr(temperature)
    assert "clamped" not in temperature.state_dict()


def test_rounded_values_at_the_limit_are_the_limit():
    temperature = LearnableTemperature(math.exp(-4.6052))  # logit_scale of CLIP's published weights
    assert temperature.scale().item() == pytest.approx(100, rel=1e-6)
    assert (temperature.at_limit, temperature.clamped) == ("minimum", 0)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # raised inside torch by jvp
def test_torch_func_does_not_modify_the_parameter():
    x, y = (torch.randn(6, 4, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    loss = NTXentLoss(LearnableTemperature(0.02))
    with torch.no_grad():
        loss.temperature.log_scale += 10  # τ is below its minimum
    parameters = {name: value.detach().clone() for name, value in loss.named_parameters()}

    def call(parameters, x):
        return torch.func.functional_call(loss, parameters, (x, y))

    gradients = torch.func.grad(call, argnums=(0, 1))(parameters, x)
    captured = torch.func.grad(lambda x: loss(x, y))(x)
    assert torch.func.vmap(call, in_dims=(None, 0))(parameters, torch.stack([x, y])).shape == (2,)
    tangent = torch.func.jvp(lambda x: loss(x, y), (x,), (torch.ones_like(x),))[1]
    assert loss.temperature.log_scale == parameters["temperature.log_scale"]
    x.requires_grad_()
    loss(x, y).backward()  # clamps the parameter in place
    assert loss.temperature.log_scale < parameters["temperature.log_scale"]
    torch.testing.assert_close(gradients[0]["temperature.log_scale"], loss.temperature.log_scale.grad)
    torch.testing.assert_close(gradients[1], x.grad)
    torch.testing.assert_close(captured, x.grad)
    torch.testing.assert_close(tangent, x.grad.sum())


def test_invalid_ranges_raise():
    for values in [(0.0, 0.01, 1), (0.5, 0.6, 1), (2, 0.1, 1), (0.1, -1, 1), (0.1, 0.01, float("inf"))]:
        with pytest.raises(ValueError, match="minimum <= initial <= maximum|maximum must be finite"):
            LearnableTemperature(*values)


def test_training_updates_the_temperature():
    x, y = (torch.randn(8, 4, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    loss = NTXentLoss(LearnableTemperature(0.5))
    loss(x, y).backward()
    assert loss.temperature.log_scale.grad.abs() > 0
