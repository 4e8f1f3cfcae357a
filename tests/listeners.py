"""Which addresses processes listen on, from the tables of Linux."""

import ipaddress
import os
from pathlib import Path

TABLES = tuple(path for path in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")) if path.exists())
LISTENS = "0A"


def listeners(folder):
    """(name of the program, address) of the listening sockets of this process and of all whose
    environment names a folder."""
    addresses = _addresses_by_inode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            if int(process.name) != os.getpid() and os.fsencode(folder) not in environment:
                continue
            name = (process / "comm").read_text().strip()
            targets = [os.readlink(each) for each in (process / "fd").iterdir()]
        except OSError:  # it has ended, or is another user's
            continue
        inodes = [target[8:-1] for target in targets if target.startswith("socket:[")]
        found += [(name, addresses[inode]) for inode in inodes if inode in addresses]
    return found


def _addresses_by_inode():
    addresses = {}
    for table in TABLES:
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS:
                addresses[fields[9]] = _address(fields[1].partition(":")[0])
    return addresses


def _address(digits):
    """Words of 32 bits in the order of bytes of this machine: 0100007F is 127.0.0.1."""
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return str(getattr(address, "ipv4_mapped", None) or address)
