"""Weights in and out of every format, through one pipe."""
