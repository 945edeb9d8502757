"""A head node that is reached over ssh: kitae, recipe and inputs are brought there, results fetched."""
