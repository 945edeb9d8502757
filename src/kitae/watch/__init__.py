"""Runs seen from outside: what their folders, their processes and the scheduler tell of them. No torch."""
