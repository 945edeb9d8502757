"""The plan's step time against what was published for Trainium1, each row fitted without itself.

    python benchmarks/plan_accuracy.py

At most three numbers are fitted for each stack, to the mean square of the errors' logarithms. `left out` is
what a row is predicted to be by numbers that were fitted to the others alone: what to expect of a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log

from kitae.plan.efficiency import STACKS, Efficiency, stack_of
from kitae.plan.published import Row, published_rows

FITTED = {
    "xla-decoder": ("products", "link"),
    "xla-encoder": ("products", "traffic", "host_s"),
}


def fit(stack: str, rows: Sequence[Row]) -> Efficiency:
    """The numbers of a stack that make the rows' errors smallest: coordinate search in their logarithms."""
    best, step = STACKS[stack], 0.3
    error = _error(best, rows)
    while step > 0.003:
        moved = False
        for name in FITTED[stack]:
            for sign in (step, -step):
                trial = replace(best, **{name: getattr(best, name) * exp(sign)})
                if trial.products <= 1 and (found := _error(trial, rows)) < error:
                    best, error, moved = trial, found, True
        step = step if moved else step / 2
    return best


def _error(efficiency: Efficiency, rows: Sequence[Row]) -> float:
    return sum(log(row.predicted(efficiency) / row.rows_per_s) ** 2 for row in rows)


def _mean(values: Sequence[float], of: Callable[[float], float] = abs) -> float:
    return sum(map(of, values)) / len(values)


def main() -> None:
    """Print the rows of each stack, and the numbers to put into `plan/efficiency.py`."""
    print(f"{'row':50} {'published':>10} {'now':>9} {'error':>7} {'left out':>9} {'error':>7}")
    every: list[float] = []
    for stack in FITTED:
        rows = [row for row in published_rows() if stack_of(row.work) == stack]
        outs = []
        for row in rows:
            now = row.predicted(STACKS[stack])
            out = row.predicted(fit(stack, [one for one in rows if one is not row]))
            errors = now / row.rows_per_s - 1, out / row.rows_per_s - 1
            outs.append(errors[1])
            told = f"{now:9.2f} {errors[0]:+7.1%} {out:9.2f} {errors[1]:+7.1%}"
            print(f"{row.name:50} {row.rows_per_s:10.2f} {told}")
        every += outs
        print(f"{stack}: left out, mean {_mean(outs):.1%}, worst {max(map(abs, outs)):.1%}; all rows give:")
        found = fit(stack, rows)
        print("   ", {name: float(f"{getattr(found, name):.3g}") for name in FITTED[stack]})
    print(f"all: left out, mean {_mean(every):.1%}, worst {max(map(abs, every)):.1%}")


if __name__ == "__main__":
    main()
