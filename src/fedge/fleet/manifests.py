"""A fleet as files for those who start and watch processes: Kubernetes, Docker Compose, systemd.

None holds a key: each node's folder, which `fedge fleet init` made, is brought to where its process runs. Addresses are
those of the platform, which the fleet file need not know: a certificate is of a node, wherever that is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedge.errors import ConfigError
from fedge.experiment.fleet_file import toml_of
from fedge.fleet.folders import FILE, start_words
from fedge.fleet.yaml import yaml_of
from fedge.net.fleet import Fleet, Node
from fedge.net.identity import AUTHORITY, IDENTITY

FOLDER, RUNS, CACHE = "/fleet", "/runs", "/cache"  # in a container: a node's folder, what it keeps, compiled programs
USER = 1000
Files = dict[str, str]  # name → content


def on_platform(fleet: Fleet, host: Callable[[Node], str]) -> Fleet:
    """Return a fleet whose servers are reached at the names that a platform gives them, and listen to all of it."""
    moved = []
    for node in fleet.nodes:
        if node.address is None:
            moved.append(node)
        else:
            port = node.address.rpartition(":")[2]
            moved.append(replace(node, address=f"{host(node)}:{port}", listen=f"0.0.0.0:{port}"))
    return replace(fleet, nodes=tuple(moved))


def keeps_state(fleet: Fleet, node: Node) -> bool:
    """Say whether a node keeps what must outlive its process: a run folder, a model that it owns, or a memory."""
    owns = node.role in ("cloud", "monitor") or (node.role == "edge" and fleet.cloud is None)
    return owns or fleet.remembers


def _out(fleet: Fleet, node: Node) -> str | None:
    """Return the folder that a node keeps things in; the root of a volume may hold what a file system puts there."""
    return f"{RUNS}/{fleet.name}" if keeps_state(fleet, node) else None


def kubernetes(fleet: Fleet, image: str, nodes: str) -> Files:
    """Return a file with a job for each node, its part of the fleet file, and a service for each that is dialled."""
    moved = on_platform(fleet, lambda node: _resource(fleet, node))
    made = [thing for node in moved.nodes for thing in _of_node(moved, node, image)]
    secrets = "".join(
        f"#   kubectl create secret generic {_resource(fleet, node)} --from-file={IDENTITY}={nodes}/{node.label}/"
        f"{IDENTITY} --from-file={AUTHORITY}={nodes}/{node.label}/{AUTHORITY}\n"
        for node in fleet.nodes
    )
    head = (
        f"# Fleet '{fleet.name}': a job for each of {len(fleet.nodes)} nodes, of an image with fedge[fleet] in it.\n"
        f"# Their certificates and keys come first, each as a secret of its own:\n{secrets}"
        f"# and, once somebody was revoked: kubectl create configmap {fleet.name}-revoked --from-file=revoked.txt\n"
    )
    return {f"{fleet.name}.yaml": head + "".join(f"---\n{yaml_of(thing)}" for thing in made)}


def _of_node(fleet: Fleet, node: Node, image: str) -> list[Mapping[str, Any]]:
    name = _resource(fleet, node)
    meta = {"name": name, "labels": {"app": name, "fedge.fleet": fleet.name}}
    port = None if node.address is None else int(node.address.rpartition(":")[2])
    revoked = {"configMap": {"name": f"{fleet.name}-revoked", "optional": True}}
    sources = [{"secret": {"name": name}}, {"configMap": {"name": name}}, revoked]
    volumes: list[Any] = [
        {"name": "fleet", "projected": {"sources": sources, "defaultMode": 0o440}},
        {"name": "cache", "emptyDir": {}},
    ]
    mounts = [{"name": "fleet", "mountPath": FOLDER, "readOnly": True}, {"name": "cache", "mountPath": CACHE}]
    things: list[Mapping[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {FILE: toml_of(fleet.part_of(node))}}
    ]
    if port is not None:
        things.append({"apiVersion": "v1", "kind": "Service", "metadata": meta,
                       "spec": {"selector": {"app": name}, "ports": [{"port": port}]}})  # fmt: skip
    if keeps_state(fleet, node):
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
        things.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim})
        volumes.append({"name": "runs", "persistentVolumeClaim": {"claimName": name}})
        mounts.append({"name": "runs", "mountPath": RUNS})
    container: dict[str, Any] = {
        "name": "fedge",
        "image": image,
        "args": start_words(node, FOLDER, _out(fleet, node)),
        "env": [{"name": "FEDGE_CACHE", "value": CACHE}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if port is not None:
        container |= {"ports": [{"containerPort": port}], "readinessProbe": {"tcpSocket": {"port": port}}}
    pod = {
        "restartPolicy": "OnFailure",
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "fsGroup": USER},
        "containers": [container],
        "volumes": volumes,
    }
    template = {"metadata": {"labels": meta["labels"]}, "spec": pod}
    things.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta,
                   "spec": {"backoffLimit": 1000, "template": template}})  # fmt: skip
    return things


def _resource(fleet: Fleet, node: Node) -> str:
    name = re.sub(r"[^a-z0-9-]", "-", f"{fleet.name}-{node.label}")
    if len(name) > 63:
        raise ConfigError(f"'{name}' is too long for a name in Kubernetes, by {len(name) - 63}; shorten [fleet] name")
    return name


def compose(fleet: Fleet, image: str, nodes: str) -> Files:
    """Return a file with a service for each node, and its part of the fleet file beside it."""
    moved = on_platform(fleet, lambda node: node.label)
    services, volumes = dict[str, Any](), dict[str, Any]()
    for node in moved.nodes:
        mounts = [f"{nodes}/{node.label}:{FOLDER}:ro", f"./{node.label}.toml:{FOLDER}/{FILE}:ro", f"cache:{CACHE}"]
        kept = keeps_state(fleet, node)
        if kept:
            mounts.append(f"runs-{node.label}:{RUNS}")
            volumes[f"runs-{node.label}"] = {}
        services[node.label] = {
            "image": image,
            "command": start_words(node, FOLDER, _out(fleet, node)),
            "environment": {"FEDGE_CACHE": CACHE},
            "volumes": mounts,
            "restart": "on-failure",
        }
    whole = {"name": fleet.name, "services": services, "volumes": {"cache": {}, **volumes}}
    head = f"# Fleet '{fleet.name}': docker compose up. It needs an image with fedge[fleet] in it.\n"
    parts = {f"{node.label}.toml": toml_of(moved.part_of(node)) for node in moved.nodes}
    return {"compose.yaml": head + yaml_of(whole), **parts}


def systemd(fleet: Fleet, image: str, nodes: str) -> Files:
    """Return a unit for each node, for the machine that it is on; addresses stay those of the fleet file."""
    return {f"fedge-{fleet.name}-{node.label}.service": _unit(fleet, node) for node in fleet.nodes}


def _unit(fleet: Fleet, node: Node) -> str:
    folder, state = f"/etc/fedge/{fleet.name}/{node.label}", f"fedge/{fleet.name}/{node.label}"
    kept = f"/var/lib/{state}/runs" if keeps_state(fleet, node) else None
    return f"""\
# {node.names[0].words.capitalize()} of fleet '{fleet.name}'. Its folder belongs to user fedge and lies in {folder};
# the unit goes to /etc/systemd/system, then: systemctl enable --now fedge-{fleet.name}-{node.label}
[Unit]
Description=fedge: {node.label} of fleet {fleet.name}
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/bin/env {" ".join(start_words(node, folder, kept))}
Environment=PATH=/opt/fedge/bin:/usr/local/bin:/usr/bin FEDGE_CACHE=/var/cache/{state}
User=fedge
StateDirectory={state}
CacheDirectory={state}
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=yes

[Install]
WantedBy=multi-user.target
"""


PLATFORMS: dict[str, Callable[[Fleet, str, str], Files]] = {
    "kubernetes": kubernetes,
    "compose": compose,
    "systemd": systemd,
}


def emit(fleet: Fleet, platform: str, out: Path, image: str, nodes: Path) -> list[Path]:
    """Write the files of a platform into a folder; files of the same names are written anew, for none holds a key."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in PLATFORMS[platform](fleet, image, os.path.relpath(nodes, out)).items():
        (out / name).write_text(content)
        written.append(out / name)
    return written
