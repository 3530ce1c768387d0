#!/usr/bin/env python3
"""An estimator outside the gate: tells it what the service can take, for as long as it is known.

Usage: external_estimator.py SERVICE [GATE] [EVERY_S]     (http://127.0.0.1:9090, 5; TIDEGATE_TOKEN: listen.admin_token)

SERVICE is a URL of the service that answers {"workers": 8, "seconds_per_request": 0.08}.
"""
import json
import os
import sys
import time
import urllib.request

SERVICE = sys.argv[1]
GATE = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:9090"
EVERY_S = float(sys.argv[3]) if len(sys.argv) > 3 else 5.0
# Two values may be lost. After three the gate forgets the last one.
TTL_S = max(1.0, 3 * EVERY_S)
# Below what the service takes: a queue inside it would never go away at exactly that.
SHARE = 0.9


def ask(url, method="GET", body=None):
    """Makes one call and returns the answer."""
    request = urllib.request.Request(url, method=method)
    if body is not None and (token := os.environ.get("TIDEGATE_TOKEN")):
        request.add_header("Authorization", f"Bearer {token}")
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data, timeout=5) as answer:
        return json.load(answer)


def capacity():
    """Requests per second that the service can take now."""
    told = ask(SERVICE)
    return SHARE * told["workers"] / told["seconds_per_request"]


while True:
    try:
        # A service that does not answer has no known capacity: nothing is set, and the gate forgets the last one.
        ask(GATE + "/v1/capacity", "PUT", {"rate": capacity(), "ttl_s": TTL_S, "why": "workers of the service"})
    except (OSError, ValueError, KeyError, ArithmeticError) as error:
        print(f"external_estimator: {error}", file=sys.stderr)
    time.sleep(EVERY_S)
