"""Memory, time and money of a recipe, by arithmetic alone: nothing here imports torch."""

MOST_NODES = 1 << 16
"""Up to how many nodes are planned for: of 32 processes each, two million."""
