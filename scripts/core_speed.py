"""Measures the speed of the core on which it runs. The core of a virtual machine is faster in one second than in the next.

    core_speed.py FILE

Fifty times a second it does a fixed piece of work, a search in a small table, and counts the CPU time of that. Time in which other
processes have the core does not count. FILE holds the number of pieces done and their nanoseconds, in eight bytes each.
"""

import mmap
import sqlite3
import struct
import sys
import time

PRODUCTS = 3_000
PAUSE_S = 0.02
SEARCH = "SELECT name, price, stock FROM product WHERE name LIKE '%17%' ORDER BY price LIMIT 20"


def main():
    with open(sys.argv[1], "w+b") as file:
        file.truncate(16)
        found = mmap.mmap(file.fileno(), 16)
    table = sqlite3.connect(":memory:")
    table.execute("CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT, price INTEGER, stock INTEGER)")
    table.executemany("INSERT INTO product VALUES (?, ?, ?, 1)", ((i, f"Product {i}", i * 31 % 997) for i in range(PRODUCTS)))
    done = spent_ns = 0
    while True:
        time.sleep(PAUSE_S)
        start = time.thread_time_ns()
        table.execute(SEARCH).fetchall()
        spent_ns += time.thread_time_ns() - start
        done += 1
        found[:] = struct.pack("<QQ", done, spent_ns)


if __name__ == "__main__":
    main()
