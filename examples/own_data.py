"""Your own data: a CSV file with a word to predict, and a column that says whose each row is.

    .venv/bin/python examples/own_data.py

This writes one, wheat.csv, and trains on it; from the command line the same run is

    fedge run hierfavg data=wheat.csv target=variety client_column=farm cells=3 rounds=6 lr=0.2

Every farm is a client. A fifth of the rows is held out for testing; the columns are standardised by the others.
"""

import csv
import random

import fedge

GRAINS = {"Kama": (14.3, 0.880, 2.7), "Rosa": (18.3, 0.884, 3.6), "Canadian": (11.9, 0.849, 4.8)}


def write(path: str, rows: int) -> None:
    draw = random.Random(7)
    with open(path, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["area", "compactness", "asymmetry", "farm", "variety"])
        for _ in range(rows):
            variety = draw.choice(list(GRAINS))
            area, compactness, asymmetry = GRAINS[variety]
            grain = draw.gauss(area, 0.8), draw.gauss(compactness, 0.01), draw.gauss(asymmetry, 0.7)
            lines.writerow([*(f"{x:.3f}" for x in grain), f"farm {draw.randrange(9)}", variety])


def main() -> None:
    write("wheat.csv", 600)
    result = fedge.run(
        algorithm="hierfavg", data="wheat.csv", target="variety", client_column="farm", cells=3, rounds=6, lr=0.2,
        eval_every=6,
    )  # fmt: skip
    made = result.experiment
    print(f"{made.topology.clients} farms in {made.topology.cells} cells know {', '.join(made.dataset.class_names)}")
    print(f"{result.final['accuracy']:.1%} of the rows held out are right; more in {result.out}")


if __name__ == "__main__":
    main()
