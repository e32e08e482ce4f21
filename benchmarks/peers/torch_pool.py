"""Run FedAvg as a plain PyTorch loop over clients in two worker processes: the same run as fedge's.

    python torch_pool.py mlp|cnn|resnet FILE.npz     two processes with one thread each; prints one JSON object

The workers live for the whole run and take half of the clients each. The model is one flat vector: the parameters are
views of it, so handing out the global model is one copy and adding up a client's model is one operation. Both live in
shared memory, and nothing is sent through pipes.
"""

import sys
import time
from multiprocessing.synchronize import Barrier

import torch
from torch import multiprocessing, nn
from torch.nn.functional import cross_entropy

from common import LR, network, read, report, torch_workload

WORKERS = 2


def flatten(model: nn.Module) -> torch.Tensor:
    """Return one vector with all parameters, which become views of it."""
    vector = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    nn.utils.vector_to_parameters(vector, model.parameters())
    return vector


def worker(rank: int, name: str, path: str, model: torch.Tensor, sums: torch.Tensor, losses: torch.Tensor,
           barrier: Barrier) -> None:  # fmt: skip
    """Train this worker's clients in every round; the weighted sum of their models goes to sums[rank]."""
    work, net, (x, y, indices) = torch_workload(name, path)
    vector, weight = flatten(net), work.weight.tolist()
    optimiser = torch.optim.SGD(net.parameters(), lr=LR, fused=True)  # without momentum it has no state to reset
    mine = range(work.clients * rank // WORKERS, work.clients * (rank + 1) // WORKERS)
    for r in range(work.rounds):
        barrier.wait()
        sums[rank].zero_()
        mean_loss = 0.0
        for i in mine:
            vector.copy_(model)
            for index in indices[i, r]:
                optimiser.zero_grad()
                loss = cross_entropy(net(x[index]), y[index])
                loss.backward()
                optimiser.step()
                mean_loss += weight[i] * loss.item() / indices.shape[2]
            sums[rank].add_(vector, alpha=weight[i])
        losses[rank] = mean_loss
        barrier.wait()


def main() -> None:
    torch.set_num_threads(1)
    work = read()
    net = network(work)
    vector = flatten(net).share_memory_()
    nn.utils.vector_to_parameters(vector, net.parameters())
    sums, losses = torch.zeros(WORKERS, len(vector)).share_memory_(), torch.zeros(WORKERS).share_memory_()
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WORKERS + 1)
    arguments = (work.name, sys.argv[2], vector, sums, losses, barrier)
    pool = [context.Process(target=worker, args=(rank, *arguments), daemon=True) for rank in range(WORKERS)]
    for process in pool:
        process.start()
    seconds = []
    for _ in range(work.rounds):
        began = time.perf_counter()
        barrier.wait()
        barrier.wait()
        torch.sum(sums, 0, out=vector)
        seconds.append(time.perf_counter() - began)
    for process in pool:
        process.join()
    report(work, seconds, net.state_dict(), float(losses.sum()), "torch")


if __name__ == "__main__":
    main()
