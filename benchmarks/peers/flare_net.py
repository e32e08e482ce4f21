"""FedAvg on NVIDIA FLARE's network, for benchmarks/fleet_peers.py.

    python flare_net.py submit STARTUP_KIT PLACE ROUNDS CLIENTS      export the job and hand it to the server
    flare_net.py train PEERS                                         what each client runs, inside its own process

FLARE's own FedAvg recipe for NumPy with the model as one vector.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))


def submit(kit: str, place: str, rounds: str, clients: str) -> None:
    import mlp_step
    import numpy as np
    from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    start = Path(place) / "start.npy"
    np.save(start, np.concatenate([w.ravel() for w in mlp_step.start().values()]))
    recipe = NumpyFedAvgRecipe(
        name="peer", initial_ckpt=str(start), min_clients=int(clients), num_rounds=int(rounds),
        train_script=__file__, train_args=f"train {Path(__file__).resolve().parent}",
    )  # fmt: skip
    recipe.export(str(Path(place) / "job"))
    session = new_secure_session("admin@nvidia.com", kit, timeout=60.0)
    print("job", session.submit_job(str(Path(place) / "job" / "peer")), flush=True)
    session.close()


def train(peers: str) -> None:
    import numpy as np
    import nvflare.client as flare

    sys.path.insert(0, peers)
    import mlp_step

    flare.init()
    number = int(flare.get_site_name().rpartition("-")[2])
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        vector, weights, first = model.params["numpy_key"], {}, 0
        for key, shape in mlp_step.SHAPES.items():
            size = int(np.prod(shape))
            weights[key], first = vector[first : first + size].reshape(shape), first + size
        stepped = mlp_step.step(weights, number, model.current_round)
        params = {"numpy_key": np.concatenate([w.ravel() for w in stepped.values()])}
        flare.send(flare.FLModel(params_type=flare.ParamsType.FULL, params=params, metrics={"accuracy": 0.0}))


if __name__ == "__main__":
    {"submit": submit, "train": train}[sys.argv[1]](*sys.argv[2:])
