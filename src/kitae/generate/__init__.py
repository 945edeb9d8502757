"""Text from a trained model."""

from kitae.generate.loop import generate

__all__ = ["generate"]
