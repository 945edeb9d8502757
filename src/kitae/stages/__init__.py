"""The stages that a recipe goes through, the run folder, and which of them can be skipped."""
