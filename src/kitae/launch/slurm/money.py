"""What nodes cost."""

from __future__ import annotations


def cost_usd(nodes: float, seconds: float, price_per_node_hour: float | None) -> float | None:
    """US dollars for so many nodes over that time; None where the price is unknown."""
    return None if price_per_node_hour is None else nodes * seconds / 3600 * price_per_node_hour


def cost_text(usd: float | None) -> str:
    """For a person."""
    return "an unknown amount (target.price_per_node_hour is not set)" if usd is None else f"${usd:,.2f}"
