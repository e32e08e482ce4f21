"""FedAvg on Flower's network: the app that benchmarks/fleet_peers.py hands to a SuperLink and four SuperNodes.

Flower's own FedAvg strategy, all clients in every round, no evaluation. When a round ends is written to a file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from . import mlp_step

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    number, index = int(context.node_config["partition-id"]), int(message.content["config"]["server-round"])
    weights = {name: array.numpy() for name, array in message.content["arrays"].items()}
    stepped = mlp_step.step({name: weights[name] for name in mlp_step.SHAPES}, number, index)
    arrays = ArrayRecord({name: _array(w) for name, w in stepped.items()})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"weight": 1.0})}), reply_to=message)


class Timed(FedAvg):
    """This FedAvg writes down when each round ends."""

    def __init__(self, ends: Path, clients: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients,
                         weighted_by_key="weight")  # fmt: skip
        self._ends = ends

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple:
        replies = list(replies)
        assert len(replies) == self.min_train_nodes
        assert not any(reply.has_error() for reply in replies)
        result = super().aggregate_train(server_round, replies)
        with self._ends.open("a") as file:
            file.write(f"{time.time()}\n")
        return result


@server.main()
def serve(grid: Grid, context: Context) -> None:
    given = context.run_config
    strategy = Timed(Path(str(given["ends"])), int(given["clients"]))
    first = ArrayRecord({name: _array(w) for name, w in mlp_step.start().items()})
    strategy.start(grid, first, num_rounds=int(given["rounds"]), train_config=ConfigRecord())


def _array(w):
    from flwr.app import Array

    return Array(w)
