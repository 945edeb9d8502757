"""Clusters on AWS: checked, made, watched and taken down; ParallelCluster is run as a program."""
