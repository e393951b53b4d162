import torch

from coulomb.data.views.geometry import control_points, displacement, spline_basis
from coulomb.data.views.spec import ViewSpec


def test_the_basis_is_a_partition_of_unity():
    for size, grid in ((16, 6), (7, 4), (33, 12)):
        basis = spline_basis(size, grid)
        assert basis.min() >= 0
        torch.testing.assert_close(basis.sum(1), torch.ones(size))


def test_no_displacement_exceeds_the_amplitude_and_it_is_used(uniforms):
    spec = ViewSpec(elastic=1.0, elastic_amplitude=0.1)
    field = displacement(control_points(spec, uniforms(256)), spline_basis(32, 6)) / 2  # fractions of the side
    assert field.abs().max() <= 0.1
    assert 0.02 < field.std() < 0.04  # about .3 of the amplitude, as documented
    assert field.mean().abs() < 0.002


def test_the_field_is_smooth(uniforms):
    spec = ViewSpec(elastic=1.0, elastic_amplitude=0.1)
    field = displacement(control_points(spec, uniforms(64)), spline_basis(128, 6)) / 2 * 128  # pixels
    slope = field.diff(dim=3)
    assert slope.abs().max() < 0.1 * 2 * 3  # amplitude × swing × segments, per pixel of 1/128
    assert slope.diff(dim=3).abs().max() < 0.05
