#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An RTSP server on 127.0.0.1 with a picture that moves (GStreamer's, Debian's gir1.2-gst-rtsp-server-1.0).

rtsp_server.py PORT [PASSWORD]        the user is "me"; exits with 77 where it is not installed
"""

import sys

try:
    import gi

    gi.require_version("Gst", "1.0")
    gi.require_version("GstRtspServer", "1.0")
    from gi.repository import GLib, Gst, GstRtspServer
except (ImportError, ValueError):
    sys.exit(77)

Gst.init(None)
if any(Gst.ElementFactory.find(name) is None for name in ("videotestsrc", "x264enc", "rtph264pay")):
    sys.exit(77)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(sys.argv[1])
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    "( videotestsrc is-live=true pattern=ball ! video/x-raw,width=64,height=64,framerate=10/1 ! "
    "x264enc tune=zerolatency key-int-max=5 ! rtph264pay name=pay0 pt=96 )"
)
factory.set_shared(True)
if len(sys.argv) > 2:
    auth = GstRtspServer.RTSPAuth()
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "user")
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic("me", sys.argv[2]), token)
    server.set_auth(auth)
    permissions = GstRtspServer.RTSPPermissions()
    for what in ("access", "construct"):
        permissions.add_permission_for_role("user", f"media.factory.{what}", True)
    factory.set_permissions(permissions)
server.get_mount_points().add_factory("/camera", factory)
if server.attach(None) == 0:
    sys.exit("the port is taken")
GLib.MainLoop().run()
