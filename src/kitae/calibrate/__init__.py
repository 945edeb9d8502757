"""Measures this machine: kitae's own operations in small, collectives, disk and hashes, for plans."""
