"""Models: their configuration, parameter tables, forward pass and initialisation."""
