"""What every rank of a test needs, imported once in the process that they are forked from."""

import torch

import kitae.train.loop  # noqa: F401

torch.set_num_threads(1)  # a fork would lose the others
torch.optim.AdamW([torch.ones(1, requires_grad=True)])  # imports for a second
