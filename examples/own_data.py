"""Your own data: a CSV file with a word to predict, and a column that says whose each row is.

    .venv/bin/python examples/own_data.py

This writes one, fruit.csv, and trains on it; from the command line the same run is

    fedge run hierfavg data=fruit.csv target=kind client_column=farm cells=3 rounds=6 lr=0.2

Every farm is a client. A fifth of the rows is held out for testing; the columns are standardised by the others.
"""

import csv
import random

import fedge

FRUIT = {"apple": (7.5, 7.0, 180), "pear": (6.5, 9.5, 170), "quince": (8.5, 9.5, 280)}  # cm, cm, g


def write(path: str, rows: int) -> None:
    draw = random.Random(7)
    with open(path, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["width", "height", "weight", "farm", "kind"])
        for _ in range(rows):
            kind = draw.choice(list(FRUIT))
            sizes = (draw.gauss(mean, 0.08 * mean) for mean in FRUIT[kind])
            lines.writerow([*(f"{size:.2f}" for size in sizes), f"farm {draw.randrange(9)}", kind])


def main() -> None:
    write("fruit.csv", 600)
    result = fedge.run(
        algorithm="hierfavg", data="fruit.csv", target="kind", client_column="farm", cells=3, rounds=6, lr=0.2,
        eval_every=6,
    )  # fmt: skip
    made = result.experiment
    print(f"{made.topology.clients} farms in {made.topology.cells} cells know {', '.join(made.dataset.class_names)}")
    print(f"{result.final['accuracy']:.1%} of the rows held out are right; more in {result.out}")


if __name__ == "__main__":
    main()
