"""Run FedAvg as a plain PyTorch loop over clients: same data, initial weights and sample indices as fedge's run.

    python torch_loop.py mlp|cnn|resnet FILE.npz [cuda]     one thread, or a GPU; prints one JSON object
    python torch_loop.py gemm THREADS                GFLOP/s of a 2048³ float32 product, the best of ten

Batches are slices of ready-made float tensors, which is the kindest case for it.
"""

import json
import sys
import time

import torch
from torch.nn.functional import cross_entropy

from common import LR, network, read, report, tensors


def gemm(threads: int) -> None:
    torch.set_num_threads(threads)
    a, best = torch.ones(2048, 2048), float("inf")
    for _ in range(10):
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    print(json.dumps({"gflops": 2 * 2048**3 / best / 1e9}))


def main() -> None:
    torch.set_num_threads(1)
    device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    work = read()
    model = network(work).to(device)
    x, y, indices = (t.to(device) for t in tensors(work))
    weight, seconds = work.weight.tolist(), []
    state = {k: v.clone() for k, v in model.state_dict().items()}
    for r in range(work.rounds):
        began = time.perf_counter()
        total = {k: torch.zeros_like(v) for k, v in state.items()}
        mean_loss = 0.0
        for i in range(work.clients):
            model.load_state_dict(state)
            optimiser = torch.optim.SGD(model.parameters(), lr=LR)
            for index in indices[i, r]:
                optimiser.zero_grad()
                loss = cross_entropy(model(x[index]), y[index])
                loss.backward()
                optimiser.step()
                mean_loss += weight[i] * loss.detach() / indices.shape[2]
            with torch.no_grad():
                for k, v in model.state_dict().items():
                    total[k] += weight[i] * v
        state = total
        seconds.append(time.perf_counter() - began)
    report(work, seconds, {k: v.cpu() for k, v in state.items()}, float(mean_loss), "torch")


if __name__ == "__main__":
    gemm(int(sys.argv[2])) if sys.argv[1] == "gemm" else main()
