import pytest
import torch

from coulomb.losses import NTXentLoss
from coulomb.losses.inputs import UnitRows, paired_products
from coulomb.similarity import use_backend


def pairs(rows, dim=128, dtype=torch.float64):
    values = torch.randn(2, rows, dim, generator=torch.Generator().manual_seed(rows), dtype=dtype)
    return values.requires_grad_()


@pytest.mark.parametrize("rows", [1, 7, 1025])  # the last is large enough for an autograd function
def test_products_of_pairs_and_their_gradients(rows):
    values, upstream = pairs(rows), torch.linspace(-1, 2, rows, dtype=torch.float64)
    products = paired_products(values)
    assert torch.equal(products, (values[0] * values[1]).sum(1))
    (got,) = torch.autograd.grad(products @ upstream, values)
    (expected,) = torch.autograd.grad((values[0] * values[1]).sum(1) @ upstream, values)
    torch.testing.assert_close(got, expected)


def test_products_of_pairs_have_second_derivatives():
    values, along = pairs(1025), torch.ones(2, 1025, 128, dtype=torch.float64)
    (first,) = torch.autograd.grad(paired_products(values).square().sum(), values, create_graph=True)
    (second,) = torch.autograd.grad((first * along).sum(), values)
    x, y = values.detach()
    product, slope = (x * y).sum(1, keepdim=True), (x + y).sum(1, keepdim=True)
    torch.testing.assert_close(second, 2 * torch.stack([slope * y + product, slope * x + product]))


@pytest.mark.parametrize("rows", [3, 3000])
def test_unit_rows_differentiate_as_a_quotient(rows):
    values = pairs(rows)[0].detach().requires_grad_()
    upstream = torch.randn_like(values)
    units, _ = UnitRows.apply(values, ("x",))
    got = torch.autograd.grad((units * upstream).sum(), values, create_graph=True)[0]
    (without_graph,) = torch.autograd.grad((UnitRows.apply(values, ("x",))[0] * upstream).sum(), values)
    quotient = values / values.norm(dim=1, keepdim=True)
    expected = torch.autograd.grad((quotient * upstream).sum(), values, create_graph=True)[0]
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(without_graph, expected)
    (second,) = torch.autograd.grad((got * upstream).sum(), values)
    (expected,) = torch.autograd.grad((expected * upstream).sum(), values)
    torch.testing.assert_close(second, expected)


def test_compiled_with_rows_that_would_have_been_left_to_one_thread():
    views, loss = [view.requires_grad_() for view in pairs(1025, dtype=torch.float32).detach()], NTXentLoss()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(*views)
    torch.testing.assert_close(compiled, loss(*views))
    got, expected = (torch.autograd.grad(each, views) for each in (compiled, loss(*views)))
    torch.testing.assert_close(got, expected)


def test_dense_backend_has_second_derivatives_of_large_batches():
    views = pairs(1025)
    with use_backend("dense"):
        (grad,) = torch.autograd.grad(NTXentLoss()(*views), views, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), views)
    assert second.isfinite().all() and second.abs().max() > 0
