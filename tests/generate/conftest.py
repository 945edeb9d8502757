import sys
from pathlib import Path

# The tiny decoders of the model's tests generate here too.
sys.path.append(str(Path(__file__).parents[1] / "model"))
