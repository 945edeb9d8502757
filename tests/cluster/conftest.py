"""An account of AWS that lives in moto's server, and ParallelCluster played."""

from moto_server_fixtures import engine, moto, moto_process

__all__ = ["engine", "moto", "moto_process"]
