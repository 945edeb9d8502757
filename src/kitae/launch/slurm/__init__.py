"""Stages as jobs of a Slurm cluster: submitted as a chain, the training looked after from inside its job."""
