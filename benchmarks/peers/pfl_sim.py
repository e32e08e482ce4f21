"""Run FedAvg in pfl (pfl-research): the same run as fedge's.

    python pfl_sim.py mlp|cnn FILE.npz [--processes 2]     one thread per process; prints one JSON object

pfl's own FederatedAveraging, SimulatedBackend and PyTorchModel; only the dataset of a user's batches is ours. With
--processes 2 it starts itself under torchrun, pfl's way of several processes: each trains every other user, and the
sums are reduced with gloo. A round lies between two calls of pfl's after_central_iteration callback. pfl evaluates
every user's data in the first iteration, whatever its settings, but not in the later ones timed here, and it reports
no loss from training itself.
"""

import os
import sys
import time
from collections.abc import Iterator

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy

from common import LR, network, read, report, tensors


class Net(torch.nn.Sequential):
    """This is the network with the two methods pfl asks for."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class Batches(PyTorchTensorDataset):
    """These are a user's batches of one round, in the given order."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor) -> None:
        super().__init__((x, y))
        self.indices = indices

    def __len__(self) -> int:
        return self.indices.numel()

    def iter(self, batch_size: int | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return ((self.raw_data[0][index], self.raw_data[1][index]) for index in self.indices)


class Clock(TrainingProcessCallback):
    """This notes the seconds of every round so far."""

    def __init__(self) -> None:
        self.seconds, self.began = [], time.perf_counter()

    def after_central_iteration(self, aggregate_metrics: Metrics, model: PyTorchModel, *,
                                central_iteration: int) -> tuple[bool, Metrics]:  # fmt: skip
        now = time.perf_counter()
        self.seconds.append(now - self.began)
        self.began = now
        return False, Metrics()


def main() -> None:
    torch.set_num_threads(1)
    work = read()
    work.require_equal_weights()  # pfl's plain mean over users
    (x, y, indices), clock = tensors(work), Clock()
    net = Net(*network(work))
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    users = get_user_sampler("minimize_reuse", range(work.clients))  # all of them in turn
    data = FederatedDataset(lambda user: Batches(x, y, indices[user, len(clock.seconds)]), users)
    batch = indices.shape[-1]
    FederatedAveraging().run(
        NNAlgorithmParams(work.rounds, evaluation_frequency=work.rounds, train_cohort_size=work.clients,
                          val_cohort_size=None),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(local_batch_size=batch, local_num_epochs=1, local_learning_rate=LR),
        NNEvalHyperParams(local_batch_size=batch),
        [clock],
        send_metrics_to_platform=False,
    )  # fmt: skip
    if int(os.environ.get("RANK", 0)) == 0:
        report(work, clock.seconds, net.state_dict(), None, "pfl", "torch")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[3:4] == ["--processes"] and sys.argv[4] != "1" and "RANK" not in os.environ:
        launcher = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
        os.execv(sys.executable, [*launcher, f"--nproc-per-node={sys.argv[4]}", *sys.argv])
    main()
