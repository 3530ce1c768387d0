"""A small shop, as many are: Python's ThreadingHTTPServer, which has a thread for each connection, over a database.

    shop_app.py PORT COUNT sqlite FILE       every request opens the file
    shop_app.py PORT COUNT postgres PORT     a pool of ten connections, for which requests wait

Every page is a search and an order in one transaction. The file COUNT holds how many have been answered, in eight bytes, which can
be read however busy the shop is.
"""

import mmap
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SEARCH = "SELECT name, price, stock FROM product WHERE name LIKE {0} ORDER BY price LIMIT 20"
SELL = "UPDATE product SET stock = stock - 1 WHERE id = {0}"
NOTE = "INSERT INTO purchase (product) VALUES ({0})"


class Sqlite:
    PRODUCTS = 24_000

    def __init__(self, file):
        self.file = file
        self.search, self.sell, self.note = (text.format("?") for text in (SEARCH, SELL, NOTE))
        connection = self.connect()
        connection.execute("CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT, price INTEGER, stock INTEGER)")
        connection.execute("CREATE TABLE purchase (id INTEGER PRIMARY KEY, product INTEGER)")
        products = ((i, f"Product {i * 7919 % self.PRODUCTS}", i * 31 % 9_973, 1_000_000) for i in range(self.PRODUCTS))
        connection.executemany("INSERT INTO product VALUES (?, ?, ?, ?)", products)
        connection.close()

    def connect(self):
        connection = sqlite3.connect(self.file, timeout=30, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def order(self, wanted, number):
        connection = self.connect()
        try:
            rows = connection.execute(self.search, (wanted,)).fetchall()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(self.sell, (number % self.PRODUCTS,))
            connection.execute(self.note, (number % self.PRODUCTS,))
            connection.execute("COMMIT")
            return rows
        finally:
            connection.close()


class Postgres:
    PRODUCTS = 5_000
    CONNECTIONS = 10

    def __init__(self, port):
        import psycopg2.pool
        address = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
        self.search, self.sell, self.note = (text.format("%s") for text in (SEARCH, SELL, NOTE))
        self.free = threading.BoundedSemaphore(self.CONNECTIONS)
        self.pool = psycopg2.pool.ThreadedConnectionPool(self.CONNECTIONS, self.CONNECTIONS, address)
        connection = self.pool.getconn()
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE product (id integer PRIMARY KEY, name text, price integer, stock integer)")
            cursor.execute("CREATE TABLE purchase (id serial PRIMARY KEY, product integer)")
            cursor.execute("INSERT INTO product SELECT i, 'Product ' || (i * 7919 %% %s), i * 31 %% 9973, 1000000 "
                           "FROM generate_series(0, %s - 1) AS i", (self.PRODUCTS, self.PRODUCTS))
        self.pool.putconn(connection)

    def order(self, wanted, number):
        with self.free:
            connection = self.pool.getconn()
            try:
                with connection, connection.cursor() as cursor:
                    cursor.execute(self.search, (wanted,))
                    rows = cursor.fetchall()
                    cursor.execute(self.sell, (number % self.PRODUCTS,))
                    cursor.execute(self.note, (number % self.PRODUCTS,))
                    return rows
            finally:
                self.pool.putconn(connection)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one segment: apart, the second would wait for the client's delayed acknowledgement.
    wbufsize = 1 << 16

    def do_GET(self):
        shop = self.server
        with shop.counting:
            shop.begun += 1
            number = shop.begun
        rows = shop.database.order(f"%{number % 97}%", number)
        items = "".join(f"<li>{name}: {price / 100:.2f}, {stock} left</li>" for name, price, stock in rows)
        body = f"<!doctype html><title>Shop</title><ul>{items}</ul>"
        with shop.counting:
            shop.served += 1
            shop.count[:] = shop.served.to_bytes(8, "little")
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


class Shop(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4096

    def __init__(self, port, count, database):
        super().__init__(("127.0.0.1", port), Handler)
        self.database = database
        with open(count, "w+b") as file:
            file.truncate(8)
            self.count = mmap.mmap(file.fileno(), 8)
        self.counting = threading.Lock()
        self.begun = self.served = 0


def main():
    port, count, kind, where = sys.argv[1:]
    Shop(int(port), count, {"sqlite": Sqlite, "postgres": Postgres}[kind](where)).serve_forever()


if __name__ == "__main__":
    main()
