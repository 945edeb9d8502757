"""Memory, time and money of a recipe, by arithmetic alone: nothing here imports torch."""
