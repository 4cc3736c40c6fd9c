#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets the rates of rules by the API of the control socket alone, as an agent of one's own could.

    agent.py --service web connections.strangers.rate requests.dynamic.rate

It listens to what the daemon sees of a service, and lets in less through these rules while more waits there than
should, the first of them first; else more. At its end, and when nothing has waited for a while, the policy's rates are
in force again. It takes a policy with a number for each rate, and a service with a limit (`concurrency`), which is what the daemon
watches. Members of the group of `narthex run --write-group` may run it.
"""
import argparse
import http.client
import json
import signal
import socket
import sys

LESS, MORE = 0.7, 1.1  # times the rate, at each step
STEP = 0.25            # seconds between two
CALM = 5.0             # seconds without waiting after which the rates are the policy's again


class Daemon(http.client.HTTPConnection):
    """A connection to the control socket."""

    def __init__(self, path):
        super().__init__("narthex", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        self.request(method, path, json.dumps(body) if body is not None else None)
        answer = self.getresponse()
        if answer.status != 200:
            sys.exit(f"{method} {path}: {json.load(answer)['error']}")
        return answer


def call(socket_path, method, path, body=None):
    daemon = Daemon(socket_path)
    try:
        return json.load(daemon.ask(method, path, body))
    finally:
        daemon.close()


def per_second(rate):
    number, unit = rate.split("/")
    return float(number) / {"s": 1, "m": 60}[unit]


class Rates:
    """The rates of some rules, that of the least important first."""

    def __init__(self, socket_path, paths):
        self.socket, self.paths = socket_path, paths
        status = call(socket_path, "GET", "/v1/status")
        rules = {"connections." + r["name"]: r for r in status["rules"]}
        rules.update({"requests." + r["name"]: r for r in status["requests"]})
        self.most = [per_second(rules[p.removesuffix(".rate")]["rate"]) for p in paths]
        self.now = list(self.most)

    def less(self):
        for i, rate in enumerate(self.now):
            if rate > 1:
                return self.put(i, max(1, rate * LESS))

    def more(self):
        for i in reversed(range(len(self.now))):
            if self.now[i] < self.most[i]:
                return self.put(i, min(self.most[i], self.now[i] * MORE + 1))

    def put(self, i, rate):
        self.now[i] = rate
        values = [{"path": p, "value": f"{max(1, round(r))}/s"} for p, r in zip(self.paths, self.now)]
        call(self.socket, "POST", "/v1/set", {"values": values})  # all or none
        print(*(f"{v['path']} {v['value']}" for v in values), flush=True)

    def back(self):
        for path in self.paths:
            call(self.socket, "POST", "/v1/set", {"path": path, "policy": True})
        self.now = list(self.most)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--socket", default="/run/narthex/default.sock")
    options.add_argument("--service", required=True)
    options.add_argument("paths", nargs="+", metavar="connections.RULE.rate")
    o = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    rates = Rates(o.socket, o.paths)
    acted = calm = 0.0
    try:
        for line in Daemon(o.socket).ask("GET", "/v1/samples"):
            sample = json.loads(line)
            if sample["service"] != o.service:
                continue
            at, decision = sample["sample"]["at"] / 1e9, sample["decision"]
            waits = decision["wait"] > decision["target"]
            if waits or not calm:
                calm = at
            if at - acted < STEP:
                continue
            acted = at
            if waits:
                rates.less()
            elif rates.now != rates.most and at - calm > CALM:
                rates.back()
            else:
                rates.more()
    finally:
        rates.back()


if __name__ == "__main__":
    main()
