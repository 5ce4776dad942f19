#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""S3 for tests: moto on a free port of 127.0.0.1, with one bucket.

    tools/load/s3_server.py [BUCKET]        default: weir

Prints the port and serves until standard input ends. moto itself looks at a condition (If-None-Match, If-Match) and then
writes, and lets another thread come in between; here one request is served at a time, so that conditional writes are
what they are in S3. Needs `pip install 'moto[server]'`; exits with 77 without it.
"""

import io
import sys
import threading
import urllib.request

try:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_):
        pass


class OneAtATime:
    def __init__(self, app):
        self.app, self.lock = app, threading.Lock()

    def __call__(self, environ, start_response):
        # Read before the lock, so that a slow client holds nobody up.
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        if len(body) < length:  # a client that went: nothing was asked
            start_response("400 Bad Request", [("Content-Length", "0")])
            return [b""]
        environ["wsgi.input"] = io.BytesIO(body)
        with self.lock:
            return [b"".join(self.app(environ, start_response))]


def main():
    bucket = sys.argv[1] if len(sys.argv) > 1 else "weir"
    app = OneAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/{bucket}"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT")).read()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
