# SPDX-License-Identifier: Apache-2.0
"""haproxy and nginx in front of a fleet, with the files of deploy/ and the addresses of a rehearsal."""

import os
import re
import subprocess
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent.parent


def replaced(text, old, new, where):
    if old not in text:
        raise SystemExit(f"{where} does not say {old!r} any more: bring deploy/fleet/proxies.py in step")
    return text.replace(old, new)


def haproxy(folder, port, servers):
    """deploy/haproxy.cfg has four servers, a to d."""
    conf = replaced((DEPLOY / "haproxy.cfg").read_text(), "127.0.0.1:8080", f"127.0.0.1:{port}", "haproxy.cfg")
    for server in servers:
        line = re.search(rf"^  server {server.node} \S+$", conf, re.M)
        if line is None:
            raise SystemExit(f"haproxy.cfg has no server {server.node}")
        conf = conf.replace(line[0], "  server {} {}:{}".format(server.node, *server.address))
    conf = replaced(
        conf,
        "  default_backend weir\n",
        "  default_backend weir\n  http-response set-header x-served-by %s\n",
        "haproxy.cfg",
    )
    path = Path(folder) / "haproxy.cfg"
    path.write_text(conf)
    return subprocess.Popen(["haproxy", "-db", "-f", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def nginx(folder, port, servers):
    """deploy/nginx.conf has two servers; a fleet has one line in the map and one upstream for each."""
    conf = (DEPLOY / "nginx.conf").read_text()
    begin, end = conf.index("  map "), conf.index("  server {\n")
    lines = [conf[begin:].partition("\n")[0], "    default weir_any;"]
    lines += [f'    "~(^|[ /])s-{s.node}-" weir_{s.node};' for s in servers] + ["  }"]
    names = ["  map $upstream_addr $node {", "    default '';"]
    names += [f"    ~{re.escape(s.address[0])}:{s.address[1]}$ {s.node};" for s in servers] + ["  }"]
    where = lambda s, kind="": "    server {}:{} max_fails=0{};".format(*s.address, kind)
    upstreams = ["  upstream weir_any {", "    least_conn;"] + [where(s) for s in servers] + ["  }"]
    for s in servers:
        upstreams += [f"  upstream weir_{s.node} {{", where(s)]
        upstreams += [where(other, " backup") for other in servers if other is not s] + ["  }"]
    conf = conf[:begin] + "\n".join(lines + names + upstreams) + "\n\n" + conf[end:]
    conf = replaced(conf, "listen 8080", f"listen 127.0.0.1:{port}", "nginx.conf")
    conf = replaced(conf, "next_upstream_tries 2", f"next_upstream_tries {len(servers)}", "nginx.conf")
    conf = replaced(
        conf, "    location / {\n", "    location / {\n      add_header x-served-by $node always;\n", "nginx.conf"
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = "".join(f"  {kind}_temp_path {folder}/{kind};\n" for kind in kinds) + "  access_log off;\n"
    conf = replaced(conf, "http {\n", "http {\n" + own, "nginx.conf")
    conf = replaced(conf, "events {}", "events { worker_connections 4096; }", "nginx.conf")
    user = "user root;\n" if os.geteuid() == 0 else ""  # only root can enter the folder
    path = Path(folder) / "nginx.conf"
    path.write_text(f"{user}daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n" + conf)
    return subprocess.Popen(["nginx", "-p", str(folder), "-c", str(path)], stderr=subprocess.DEVNULL)
