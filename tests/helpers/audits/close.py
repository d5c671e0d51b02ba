"""Tensors that are equal up to rounding."""

import torch

# Relative and absolute, as ``torch.testing`` has them.
_TOLERANCES = {torch.float64: (1e-7, 1e-7), torch.float32: (1.3e-6, 1e-5)}


def assert_close(
    one: torch.Tensor, other: torch.Tensor, rtol: float | None = None, atol: float | None = None, msg: str = ""
) -> None:
    """What ``torch.testing.assert_close`` does, which first imports four seconds of CPU of distributed tensors."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    relative, absolute = _TOLERANCES[one.dtype] if rtol is None or atol is None else (rtol, atol)
    off = (one - other).abs()
    assert torch.allclose(one, other, relative, absolute), f"{msg} differs by {off.max()}, largest {other.abs().max()}"
