"""Run FedAvg in fluke: the same run as fedge's.

    python fluke_sim.py mlp|cnn FILE.npz     one process with one thread; prints one JSON object

fluke's own FedAVG, Server and Client, with evaluation off; its clients run one after the other (its parallel form is
for several GPUs). Only the loader of a client's batches is ours. A round is what lies between fluke's start_round and
end_round events: broadcast of the model, local training, aggregation.
"""

import contextlib
import io
import time
from collections.abc import Iterator

import torch
from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.server import Server
from fluke.utils import ClientObserver, FederationObserver

from common import LR, network, read, report, tensors


class Batches:
    """These are one client's batches; every pass gives those of the next round."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor) -> None:
        self.x, self.y, self.rounds, self.steps = x, y, iter(indices), indices.shape[1]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return ((self.x[index], self.y[index]) for index in next(self.rounds))

    def __len__(self) -> int:
        return self.steps


class Record(FederationObserver, ClientObserver):
    """This notes the seconds of every round and the clients' mean loss in the last one."""

    def __init__(self) -> None:
        self.seconds, self.losses, self.began = [], [], 0.0

    def start_round(self, round: int, global_model: object) -> None:
        self.losses, self.began = [], time.perf_counter()

    def end_fit(self, round: int, client_id: int, model: object, loss: float, **_: object) -> None:
        self.losses.append(loss)

    def end_round(self, round: int) -> None:
        self.seconds.append(time.perf_counter() - self.began)


def main() -> None:
    torch.set_num_threads(1)
    work = read()
    work.require_equal_weights()
    x, y, indices = tensors(work)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    optimiser, loss = OptimizerConfigurator({"name": "SGD", "lr": LR}), torch.nn.CrossEntropyLoss()
    clients = [Client(i, Batches(x, y, indices[i]), None, optimiser, loss, local_epochs=1) for i in range(work.clients)]
    server = Server(network(work), None, clients, weighted=False)
    federation, record = FedAVG(work.clients, None, {}, clients=clients, server=server), Record()
    federation.set_callbacks([record])
    with contextlib.redirect_stdout(io.StringIO()):  # its progress bars
        federation.run(n_rounds=work.rounds, eligible_perc=1.0)
    mean_loss = sum(record.losses) / len(record.losses)
    report(work, record.seconds, server.model.state_dict(), mean_loss, "fluke-fl", "torch")


if __name__ == "__main__":
    main()
