# SPDX-License-Identifier: Apache-2.0
"""Calls that fail: memory, files, threads (call_faults.cc), and what becomes of programs and requests then."""
