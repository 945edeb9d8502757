"""Rotary position embedding in the half-split order of Hugging Face Llama checkpoints; tables in fp32.

B batch, S sequence, D head size.
"""

from __future__ import annotations

import math

import torch

from kitae.model.rope_config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Radians a position for each pair of a head, fp32 [D/2]."""
    plain = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    return _SCALINGS[rope.kind](rope, plain)


def rotary_tables(frequencies: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine for positions [B, S], fp32 [B, S, 1, D/2] each."""
    angles = (position_ids[..., None].float() * frequencies)[:, :, None]
    return angles.cos(), angles.sin()


def _unscaled(rope: RopeConfig, frequencies: torch.Tensor) -> torch.Tensor:
    return frequencies


def _linear(rope: RopeConfig, frequencies: torch.Tensor) -> torch.Tensor:
    return frequencies / rope.factor


def _llama3(rope: RopeConfig, frequencies: torch.Tensor) -> torch.Tensor:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended (Llama 3.1)."""
    original = rope.original_max_position_embeddings
    wavelength = 2 * math.pi / frequencies
    smooth = (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    stretched = frequencies / rope.factor
    blended = (1 - smooth) * stretched + smooth * frequencies
    scaled = torch.where(wavelength > original / rope.low_freq_factor, stretched, blended)
    return torch.where(wavelength < original / rope.high_freq_factor, frequencies, scaled)


_SCALINGS = {"default": _unscaled, "linear": _linear, "llama3": _llama3}
