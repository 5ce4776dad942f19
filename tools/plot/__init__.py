# SPDX-License-Identifier: Apache-2.0
"""Tables and charts from the JSON lines of `weir eval` and `weir bench`."""
