"""Runs and their machines as metrics that Prometheus scrapes, and a dashboard of Grafana over them."""
