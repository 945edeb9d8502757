"""kitae takes a language model from raw text to a trained, proven checkpoint."""

__version__ = "0.1.0"
