# SPDX-License-Identifier: Apache-2.0
"""Parts of deploy/rehearse_fleet: servers that are killed, proxies in front of them, clients, and what they saw."""
