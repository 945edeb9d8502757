"""The recipe: one YAML file that names a whole job."""
