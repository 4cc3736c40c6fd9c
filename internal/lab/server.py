# SPDX-License-Identifier: Apache-2.0
#
# Python's own web server on several addresses.
#   server.py FOLDER PROTOCOL BACKLOG IDLE_SECONDS [ADDRESS PORT]...

import functools
import http.server
import socket
import sys
import threading

folder, protocol, backlog, idle, *listen = sys.argv[1:]


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = protocol
    timeout = float(idle) or None

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = int(backlog)

    def handle_error(self, request, client_address):
        pass  # the client has gone


def serve(address, port):
    Server.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = Server((address, int(port)), functools.partial(Handler, directory=folder))
    return threading.Thread(target=server.serve_forever)


# All listen before the first one serves.
for thread in [serve(a, p) for a, p in zip(listen[::2], listen[1::2])]:
    thread.start()
