#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A collector that reads what the server sends with OpenTelemetry's own definitions (`opentelemetry-proto` of PyPI).

tests/clients/otlp_client.py PROGRAM MODEL
"""

import base64
import http.server
import json
import os
import sys
import threading
import time
import urllib.request

from home_client import check
from server import Server, skip

try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
except ImportError:
    skip("no opentelemetry-proto")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


def hex_of(data):
    """OTLP's JSON has ids in hexadecimal digits, where protobuf's reads base64: back to the digits that were sent."""
    return base64.b64encode(data).decode()


class Collector(http.server.BaseHTTPRequestHandler):
    got, headers_seen = {path: [] for path in KINDS}, []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = KINDS[self.path]()
        try:
            json_format.Parse(body, message)
        except json_format.ParseError as error:
            message = error
        self.got[self.path].append(message)
        self.headers_seen.append(self.headers)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def attributes(items):
    out = {}
    for item in items:
        value = item.value
        kind = value.WhichOneof("value")
        out[item.key] = (
            [one.string_value for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
        )
    return out


def main(program, model):
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    os.environ |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_address[1]}",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a%20b,x-other=c",
        "OTEL_SERVICE_NAME": "readers",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,service.name=not-this",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }
    with Server(program, model, ["--pot", "96"]) as server:
        chat = {"messages": [{"role": "user", "content": "the man and the sea"}], "max_tokens": 4, "ignore_eos": True}
        headers = {"Content-Type": "application/json", "traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1"}
        request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(chat).encode(), headers)
        urllib.request.urlopen(request, timeout=60).read()
        end = time.time() + 60
        while time.time() < end and not (Collector.got["/v1/traces"] and len(Collector.got["/v1/metrics"]) > 2):
            time.sleep(0.05)
    for path, messages in Collector.got.items():
        check(
            f"{path} got what its definition reads",
            messages and not any(isinstance(m, Exception) for m in messages),
            messages,
        )
    check("headers of the environment", Collector.headers_seen[0]["x-tenant"] == "a b", Collector.headers_seen[0])

    of = Collector.got["/v1/traces"][0].resource_spans[0]
    resource = attributes(of.resource.attributes)
    check("the service's name", resource["service.name"] == "readers", resource)
    check("the resource", resource["deployment.environment.name"] == "test" and resource["service.version"], resource)
    spans = {span.name: span for span in of.scope_spans[0].spans}
    root = spans["POST /v1/chat/completions"]
    check("trace and parent", hex_of(root.trace_id) == TRACE and hex_of(root.parent_span_id) == SPAN, root)
    check("the state of the trace", root.trace_state == "a=1", root)
    check("a span of a server", root.kind == root.SPAN_KIND_SERVER, root)
    answer = next(span for name, span in spans.items() if name.startswith("chat "))
    check("below the request", answer.parent_span_id == root.span_id, answer)
    said = attributes(answer.attributes)
    check("tokens are numbers", said["gen_ai.usage.output_tokens"] == 4 and said["gen_ai.usage.input_tokens"] > 4, said)
    check("why it ended", said["gen_ai.response.finish_reasons"] == ["length"], said)
    check("the answer's parts", {"wait", "read", "write"} <= set(spans), list(spans))

    metrics = {m.name: m for m in Collector.got["/v1/metrics"][-1].resource_metrics[0].scope_metrics[0].metrics}
    check("a gauge", metrics["weir_budget_bytes"].gauge.data_points[0].as_int > 0)
    check("a share", 0 <= metrics["weir_room_share"].gauge.data_points[0].as_double <= 1)
    answers = metrics["weir_answers_total"].sum
    check(
        "a counter",
        answers.is_monotonic and answers.aggregation_temporality == 2 and answers.data_points[0].as_int == 1,
    )
    point = metrics["weir_ttft_seconds"].histogram.data_points[0]
    check(
        "a histogram",
        point.count == 1 == sum(point.bucket_counts) and len(point.bucket_counts) == len(point.explicit_bounds) + 1,
    )
    check("its exemplar", hex_of(point.exemplars[0].trace_id) == TRACE, point)
    check("OpenTelemetry's own name", metrics["gen_ai.server.time_to_first_token"].histogram.data_points[0].count == 1)
    print("ok")


main(*sys.argv[1:])
