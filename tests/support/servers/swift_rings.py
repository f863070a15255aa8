"""The rings of a small Swift, which say which server holds what.

A process of its own, because Swift changes Python:
python -m tests.support.servers.swift_rings DIRECTORY DEVICE KIND=PORT…
"""

import sys

from swift.common.ring import RingBuilder

from everloop.deploy.local.servers import LOOPBACK

_PART_POWER = 4


def save_ring(path: str, device: str, port: int) -> None:
    """Write a ring of one server, which holds one copy of everything on one device."""
    builder = RingBuilder(_PART_POWER, 1, 0)
    address = {"ip": LOOPBACK, "port": port, "replication_ip": LOOPBACK, "replication_port": port}
    builder.add_dev({"region": 1, "zone": 1, "device": device, "weight": 1.0, "meta": "", **address})
    builder.rebalance()
    builder.get_ring().save(path)


if __name__ == "__main__":
    directory, device, *rings = sys.argv[1:]
    for kind, _, port in (ring.partition("=") for ring in rings):
        save_ring(f"{directory}/{kind}.ring.gz", device, int(port))
