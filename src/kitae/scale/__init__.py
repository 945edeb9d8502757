"""Strong and weak scaling, measured: real trainings of few updates on several widths, and what they show."""
