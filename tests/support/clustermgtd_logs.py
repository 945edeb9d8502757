"""What ParallelCluster's head node writes when machines do not come: recorded, and made after recordings."""

from __future__ import annotations

from datetime import datetime, timedelta

BEGIN = datetime(2026, 12, 1, 2)
# One minute of a cluster whose two machines fail again and again (ParallelCluster 3.15, a public report).
RECORDED = """\
2026-03-13 04:55:06,717 - [slurm_plugin.clustermgtd:_maintain_nodes] - INFO - Found the following unhealthy static nodes: (x2) ['gpu-st-ml-1(10.0.10.222)', 'gpu-st-ml-2(10.0.10.102)']
2026-03-13 04:55:06,850 - [slurm_plugin.instance_manager:_launch_instances] - INFO - Launching best-effort instances for nodes (x2) ['gpu-st-ml-1', 'gpu-st-ml-2']
2026-03-13 04:55:08,511 - [slurm_plugin.fleet_manager:launch_ec2_instances] - INFO - Launched the following instances (x2) ['i-0119284e3d911b6ee', 'i-0c3b889bf3a3ca6d3']
2026-03-13 04:55:09,414 - [slurm_plugin.instance_manager:_update_slurm_node_addrs] - INFO - Nodes are now configured with instances (x2) ["('gpu-st-ml-1', EC2Instance(id='i-0119284e3d911b6ee', private_ip='10.0.10.166', hostname='ip-10-0-10-166', all_private_ips={'10.0.10.166'}, launch_time=datetime.datetime(2026, 3, 13, 4, 55, 8, tzinfo=tzlocal()), slurm_node=None))", "('gpu-st-ml-2', EC2Instance(id='i-0c3b889bf3a3ca6d3', private_ip='10.0.10.89', hostname='ip-10-0-10-89', all_private_ips={'10.0.10.89'}, launch_time=datetime.datetime(2026, 3, 13, 4, 55, 8, tzinfo=tzlocal()), slurm_node=None))"]
2026-03-13 04:55:09,414 - [slurm_plugin.slurm_resources:is_bootstrap_failure] - WARNING - Node bootstrap error: Node gpu-st-ml-1(10.0.10.222) is currently in replacement and no backing instance, node state: DOWN+CLOUD+POWERED_DOWN
2026-03-13 04:55:09,414 - [slurm_plugin.slurm_resources:is_bootstrap_failure] - WARNING - Node bootstrap error: Node gpu-st-ml-2(10.0.10.102) is currently in replacement and no backing instance, node state: DOWN+CLOUD+POWERED_DOWN
2026-03-13 04:55:09,414 - [slurm_plugin.clustermgtd:_handle_bootstrap_failure_nodes] - WARNING - Found the following bootstrap failure nodes: (x2) ['gpu-st-ml-1(10.0.10.222)', 'gpu-st-ml-2(10.0.10.102)']
2026-03-13 04:55:09,415 - [slurm_plugin.clustermgtd:_handle_protected_mode_process] - INFO - Partitions bootstrap failure count: {'gpu': {'ml': 6}}, cluster will be set into protected mode if protected failure count reaches threshold 10
2026-03-13 04:56:07,264 - [slurm_plugin.clustermgtd:_maintain_nodes] - INFO - Following nodes are currently in replacement: (x2) ['gpu-st-ml-2', 'gpu-st-ml-1']
""".splitlines()  # noqa: E501 - as it was recorded


def _line(minute: float, where: str, level: str, text: str) -> str:
    time = BEGIN + timedelta(minutes=minute)
    return f"{time:%Y-%m-%d %H:%M:%S},000 - [slurm_plugin.{where}] - {level} - {text}"


def boot_loop(queue: str, nodes: int, boots: int, minutes: float) -> list[str]:
    """Machines that are always on and are started `boots` times, each but the last time failing to boot."""
    names = [f"{queue}-st-trn1-{number}" for number in range(1, nodes + 1)]
    found = []
    for boot in range(boots):
        at = boot * minutes
        placed = [f"\"('{name}', EC2Instance(id='i-{boot:08x}', private_ip='10.60.0.9'))\"" for name in names]
        found.append(
            _line(
                at,
                "instance_manager:_update_slurm_node_addrs",
                "INFO",
                f"Nodes are now configured with instances (x{nodes}) [{', '.join(placed)}]",
            )
        )
        if boot:
            found += _failures(at, names)
    return found


def _failures(at: float, names: list[str]) -> list[str]:
    addressed = [f"{name}(10.60.0.9)" for name in names]
    errors = [
        _line(
            at,
            "slurm_resources:is_bootstrap_failure",
            "WARNING",
            f"Node bootstrap error: Node {one} is currently in replacement and no backing instance, node "
            "state: DOWN+CLOUD+POWERED_DOWN",
        )
        for one in addressed
    ]
    text = f"Found the following bootstrap failure nodes: (x{len(names)}) {addressed}"
    return [*errors, _line(at, "clustermgtd:_handle_bootstrap_failure_nodes", "WARNING", text)]


def success(queue: str) -> str:
    """A machine came."""
    text = f"Find successfully launched node in partition {queue}, reset partition protected failure count"
    return _line(90, "clustermgtd:_reset_partition_failure_count", "INFO", text)


def capacity_refusal(queue: str, nodes: int) -> str:
    """AWS has no machines."""
    names = [f"{queue}-dy-trn1-{number}" for number in range(1, nodes + 1)]
    text = (
        f"Encountered exception when launching instances for nodes (x{nodes}) {names}: An error occurred "
        "(InsufficientInstanceCapacity) when calling the RunInstances operation (reached max retries: 1): We "
        "currently do not have sufficient trn1.32xlarge capacity in the Availability Zone you requested "
        "(us-west-2d). Our system will be working on provisioning additional capacity."
    )
    return _line(1, "instance_manager:_launch_instances", "ERROR", text)
