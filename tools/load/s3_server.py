#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""S3 for tests: moto on a free port of 127.0.0.1, with one bucket.

    tools/load/s3_server.py [BUCKET]        default: weir

Prints the port and serves until standard input ends. moto itself looks at a condition (If-None-Match, If-Match) and
then writes, and lets another thread come in between; here one request is served at a time, so that conditional writes
are what they are in S3. Requests whose signature (AWS Signature Version 4, key "key", secret "secret") is wrong are
refused. Needs `pip install 'moto[server]'`; exits with 77 without it.
"""

import hashlib
import hmac
import io
import re
import sys
import threading

try:
    from moto.s3.models import s3_backends
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_):
        pass


def well_signed(environ):
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=key/(\S+), ?SignedHeaders=(\S+), ?Signature=(\w+)",
        environ.get("HTTP_AUTHORIZATION", ""),
    )
    if not found:
        return False
    scope, names, signature = found.groups()
    headers = {k[5:].lower().replace("_", "-"): v.strip() for k, v in environ.items() if k.startswith("HTTP_")}
    must = {"host", "x-amz-date", "x-amz-content-sha256"}
    must |= {name for name in headers if name in ("if-match", "if-none-match") or name.startswith("x-amz-")}
    if not must <= set(names.split(";")) or not must <= set(headers):
        return False
    path, _, query = environ["RAW_URI"].partition("?")
    lines = [environ["REQUEST_METHOD"], path, "&".join(sorted(query.split("&")))]
    lines += [f"{name}:{headers.get(name, '')}" for name in names.split(";")]
    lines += ["", names, headers["x-amz-content-sha256"]]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = b"AWS4secret"
    for part in [*scope.split("/"), "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])]:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(key.hex(), signature)


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
        if not well_signed(environ):
            text = b"<Error><Code>SignatureDoesNotMatch</Code><Message>it is signed otherwise</Message></Error>"
            start_response("403 Forbidden", [("Content-Length", str(len(text)))])
            return [text]
        with self.lock:
            return [b"".join(self.app(environ, start_response))]


def main():
    bucket = sys.argv[1] if len(sys.argv) > 1 else "weir"
    app = OneAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    s3_backends["123456789012"]["aws"].create_bucket(bucket, "us-east-1")
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
