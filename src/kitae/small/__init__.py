"""A small world to train in: text, reviews, tokenizers, shards and models that are made here, offline.

`--scale-down cpu` reads it in the place of what cannot be reached (`recipe/small_inputs.py`). No torch.
"""
