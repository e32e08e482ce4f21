"""Other programs and papers call some keys otherwise; whoever writes such a name is told what it is called here."""

from __future__ import annotations

from collections.abc import Iterable

from fedge.errors import suggestion

OTHERS = {
    "batch": "batch_size batchsize bs local_batch_size train_batch_size",
    "cells": "edges num_edges n_edges edge_servers num_cells n_cells servers num_servers groups clusters num_clusters",
    "clients": "num_clients n_clients nclients users num_users n_users devices_total num_devices workers num_workers",
    "codec": "compression compressor quantization quantisation",
    "concentration": "alpha dirichlet dirichlet_alpha",
    "cut": "split split_layer cut_layer",
    "data": "dataset data_set",
    "edge_rounds": "tau2 edge_epochs edge_iterations num_edge_rounds group_rounds",
    "gossip": "alpha gossip_steps gossip_rounds consensus_steps",
    "graph": "topology",
    "local_steps": "tau1 tau local_epochs local_iterations local_updates num_local_steps steps",
    "lr": "learning_rate learningrate eta step_size stepsize client_lr local_lr eta_l",
    "model": "net arch architecture",
    "optimizer": "optimiser optim opt client_optimizer",
    "participation": "fraction frac fraction_fit client_fraction sample_fraction sampling_rate",
    "partition": "split iid non_iid noniid distribution heterogeneity",
    "prox": "mu prox_mu proximal_mu",
    "rounds": "num_rounds n_rounds global_rounds comm_rounds communication_rounds epochs num_epochs global_epochs",
    "seed": "random_seed random_state",
    "server": "server_optimizer server_optimiser aggregator",
    "target": "target_accuracy",
    "weight_decay": "wd l2 decay",
}
KEYS_OF = {  # mostly one: but α is of Dirichlet and of SD-FEEL, and both data and models are split
    other: [key for key, others in OTHERS.items() if other in others.split()]
    for other in " ".join(OTHERS.values()).split()
}


def key_suggestion(given: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'lr'?` for what a key is called elsewhere or nearly called here, or nothing."""
    known = list(known)
    keys = [key for key in KEYS_OF.get(given.lower().replace("-", "_"), ()) if key in known]
    return f"; did you mean {' or '.join(map(repr, keys))}?" if keys else suggestion(given, known)
