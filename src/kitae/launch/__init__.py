"""The processes of a training on this machine: started, watched, stopped, and their first failure told."""
