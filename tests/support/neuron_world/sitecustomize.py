"""Makes every Python process that finds it look like one with TorchNeuron, as far as ranks meet.

Its device is torch's spare one under the name `neuron`, which computes nothing; its process groups are those
of gloo. What they and the runtime are asked for, in order, stands in `torch.neuron.calls`.
"""

from types import ModuleType

import torch.distributed as dist
from torch.utils import backend_registration

from kitae.backend import neuron
from kitae.backend.stack import NeuronPackage

CALLS: list[tuple[str, int]] = []


def _group(store, rank, size, timeout):
    CALLS.append(("group", size))
    return dist.ProcessGroupGloo(store, rank, size, timeout)


module = ModuleType("torch.neuron")
module.calls = CALLS
module.device_count = lambda: 4
module.set_device = lambda index: CALLS.append(("set_device", index))
module.is_available = lambda: True
module._is_in_bad_fork = lambda: False
backend_registration._setup_privateuseone_for_python_backend("neuron", module)
dist.Backend.register_backend("neuron", _group, devices=["neuron"])
neuron.neuron_package = lambda: NeuronPackage("native", "2.14.3.0")
