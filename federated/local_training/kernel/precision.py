"""Matrix products of local training, at the precision that ``runtime.precision`` names.

Shape legend: none; two axes, or three with one of devices before them.

Weights, and what is added to them, are float32 (or float64 in tests) whatever the precision: only the factors of
a product are ever rounded. Weights in 16 bits would lose most of a small step of SGD.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from federated.runtime_config import Precision


def factor(matrix: Tensor, precision: Precision) -> Tensor:
    """What ``add_product`` makes of a factor; worth keeping where one is used often."""
    return matrix.bfloat16() if precision == "bfloat16" else matrix


def add_product(
    total: Tensor, left: Tensor, right: Tensor, precision: Precision, *, beta: float = 1.0, alpha: float = 1.0
) -> None:
    """``total = beta * total + alpha * left @ right`` in place; with ``beta`` 0 what was there does not matter.

    ``bfloat16``: factors are rounded to 8 bits, the products are summed in float32, as tensor cores do. On a CPU,
    which has none, that is float32 arithmetic on rounded factors: the same numbers but for the order of summing.
    """
    if precision == "bfloat16":
        product = _of_rounded(factor(left, precision), factor(right, precision))
        if beta:
            total.mul_(beta).add_(product, alpha=alpha)
        else:
            torch.mul(product, alpha, out=total)
    elif total.dim() == 2:
        total.addmm_(left, right, beta=beta, alpha=alpha)
    else:
        total.baddbmm_(left, right, beta=beta, alpha=alpha)


def _of_rounded(left: Tensor, right: Tensor) -> Tensor:
    multiply = torch.mm if left.dim() == 2 else torch.bmm
    if left.device.type == "cuda":
        return multiply(left, right, out_dtype=torch.float32)
    return multiply(left.float(), right.float())


@contextmanager
def products(precision: Precision) -> Iterator[None]:
    """Float32 products of a GPU in float32 itself, or in TF32 if that is asked for; put back afterwards.

    The setting is one of the whole process, and may have been changed by anybody before.
    """
    wanted, settings = "tf32" if precision == "tf32" else "ieee", torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = wanted
    try:
        assert settings.fp32_precision == wanted, settings.fp32_precision
        yield
    finally:
        settings.fp32_precision = before
