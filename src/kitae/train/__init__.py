"""The training engine: loss, precision, optimizer, loop, metrics, evaluation, signals."""
