"""`kitae top`: a run, its machines and its money on one screen."""
