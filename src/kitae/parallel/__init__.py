"""How parameters are cut over ranks."""
