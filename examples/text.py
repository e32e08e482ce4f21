"""Text: what comes next, character by character, learnt by a model of your own (task=tokens).

    .venv/bin/python examples/text.py

Each sentence counts on from some number, "seven eight nine ten one …"; a client holds 40 of them. The labels of the
first characters, which nobody could guess, are -1: they are not counted.
"""

import jax.numpy as jnp
import numpy as np
from flax import nnx

import fedge

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
LETTERS = sorted({" ", *"".join(WORDS)})
LENGTH, SEEN = 40, 8  # characters of a sentence, and those that the model sees at once


class NextLetter(nnx.Module):
    """A network with one hidden layer over the last characters; it knows nothing of federated learning."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.letters = nnx.Embed(len(LETTERS), 8, rngs=rngs)
        self.hidden = nnx.Linear(8 * SEEN, 64, rngs=rngs)
        self.last = nnx.Linear(64, len(LETTERS), rngs=rngs)

    def __call__(self, x):  # [batch, positions] integers → [batch, positions, letters]
        seen = [jnp.roll(self.letters(x), back, axis=1) for back in range(SEEN)]
        return self.last(nnx.relu(self.hidden(jnp.concatenate(seen, axis=-1))))


def sentences(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    text = " ".join(WORDS * 3) + " "
    begins = rng.integers(0, len(text) // 3, count)
    rows = np.array([[LETTERS.index(c) for c in text[b : b + LENGTH + 1]] for b in begins])
    labels = rows[:, 1:].copy()
    labels[:, : SEEN - 1] = -1
    return rows[:, :-1].astype(np.int32), labels.astype(np.int32)


def main() -> None:
    data = fedge.Dataset.of(*sentences(240, seed=1), *sentences(60, seed=2), task="tokens", name="counting")
    model = fedge.from_nnx(NextLetter, input_shape=data.shape, classes=len(LETTERS), name="next letter")
    result = fedge.run(
        algorithm="hierfavg", dataset=data, model=model, clients=6, cells=2, rounds=20, local_steps=5, edge_rounds=4,
        batch=10, lr=0.5, momentum=0.9, eval_every=20,
    )  # fmt: skip
    row = result.final
    print(
        f"{row['accuracy']:.1%} of the characters are right, perplexity {row['perplexity']:.3f}; more in {result.out}"
    )


if __name__ == "__main__":
    main()
