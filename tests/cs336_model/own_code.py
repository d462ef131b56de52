"""A student's adapters for tests: a right attention by PyTorch's own, and one with each kind of fault."""

import os
import time

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def attention_by_pytorch(queries: Tensor, keys: Tensor, values: Tensor, is_causal: bool, scale: float) -> Tensor:
    return scaled_dot_product_attention(queries, keys, values, is_causal=is_causal, scale=scale)


class Right(torch.autograd.Function):
    """Attention whose backward pass is that of PyTorch's attention, computed once more."""

    @staticmethod
    def scale(width: int) -> float:
        return width**-0.5

    @staticmethod
    def is_masked(is_causal: bool) -> bool:
        return is_causal

    @classmethod
    def change(cls, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return gradients

    @classmethod
    def forward(cls, ctx, queries, keys, values, is_causal=False):
        ctx.save_for_backward(queries, keys, values)
        ctx.is_causal, ctx.owner = is_causal, cls
        return attention_by_pytorch(queries, keys, values, cls.is_masked(is_causal), cls.scale(queries.shape[-1]))

    @staticmethod
    def backward(ctx, upstream):
        owner, heads = ctx.owner, [head.detach().requires_grad_() for head in ctx.saved_tensors]
        with torch.enable_grad():
            output = attention_by_pytorch(*heads, owner.is_masked(ctx.is_causal), owner.scale(heads[0].shape[-1]))
        return *owner.change(torch.autograd.grad(output, heads, upstream)), None


class WithoutMask(Right):
    @staticmethod
    def is_masked(is_causal):
        return False


class WrongScale(Right):
    @staticmethod
    def scale(width):
        return 1.0 / width


class WrongGradientOfQueries(Right):
    @classmethod
    def change(cls, gradients):
        return gradients[0] * 1.05, *gradients[1:]


class WithNan(Right):
    @classmethod
    def change(cls, gradients):
        return *gradients[:2], torch.full_like(gradients[2], float("nan"))


class WithNanWhereLong(WithNan):
    @classmethod
    def change(cls, gradients):
        return super().change(gradients) if gradients[2].shape[1] > 300 else gradients


class Raising(Right):
    @classmethod
    def change(cls, gradients):
        raise NotImplementedError("the backward pass is not written yet")


class RaisingForward(Right):
    @classmethod
    def forward(cls, ctx, *heads):
        raise NotImplementedError("no forward pass")


class RaisingLater(Right):
    """Raises in the backward pass after the warm-up."""

    calls = 0

    @classmethod
    def change(cls, gradients):
        RaisingLater.calls += 1
        if RaisingLater.calls > 1:
            raise RuntimeError("not so often")
        return gradients


class WithoutGradient(Right):
    @classmethod
    def change(cls, gradients):
        return *gradients[:2], None


class Hanging(Right):
    @staticmethod
    def scale(width):
        time.sleep(3600)


class Crashing(Right):
    @staticmethod
    def scale(width):
        os.abort()


def right():
    return Right


def without_mask():
    return WithoutMask


def wrong_scale():
    return WrongScale


def wrong_gradient_of_queries():
    return WrongGradientOfQueries


def with_nan():
    return WithNan


def with_nan_where_long():
    return WithNanWhereLong


def raising():
    return Raising


def raising_forward():
    return RaisingForward


def raising_later():
    return RaisingLater


def without_gradient():
    return WithoutGradient


def hanging():
    return Hanging


def crashing():
    return Crashing


def not_written():
    raise NotImplementedError


get_flashattention_autograd_function_pytorch = get_flashattention_autograd_function_triton = right
