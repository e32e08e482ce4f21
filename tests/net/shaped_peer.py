"""The ends of a bare transfer: `serve ADDRESS FOLDER` until its input ends; `send ADDRESS FOLDER BYTES`."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from fedge.net.identity import Credentials, dial, server_credentials
from fedge.net.names import CLOUD

PART = 2**20
TIMES = 3


def serve(address, folder):
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.stream_unary_rpc_method_handler(lambda parts, _: str(sum(map(len, parts))).encode())
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", {"Take": handler}),))
    server.add_secure_port(address, server_credentials(Credentials.load(folder)))
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(0).wait()


def send(address, folder, size):
    with dial(address, Credentials.load(folder), CLOUD) as channel:
        take = channel.stream_unary("/bare/Take")
        take(iter([b"x"]))  # the connection is made
        for _ in range(TIMES):
            began = time.monotonic()
            taken = take(bytes(min(PART, size - first)) for first in range(0, size, PART))
            print(time.monotonic() - began, int(taken), flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "serve":
        serve(words[1], Path(words[2]))
    else:
        send(words[1], Path(words[2]), int(words[3]))
