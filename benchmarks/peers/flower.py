"""Run FedAvg in Flower's simulation engine: the same run as fedge's.

    python flower.py mlp|cnn FILE.npz     two clients at a time on two CPUs; prints one JSON object

Flower's own FedAvg strategy, ServerApp, ClientApp and Ray backend, with one actor per CPU and one thread per actor;
evaluation, telemetry and the console log are off. The actors read the file once, so messages carry the model only. A
round lasts from one configure_train to the next: it includes messages, serialisation, the engine's polling and
aggregation, as any user's round does.
"""

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # read when imported

import itertools
import logging
import sys
import time
from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy

from common import LR, network, read, report, torch_workload

CPUS = 2
client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Make a client's local steps of this round."""
    config, i = message.content["config"], int(context.node_config["partition-id"])
    work, net, (x, y, indices) = torch_workload(config["workload"], config["file"])
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser, total = torch.optim.SGD(net.parameters(), lr=LR), 0.0
    for index in indices[i, config["server-round"] - 1]:
        optimiser.zero_grad()
        loss = cross_entropy(net(x[index]), y[index])
        loss.backward()
        optimiser.step()
        total += loss.item()
    metrics = MetricRecord({"loss": total / indices.shape[2], "weight": float(work.weight[i])})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


class Timed(FedAvg):
    """This FedAvg notes when each round begins and when the last one ends."""

    def __init__(self, clients: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients,
                         weighted_by_key="weight")  # fmt: skip
        self.began, self.ended = [], 0.0

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord,
                        grid: Grid) -> Iterable[Message]:  # fmt: skip
        self.began.append(time.perf_counter())
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple:
        result = super().aggregate_train(server_round, replies)
        self.ended = time.perf_counter()
        return result


@server.main()
def serve(grid: Grid, context: Context) -> None:
    work = read()
    strategy = Timed(work.clients)
    config = ConfigRecord({"workload": work.name, "file": str(work.path.resolve())})
    result = strategy.start(grid, ArrayRecord(network(work).state_dict()), num_rounds=work.rounds, train_config=config)
    stamps = [*strategy.began, strategy.ended]
    seconds = [after - before for before, after in itertools.pairwise(stamps)]
    loss = float(result.train_metrics_clientapp[work.rounds]["loss"])
    report(work, seconds, result.arrays.to_torch_state_dict(), loss, "flwr", "ray", "torch")


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    run_simulation(server, client, read().clients, backend_config={
        "init_args": {"num_cpus": CPUS, "logging_level": logging.ERROR, "log_to_driver": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    })  # fmt: skip


if __name__ == "__main__":
    import flower  # by its module name, so that the actors import the client rather than receive its code every time

    sys.exit(flower.main())
