#!/usr/bin/env python3
"""MASTH, Figure 2(b), from outside the gate: the same as throttle-home.rhai, over the API.

Usage: throttle_home.py [URL]     (http://127.0.0.1:9090; TIDEGATE_TOKEN: listen.admin_token)
"""
import json
import os
import sys
import time
import urllib.request

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9090"
DAY_S = 24 * 60 * 60


def ask(method, path, body=None):
    """Calls the API once and returns the answer."""
    request = urllib.request.Request(URL + path, method=method)
    if token := os.environ.get("TIDEGATE_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data, timeout=5) as answer:
        return json.load(answer)


def peak_goodput():
    """The most requests that the class has served in one second of the last day."""
    since = int(time.time()) - DAY_S
    history = ask("GET", f"/v1/history?metric=goodput&class=home&from={since}")
    most = history["columns"].index("max")
    return max((row[most] for row in history["rows"] if row[most] is not None), default=0.0)


def wanted():
    """The values that the tunables should have now."""
    if not ask("GET", "/v1/state")["overloaded"]:
        return {"class.home.ingress.limit": "off"}
    cost = ask("GET", "/v1/tunables/class.home.cost")["value"]
    return {"class.home.ingress.rate": 0.6 * peak_goodput() * cost, "class.home.ingress.limit": "on"}


while True:
    try:
        ask("PATCH", "/v1/tunables", {"changes": wanted(), "why": "60 % of the peak goodput while overloaded"})
    except OSError as error:
        print(f"throttle_home: {error}", file=sys.stderr)
    time.sleep(1)
