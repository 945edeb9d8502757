"""What a person is told: on the terminal, and in the run's log with the time."""

from __future__ import annotations

from pathlib import Path

from kitae.stages.run_folder import now


class Log:
    """Prints lines; once it knows the run's log, they also go there."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def attach(self, path: Path) -> None:
        """Write to this file from now on."""
        self._path = path

    def __call__(self, line: str) -> None:
        """Tell a line."""
        print(line, flush=True)
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{now()} {line}\n")
        except OSError:
            self._path = None  # a full disk must not stop a line that says so from being printed
